"""What the paper prints: the figures that ours stand beside."""

NAMES = {name.lower(): name for name in ("Non-Private", "LDP-Min", "PLDP", "UniS", "APES", "S-APES")}
LAW_NAMES = {f"{name.lower()}{i}": f"{name}{i}" for i in (1, 2, 3) for name in ("Uniform", "Gauss", "MixGauss")}
LAWS = tuple(LAW_NAMES)[:6]  # columns of Table 4


def _by_law(*values: float) -> dict[str, float]:
    return dict(zip(LAWS, values, strict=True))


# Table 3: central epsilon of a coordinate, and of a user in one round.
EPSILON_C = {"ldp-min": 0.05, "pldp": 1.0, "unis": 0.069, "apes": 0.057, "s-apes": 0.057}
EPSILON_UC_TABLE_3 = {"ldp-min": 40.1, "pldp": 7850.0, "unis": 76.9, "apes": 57.6, "s-apes": 25.6}
# Table 4: central epsilon of a user in one round, and accuracy after 40 rounds in per cent.
EPSILON_UC = {
    "ldp-min": _by_law(40.1, 40.1, 40.1, 40.1, 40.1, 40.1),
    "pldp": _by_law(3925.0, 3925.0, 3925.0, 7850.0, 7850.0, 7850.0),
    "unis": _by_law(17.4, 17.4, 17.5, 79.6, 76.9, 76.9),
    "apes": _by_law(15.5, 15.3, 15.4, 57.6, 52.7, 53.7),
    "s-apes": _by_law(8.5, 8.5, 8.5, 25.6, 23.6, 23.9),
}
ACCURACY = {
    "non-private": _by_law(84.35, 84.35, 84.35, 84.35, 84.35, 84.35),
    "ldp-min": _by_law(56.11, 56.11, 56.11, 56.11, 56.11, 56.11),
    "pldp": _by_law(75.64, 63.77, 67.75, 77.54, 64.81, 73.84),
    "unis": _by_law(75.64, 63.77, 67.75, 77.54, 64.81, 73.84),
    "apes": _by_law(78.77, 78.33, 79.06, 79.67, 79.29, 79.97),
    "s-apes": _by_law(75.7, 56.64, 77.01, 78.14, 73.4, 76.12),
}
