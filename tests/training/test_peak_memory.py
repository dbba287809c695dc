"""The largest memory of a process, as each kind of system tells it; other systems' answers are simulated."""

import ctypes
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from apes.training import peak_memory
from apes.training.peak_memory import peak_mb


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_grows_with_what_is_held():
    before = peak_mb()
    held = np.ones(40 * 2**20 // 8)
    assert 10 < before <= peak_mb() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    del held


def test_linux_counts_kilobytes(tmp_path, monkeypatch):
    status = tmp_path / "status"
    status.write_text("Name:\tapes\nVmHWM:\t  204800 kB\nVmRSS:\t 1 kB\n")
    monkeypatch.setattr(peak_memory, "_STATUS", status)
    assert peak_mb("linux") == 200
    status.write_text("Name:\tapes\n")
    assert peak_mb("linux") is None
    monkeypatch.setattr(peak_memory, "_STATUS", tmp_path / "nowhere")
    assert peak_mb("linux") is None


def test_macos_counts_bytes(monkeypatch):
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=200 * 2**20))
    monkeypatch.setitem(sys.modules, "resource", usage)
    assert peak_mb("darwin") == 200


@pytest.mark.parametrize(("answer", "expected"), [(1, 200), (0, None)], ids=["says", "refuses"])
def test_windows_is_asked_by_its_own_function(monkeypatch, answer, expected):
    class Kernel:
        """As much of kernel32 as is called, filling in the structure as Windows does."""

        class GetCurrentProcess:
            restype = None

            def __call__(self):
                return 2**64 - 1

        def __init__(self):
            self.GetCurrentProcess = Kernel.GetCurrentProcess()

        def K32GetProcessMemoryInfo(self, process, counters, size):  # noqa: N802 - Windows' name
            assert (process.value, size) == (2**64 - 1, 72)
            ctypes.cast(counters, ctypes.POINTER(ctypes.c_size_t))[1] = 200 * 2**20
            return answer

    monkeypatch.setattr(peak_memory, "_windows_kernel", Kernel)
    assert peak_mb("win32") == expected


def test_elsewhere_nothing_is_made_up():
    assert peak_mb("sunos5") is None
