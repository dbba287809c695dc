"""The import arrows of the design: base <- trust zones <- sparsification <- plan <- training <- the rest <- cli."""

import ast
from pathlib import Path

import pytest

import apes

SOURCE = Path(apes.__file__).parent
BASE = {
    *("codes", "compiled", "errors", "laws", "messages", "parameters", "population", "randomness"),
    *("envelope", "frames", "release", "settings", "durable", "json_logs", "thresholds", "wide"),
}
# What plan and training stand on besides the base and the zones: a new module that these import is named here too.
COMMON = {"budgets", "data", "files", "frameworks", "models"}
PARTIES = {"client", "shuffler", "analyzer"}
ZONES = {*PARTIES, "accounting"}
ACCOUNTING_MAY_IMPORT = {"accounting", "codes", "errors", "laws", "parameters", "thresholds"}
# A part may import parts of its own floor or of lower ones; what is not named here is the rest.
FLOORS = [
    BASE | COMMON,
    ZONES,
    {"sparsification"},
    {"plan"},
    {"analysis"},
    {"training"},
    {"(rest)"},
    {"cli"},
    {"__main__"},
]
REST = FLOORS.index({"(rest)"})


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules():
    """Dotted names of all modules and packages under src/apes, with their files."""
    return {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(source, name, is_package, known):
    """Modules of the package that a source imports anywhere in its text, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".") if is_package else name.split(".")[:-1]
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                found.add(inner if inner in known else origin)
    return {module for module in found if module.split(".")[0] == "apes"}


def part(module):
    """The part of the package that a module belongs to: ``client`` for apes.models.updates, ``apes`` for itself."""
    return module.split(".")[1] if "." in module else "apes"


def floor(name):
    return next((number for number, parts in enumerate(FLOORS) if name in parts), REST)


def violations(module, imports):
    """The imports of a module that go against the arrows."""
    own = part(module)
    return {name for name in imports if part(name) != own and not is_allowed(own, part(name))}


def is_allowed(own, other):
    if own == "accounting":
        return other in ACCOUNTING_MAY_IMPORT
    if own in BASE:
        return other in BASE | COMMON
    if own in PARTIES and other in ZONES:
        return False
    return floor(other) <= floor(own)


@pytest.mark.parametrize(("module", "path"), modules().items(), ids=list(modules()))
def test_imports_follow_the_arrows(module, path):
    imports = imported(path.read_text(encoding="utf-8"), module, path.name == "__init__.py", modules())
    assert violations(module, imports) == set()


def test_the_parts_named_in_the_rules_exist():
    parts = {part(module) for module in modules()}
    assert BASE | COMMON | ZONES | {"plan", "training"} <= parts


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("apes.models.updates", "from apes.shuffler.shuffle import Permuter"),
        ("apes.models.updates", "import apes.analyzer.expected"),
        ("apes.models.updates", "def f():\n    from ..analyzer import expected"),
        ("apes.shuffler.tally", "from apes import client"),
        ("apes.shuffler.tally", "from apes.accounting.exposure import Event"),
        ("apes.analyzer.expected", "from apes.client import randomizer as r"),
        ("apes.analyzer.expected", "import numpy, apes.shuffler"),
        ("apes.analyzer.expected", "from apes.terms.plan import Plan"),
        ("apes.client.pipeline", "from ..training import train"),
        ("apes.client.pipeline", "from apes import Plan"),
        ("apes.accounting.exposure", "from apes.messages import Report"),
        ("apes.accounting.exposure", "from apes.population import UserBlock"),
        ("apes.accounting.exposure", "from apes.models.updates import Updater"),
        ("apes.accounting.exposure", "from apes.mathematics.randomness import SimulationSource"),
        ("apes.mathematics.laws", "from apes.accounting.exposure import Event"),
        ("apes.errors", "from .client import update"),
        ("apes.messages", "import apes.cli.main"),
        ("apes.population", "import apes"),
        ("apes.budgets", "from apes.models.updates import Updater"),
        ("apes.terms.plan", "from apes.training.train import train"),
        ("apes.terms.plan", "from apes.paper import table1"),
        ("apes.training.train", "from apes.training.run_folder import Run"),
        ("apes.training.train", "from apes.federation.courier import Courier"),
        ("apes.training.run_folder", "from apes.cli.main import main"),
        ("apes", "from apes.cli.main import main"),
    ],
)
def test_forbidden_imports_are_seen(module, source):
    assert violations(
        module, imported(source, module, module == "apes", {*modules(), "apes.cli.main", "apes.training.run_folder"})
    )


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("apes.models.updates", "import numpy\nfrom apes.population import UserBlock\nfrom .randomizer import Place"),
        ("apes.analyzer.expected", "from apes.mathematics.laws import ClipLaplace\nfrom apes import codes"),
        (
            "apes.accounting.certificate.curve",
            "from apes.mathematics.thresholds import MAX_LEVELS\nfrom .event import Event",
        ),
        ("apes.terms.plan", "from apes.models.updates import Updater\nfrom apes.accounting.exposure import Event"),
        ("apes.training.train", "from apes.terms.plan import Plan\nfrom apes.shuffler import shuffle"),
        ("apes.training.run_folder", "from apes.training.train import train\nfrom apes.terms.plan import Plan"),
        ("apes.cli.main", "from apes.training.run_folder import Run"),
        ("apes.__main__", "from apes.cli.main import main"),
        ("apes", "from apes.terms.plan import Plan\nfrom apes.training.train import train"),
    ],
)
def test_permitted_imports_are_not_reported(module, source):
    assert (
        violations(
            module,
            imported(source, module, module == "apes", {*modules(), "apes.cli.main", "apes.training.run_folder"}),
        )
        == set()
    )
