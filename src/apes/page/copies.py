"""A setting to take away: as a command, as Python. Both give the figure that the page shows."""

import shlex

from apes.page.setting import Setting


def copies(setting: Setting) -> dict[str, str]:
    """What the buttons copy; the third, JSON, the page makes of what it has."""
    return {"command": command(setting), "python": python(setting)}


def budgets_text(setting: Setting) -> str:
    """Budgets as the command line takes them."""
    return setting.budgets if setting.upload is None else f"file:{setting.upload.place}"


def choices(setting: Setting) -> dict[str, str | float]:
    """Terms that are not left at what they would be."""
    given = {"clip": setting.clip, "norm": setting.norm, "keep": setting.keep, "cap": setting.cap}
    framework = {"framework": setting.terms.framework}
    return framework | {name: value for name, value in given.items() if value is not None}


def command(setting: Setting) -> str:
    """A line for a shell, whose ``certified.total.epsilon`` is the page's."""
    sizes = {"budgets": budgets_text(setting), "users": setting.users, "dimensions": setting.dimensions}
    asked = {**sizes, "rounds": setting.rounds, "delta": setting.delta, **choices(setting)}
    words = ["apes", "account"]
    for name, value in asked.items():
        words += [f"--{name}", value if isinstance(value, str) else repr(value)]
    return shlex.join([*words, "--json"])


def python(setting: Setting) -> str:
    """Lines of Python that print the page's epsilon."""
    terms = ", ".join(f"{name}={value!r}" for name, value in choices(setting).items())
    return (
        "import apes\n"
        "from apes.accounting.guarantee import certify_rounds\n"
        "\n"
        f"budgets = apes.make_budgets({budgets_text(setting)!r}, {setting.users}, seed=1)\n"
        f"terms = apes.Terms({terms})\n"
        f"exposure = terms.exposure(0, terms.applied(budgets), dimensions={setting.dimensions})\n"
        f"guarantee = certify_rounds(exposure, delta={setting.delta!r}, rounds={setting.rounds})\n"
        "print(guarantee.epsilon)\n"
    )
