"""All seeded faults, from the files of their areas."""

from importlib import import_module
from pathlib import Path

from tests.faults.fault import Fault


def areas() -> list[str]:
    """The areas that have a file of faults: ``accounting`` for area_accounting.py."""
    return sorted(path.stem.removeprefix("area_") for path in Path(__file__).parent.glob("area_*.py"))


def all_faults(area: str | None = None) -> tuple[Fault, ...]:
    """Every fault of an area, or of all."""
    names = areas() if area is None else [area]
    return tuple(fault for name in names for fault in import_module(f"tests.faults.area_{name}").FAULTS)
