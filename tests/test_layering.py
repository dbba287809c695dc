"""The house: which rooms there are, and which may look into which."""

import ast
from pathlib import Path

import apes

SOURCE = Path(apes.__file__).parent
FOUNDATION = {"errors", "checks", "mathematics", "defaults"}
# What a user's side stands on, and what all parties exchange.
PEOPLE = {"budgets", "data", "population", "people", "partitions", "models", "features"}
PARTIES = {"client", "shuffler", "analyzer"}
ZONES = FOUNDATION | PEOPLE | PARTIES | {"messages", "accounting"}
TRAINING = ZONES | {"terms", "training", "storage"}
# Every room, and which others it may import; a module belongs to the longest name that it begins with.
ROOMS = {
    "errors": set(),
    "defaults": set(),
    "checks": {"errors"},
    "mathematics": {"errors", "checks"},
    "messages": set(),
    "storage": {"errors", "checks"},
    "budgets": FOUNDATION,
    "data": FOUNDATION | {"storage"},
    "population": FOUNDATION | {"data"},
    "people": FOUNDATION | {"budgets", "data", "population"},
    "partitions": FOUNDATION | {"budgets", "data", "population", "people"},
    "torch_modules": FOUNDATION,
    "models": FOUNDATION | {"data", "population", "torch_modules"},
    "features": FOUNDATION | {"data", "population", "torch_modules"},
    "client": FOUNDATION | {"messages", "population", "models", "client.draws"},
    # Compiled loops: they see arrays, never a user's block.
    "client.draws": FOUNDATION | {"client"},
    "shuffler": FOUNDATION | {"messages"},
    "analyzer": FOUNDATION | {"messages"},
    "accounting": FOUNDATION,
    "wire": FOUNDATION | {"messages"},
    # The shuffler as a service has a gate of its own; what shuffles knows nothing of it.
    "shuffler.service": FOUNDATION | {"messages", "storage", "wire", "shuffler", "accounting"},
    "terms": ZONES,
    # Sees budgets and terms, trains nothing, and is told no data.
    "advice": ZONES | {"terms", "storage"},
    "training": TRAINING,
    "report": TRAINING,
    "audit": TRAINING,
    "paper": TRAINING,
    "federation": TRAINING | {"wire", "shuffler.service", "report"},
    # What somebody asks on a page: budgets and sizes, no data.
    "page": FOUNDATION | {"budgets", "accounting", "terms", "advice"},
    "cli": TRAINING | {"wire", "shuffler.service", "audit", "paper", "federation", "advice", "page", "report"},
    "__main__": {"cli"},
    # The package itself: what it offers to others.
    "": TRAINING,
}
MOST_AT_THE_ROOT = 10


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(source, name, is_package, known=frozenset(MODULES)):
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


def room(module):
    """The room of a module: ``client.draws`` for apes.client.draws.coded, ``errors`` for apes.errors; None without."""
    inside = module.split(".")[1:]
    names = (".".join(inside[:length]) for length in range(len(inside), -1, -1))
    return next((name for name in names if name in ROOMS and (name or not inside)), None)


def violations(module, imports):
    """The imports of a module that go against the arrows."""
    own = room(module)
    return {name for name in imports if room(name) != own and room(name) not in ROOMS[own]}


def test_imports_follow_the_arrows():
    found = {}
    for module, path in MODULES.items():
        imports = imported(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
        if against := violations(module, imports):
            found[module] = against
    assert found == {}


def test_every_module_is_in_a_room_and_every_room_is_there():
    assert {room(module) for module in MODULES} == set(ROOMS)


def test_no_arrow_leads_back():
    """Rooms can be put in an order in which each imports earlier ones alone; a room and its inner one count as one."""
    arrows = {}
    for name, others in ROOMS.items():
        outer = name.split(".")[0]
        arrows.setdefault(outer, set()).update({other.split(".")[0] for other in others} - {outer})
    done = set()
    while ready := {name for name, others in arrows.items() if name not in done and others <= done}:
        done |= ready
    assert done == set(arrows)


def test_few_files_lie_in_the_hall():
    assert len([entry for entry in SOURCE.iterdir() if entry.is_file()]) <= MOST_AT_THE_ROOT


FORBIDDEN = [
    ("apes.client.randomizer", "from apes.shuffler.shuffle import Permuter"),
    ("apes.client.randomizer", "import apes.analyzer.expected"),
    ("apes.client.draws.coded", "def f():\n    from ...analyzer import expected"),
    ("apes.client.draws.coded", "from apes.population import UserBlock"),
    ("apes.client.client", "from ..training import train"),
    ("apes.client.client", "from apes import Plan"),
    ("apes.client.client", "from apes.accounting.exposure import Exposure"),
    ("apes.shuffler.tally", "from apes import client"),
    ("apes.shuffler.tally", "from apes.accounting.exposure import Exposure"),
    ("apes.shuffler.tally", "from apes.shuffler.service.gate import Gate"),
    ("apes.shuffler.tally", "from apes.population import UserBlock"),
    ("apes.shuffler.service.gate", "from apes.models.model import Model"),
    ("apes.shuffler.service.gate", "from apes.terms.terms import Terms"),
    ("apes.analyzer.expected", "from apes.client import randomizer as r"),
    ("apes.analyzer.expected", "import numpy, apes.shuffler"),
    ("apes.analyzer.expected", "from apes.terms.plan import Plan"),
    ("apes.analyzer.optimizer", "from apes.population import Examples"),
    ("apes.accounting.exposure", "from apes.messages import Report"),
    ("apes.accounting.exposure", "from apes.population import UserBlock"),
    ("apes.accounting.exposure", "from apes.budgets import make_budgets"),
    ("apes.accounting.exposure", "from apes.models.model import Model"),
    ("apes.accounting.certificate.curve", "from apes.data import load"),
    ("apes.mathematics.laws", "from apes.accounting.exposure import Exposure"),
    ("apes.mathematics.laws", "from apes.messages import Report"),
    ("apes.errors", "from .client import client"),
    ("apes.checks", "from apes.mathematics import laws"),
    ("apes.messages", "import apes.cli.main"),
    ("apes.storage.files", "from apes.data import load"),
    ("apes.population", "import apes"),
    ("apes.population", "from apes.people.people import People"),
    ("apes.models.logistic", "from apes.people.people import People"),
    ("apes.budgets", "from apes.models.model import Model"),
    ("apes.models.logistic", "from apes.client.clip import clipped"),
    ("apes.features.feature_map", "from apes.client.client import Client"),
    ("apes.wire.envelope", "from apes.shuffler.shuffle import Permuter"),
    ("apes.terms.plan", "from apes.training.train import train"),
    ("apes.terms.plan", "from apes.storage.files import write_whole"),
    ("apes.terms.plan", "from apes.paper import table3"),
    ("apes.training.train", "from apes.federation.parties import invite"),
    ("apes.training.run_folder", "from apes.cli.main import main"),
    ("apes.training.run_folder", "from apes.wire.frames import frames"),
    ("apes.audit.audit", "from apes.federation.relay import Relay"),
    ("apes.advice.advise", "from apes.training.train import train"),
    ("apes.training.train", "from apes.advice.advise import advise"),
    ("apes.paper.parts", "from apes.audit.audit import audit"),
    ("apes.federation.relay", "from apes.paper import table3"),
    ("apes.federation.relay", "from apes.cli.shared import Json"),
    ("apes.page.answers", "from apes.data import load"),
    ("apes.page.server", "from apes.cli.shared import Json"),
    ("apes.cli.main", "import apes"),
    ("apes", "from apes.cli.main import main"),
    ("apes", "from apes.federation.parties import invite"),
    ("apes.errors", "import apes.cellar.wine"),
]


def test_forbidden_imports_are_seen():
    overlooked = [
        (module, source)
        for module, source in FORBIDDEN
        if not violations(module, imported(source, module, module == "apes"))
    ]
    assert overlooked == []


PERMITTED = [
    ("apes.client.client", "import numpy\nfrom apes.population import UserBlock\nfrom .randomizer import Place"),
    ("apes.client.client", "from apes.models.model import Model\nfrom apes.client.draws.coded import draw_codes"),
    ("apes.client.draws.coded", "from apes.client.clip import clipped\nfrom apes.mathematics import randomness"),
    ("apes.analyzer.expected", "from apes.mathematics.laws import ClipLaplace\nfrom apes import messages"),
    (
        "apes.accounting.certificate.curve",
        "from apes.mathematics.thresholds import MAX_LEVELS\nfrom ..exposure import Exposure",
    ),
    ("apes.shuffler.service.gate", "from apes.accounting.accountant import Accountant\nfrom ..shuffle import Adder"),
    ("apes.terms.plan", "from apes.models.model import Model\nfrom apes.accounting.exposure import Exposure"),
    ("apes.training.train", "from apes.terms.plan import Plan\nfrom apes.shuffler import shuffle"),
    ("apes.training.run_folder", "from apes.training.train import train\nfrom apes.storage import files"),
    ("apes.federation.relay", "from apes.wire.frames import frames\nfrom apes.training.run import Run"),
    ("apes.cli.main", "from apes.training.run_folder import RunFolder\nfrom apes.audit.audit import audit"),
    ("apes.__main__", "from apes.cli.main import main"),
    ("apes", "from apes.terms.plan import Plan\nfrom apes.training.train import train"),
]


def test_permitted_imports_are_not_reported():
    reported = [
        (module, source)
        for module, source in PERMITTED
        if violations(module, imported(source, module, module == "apes"))
    ]
    assert reported == []
