"""Whether a worker has the code that this process has, and runs it the same way: other code may draw other bits.

Loops are compiled for the machine, and sum in the order that suits its vector unit. Where machines differ, a last place
of an update may, and a report with it.
"""

import hashlib
import importlib.metadata
from functools import lru_cache
from pathlib import Path

from apes.errors import WorkersError
from apes.mathematics.compiled import processor
from apes.storage.version import __version__


def own_version() -> str:
    """The version of the package where this runs, which code that is, and what it is run by."""
    return f"{__version__} (code {_own_code()}, {_run_by()})"


def check_version(wanted: str) -> None:
    """Raise unless this is the version that the work was made for."""
    if wanted != (own := own_version()):
        raise WorkersError(refusal(wanted, own))


def refusal(wanted: str, own: str) -> str:
    """What is said of a worker who has another version, and what to do."""
    said = f"every worker must have apes {wanted}, as this process has; got one with {own}"
    if wanted.split(",")[:-1] == own.split(",")[:-1]:
        said += "; for machines of different kinds set NUMBA_CPU_NAME=generic on all of them, here too"
    return said


@lru_cache(maxsize=1)
def _run_by() -> str:
    """Libraries that round, and what loops are compiled for: the processor's name and six digits of its features."""
    target = processor()
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "numba")]
    return f"{', '.join(libraries)}, {target.split()[1]} {hashlib.sha256(target.encode()).hexdigest()[:6]}"


@lru_cache(maxsize=1)
def _own_code() -> str:
    """Twelve digits of the SHA-256 of all files of the package, as they are when this is first asked."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]
