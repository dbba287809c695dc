"""Memory that can be had now."""

import os
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LIMIT, _IN_USE = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def free_bytes() -> int:
    """Memory that can be had now: of the machine, or of the container if that has less."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        lines = [line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")]
        found.append(1024 * int(lines[0].split()[1]))
    with suppress(OSError, ValueError):
        found.append(int(_LIMIT.read_text()) - int(_IN_USE.read_text()))
    return min(found, default=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
