"""Whether a worker has the code that this process has: other code may draw other bits."""

import hashlib
from functools import lru_cache
from pathlib import Path

from apes.errors import WorkersError
from apes.storage.version import __version__


def own_version() -> str:
    """The version of the package where this runs, and which code that is: installed from a folder, it may be any."""
    return f"{__version__} (code {_own_code()})"


def check_version(wanted: str) -> None:
    """Raise unless this is the version that the work was made for."""
    if wanted != (own := own_version()):
        raise WorkersError(f"every worker must have apes {wanted}, as this process has; got one with {own}")


@lru_cache(maxsize=1)
def _own_code() -> str:
    """Twelve digits of the SHA-256 of all files of the package, as they are when this is first asked."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]
