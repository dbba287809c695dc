"""Real idx files, a real HTTP server and the embedded digits for the tests of the data package."""

import gzip
import http.server
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from apes.data.digits import load_digits

IDX_TYPES = {"uint8": 0x08, "int32": 0x0C}


def _idx_bytes(array):
    header = bytes([0, 0, IDX_TYPES[array.dtype.name], array.ndim])
    return header + np.array(array.shape, ">u4").tobytes() + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def idx_bytes():
    """Encode an array as the content of an idx file."""
    return _idx_bytes


@pytest.fixture
def write_set():
    """Write a small set of 30 + 20 images under given file names and return its four arrays."""

    def write(folder, names, *, packed=True, rows=False):
        rng = np.random.Generator(np.random.Philox(5))
        arrays = []
        for num in (30, 20):
            arrays.append(rng.integers(0, 256, (num, 28, 28), dtype=np.uint8))
            labels = rng.integers(0, 10, num)
            arrays.append(
                np.column_stack([labels, *[np.full(num, 77)] * 7]).astype(np.int32) if rows else labels.astype(np.uint8)
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in zip(names, arrays, strict=True):
            content = _idx_bytes(array)
            (folder / f"{name}.gz" if packed else folder / name).write_bytes(
                gzip.compress(content) if packed else content
            )
        return arrays

    return write


@pytest.fixture(scope="session")
def digits_cache(tmp_path_factory):
    """A cache folder with the embedded digits at full size."""
    cache = tmp_path_factory.mktemp("digits-cache")
    load_digits(cache)
    return cache


@pytest.fixture(scope="session")
def mnist_dir():
    """The folder with MNIST's four files, or a skip."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist"
    folder = Path(os.environ.get("APES_MNIST_DIR") or beside)
    if not folder.is_dir():
        pytest.skip(f"no MNIST files: {folder} is not a folder (set APES_MNIST_DIR)")
    return folder


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; files in a folder ``cut`` break off in the middle, those in ``length`` tell no length."""

    def send_header(self, keyword, value):
        is_odd = keyword == "Content-Length" and Path(self.path).parent.name == "length"
        super().send_header(keyword, "unknown" if is_odd else value)

    def copyfile(self, source, outputfile):
        content = source.read()
        if Path(self.path).parent.name == "cut":
            content = content[: len(content) // 2]
        outputfile.write(content)

    def log_message(self, *args):
        """Keep the test output clean."""


@pytest.fixture
def serve(monkeypatch):
    """Start an HTTP server on a folder and return its base address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = []

    def start(folder):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: _Handler(*args, directory=str(folder)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()
