"""What published bounds are called when people read of them."""

TITLES = {
    "eon_closed": "EoN closed",
    "eon_numeric": "EoN numeric",
    "erlingsson19": "Erlingsson et al. 2019",
    "bbgn19_bennett": "Balle et al. 2019, Bennett",
    "bbgn19_hoeffding": "Balle et al. 2019, Hoeffding",
    "gddtk21": "Girgis et al. 2021",
    "fmt22_closed": "Feldman et al. 2022, closed",
    "fmt22_numeric": "Feldman et al. 2022, numeric",
    "user_apes": "APES (advanced composition)",
    "user_s_apes": "S-APES, a fifth kept by top-b",
}


def title_of(name: str) -> str:
    """How a bound is shown; one that a stranger added has the name that it was added under.

    >>> title_of("fmt22_closed"), title_of("mine")
    ('Feldman et al. 2022, closed', 'mine')
    """
    return TITLES.get(name, name)
