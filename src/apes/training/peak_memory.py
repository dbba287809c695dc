"""The largest memory that this process has had so far, on each kind of system as that one tells it."""

import ctypes
import importlib
import sys
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_MB = 2.0**20


def peak_mb(platform: str = sys.platform) -> float | None:
    """Largest resident memory so far, in MB; None where the system does not say."""
    found = {"linux": _linux, "darwin": _darwin, "win32": _windows}.get(platform, _nobody)()
    return None if found is None else found / _MB


def _linux() -> float | None:
    """In bytes: by the kernel's own count; that of `getrusage` begins with what the parent had."""
    try:
        lines = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    except OSError:
        return None
    return 1024.0 * int(lines[0].split()[1]) if lines else None


def _darwin() -> float | None:
    """In bytes, as macOS has it; elsewhere `getrusage` counts in KB."""
    return float(_module("resource").getrusage(_module("resource").RUSAGE_SELF).ru_maxrss)


class _Counters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of Windows."""

    _fields_ = [
        ("cb", ctypes.c_uint32),
        ("PageFaultCount", ctypes.c_uint32),
        ("PeakWorkingSetSize", ctypes.c_size_t),
        ("WorkingSetSize", ctypes.c_size_t),
        ("QuotaPeakPagedPoolUsage", ctypes.c_size_t),
        ("QuotaPagedPoolUsage", ctypes.c_size_t),
        ("QuotaPeakNonPagedPoolUsage", ctypes.c_size_t),
        ("QuotaNonPagedPoolUsage", ctypes.c_size_t),
        ("PagefileUsage", ctypes.c_size_t),
        ("PeakPagefileUsage", ctypes.c_size_t),
    ]


def _windows() -> float | None:
    """In bytes, by `K32GetProcessMemoryInfo`; None if it refuses."""
    counters = _Counters(cb=ctypes.sizeof(_Counters))
    kernel = _windows_kernel()
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    if not kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.cb):
        return None
    return float(counters.PeakWorkingSetSize)


def _windows_kernel() -> Any:
    """Windows' own functions; there is no such attribute elsewhere."""
    return vars(ctypes)["windll"].kernel32


def _nobody() -> float | None:
    return None


def _module(name: str) -> Any:
    """A module that not every system has: imported when it is asked."""
    return importlib.import_module(name)
