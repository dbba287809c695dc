import dataclasses
import gzip
import hashlib
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from apes.cli.main import app
from apes.data import download, load
from apes.data.catalogue import CATALOGUE, Collection, IdxFile
from apes.errors import DataError, ParameterError

# A real server on the loopback address.
pytestmark = pytest.mark.service
NAMES = [file.name for file in CATALOGUE["mnist"].files]


@pytest.fixture
def small(tmp_path, write_set, idx_bytes, monkeypatch):
    """Put a small set into ``tmp_path/web/good`` and, with given mirrors, in MNIST's place into the catalogue."""
    arrays = write_set(tmp_path / "web" / "good", NAMES)
    files = []
    for name, array in zip(NAMES, arrays, strict=True):
        content = idx_bytes(array)
        files.append(IdxFile(name, len(content), array.ndim, hashlib.sha256(content).hexdigest()))

    def place(*mirrors, files=tuple(files)):
        monkeypatch.setitem(CATALOGUE, "mnist", Collection("mnist", files, mirrors))
        return files

    return place


def _contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_downloads_a_set_that_can_be_loaded(tmp_path, serve, small):
    calls = []
    files = small(serve(tmp_path / "web") + "good/")
    folder = download("mnist", tmp_path / "c", progress=lambda *call: calls.append(call))
    assert folder == tmp_path / "c" / "data" / "mnist"
    assert {path.name for path in (tmp_path / "c" / "data").iterdir()} == {"mnist"}
    assert _contents(folder) == _contents(tmp_path / "web" / "good")
    assert len(load("mnist", cache=tmp_path / "c").train_labels) == 30
    total = sum(file.size for file in files)
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)


def test_files_packed_anew_or_not_at_all_pass(tmp_path, serve, small):
    for path in (tmp_path / "web" / "good").iterdir():
        content = gzip.decompress(path.read_bytes())
        # A server may unpack on the way: the content counts.
        path.write_bytes(content if "labels" in path.name else gzip.compress(content, 1))
    small(serve(tmp_path / "web") + "good/")
    folder = download("mnist", tmp_path / "c")
    assert {path.name for path in folder.iterdir()} == {f"{name}{'' if 'labels' in name else '.gz'}" for name in NAMES}


def test_md5_of_the_gzip_file(tmp_path, serve, small):
    packed = {path.name: path.read_bytes() for path in (tmp_path / "web" / "good").iterdir()}
    files = tuple(
        dataclasses.replace(file, sha256=None, gzip_md5=hashlib.md5(packed[f"{file.name}.gz"]).hexdigest())
        for file in small()
    )
    mirror = serve(tmp_path / "web") + "good/"
    small(mirror, files=files)
    download("mnist", tmp_path / "c")
    wrong = (*files[:3], dataclasses.replace(files[3], gzip_md5="0" * 32))
    small(mirror, files=wrong)
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.gz: it has the wrong checksum .* not 00000000"):
        download("mnist", tmp_path / "c")


def _spoil(web, kind):
    """Put a bad copy of the small set into ``web`` and return its folder's name."""
    folder = web / (kind if kind in ("cut", "length") else "bad")
    folder.mkdir()
    for path in (web / "good").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    last = folder / f"{NAMES[3]}.gz"
    if kind == "404":
        last.unlink()
    if kind == "checksum":
        last.write_bytes(gzip.compress(gzip.decompress(last.read_bytes())[:-1] + b"\x63"))
    if kind == "no gzip":
        last.write_bytes(last.read_bytes()[:-4])
    if kind == "long":
        last.write_bytes(bytes(2 << 20))
    return folder.name


BAD = {
    "404": r"t10k-labels-idx1-ubyte.gz: HTTP 404",
    "checksum": r"t10k-labels-idx1-ubyte.gz: it has the wrong checksum",
    "cut": r"train-images-idx3-ubyte.gz: the transfer broke off: IncompleteRead\(\d+ bytes read, \d+ more expected\)",
    "no gzip": "t10k-labels-idx1-ubyte.gz: it is truncated: its gzip stream has no end",
    "long": "sends more than",
    "length": "train-images-idx3-ubyte.gz: .*'unknown'",
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_download_leaves_everything_as_it_was(tmp_path, serve, small, kind, before):
    mirror = serve(tmp_path / "web") + _spoil(tmp_path / "web", kind) + "/"
    target = tmp_path / "c" / "data" / "mnist"
    if before:
        target.mkdir(parents=True)
        (target / NAMES[0]).write_bytes(b"what was there")
    small(mirror)
    with pytest.raises(DataError, match=BAD[kind]) as caught:
        download("mnist", tmp_path / "c")
    assert mirror in str(caught.value)
    assert str(caught.value).endswith("place the four files in DIR and pass --data-dir DIR")
    assert "\n" not in str(caught.value)
    expected = [target, target / NAMES[0]] if before else []
    assert sorted((tmp_path / "c" / "data").rglob("*")) == expected
    if before:
        assert (target / NAMES[0]).read_bytes() == b"what was there"


def test_the_next_mirror_brings_what_the_first_lacks(tmp_path, serve, small):
    base = serve(tmp_path / "web")
    bad = _spoil(tmp_path / "web", "404")
    for path in sorted((tmp_path / "web" / "good").iterdir())[1:]:
        if path.name != f"{NAMES[3]}.gz":
            path.unlink()  # so it must come from the first mirror
    small(f"{base}{bad}/", f"{base}good/")
    folder = download("mnist", tmp_path / "c")
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.gz" for name in NAMES)


def test_replaces_a_damaged_plain_file_by_the_new_packed_one(tmp_path, serve, small):
    target = tmp_path / "c" / "data" / "mnist"
    target.mkdir(parents=True)
    (target / NAMES[0]).write_bytes(b"damaged")
    small(serve(tmp_path / "web") + "good/")
    download("mnist", tmp_path / "c")
    assert len(load("mnist", cache=tmp_path / "c").train_labels) == 30


def test_every_attempt_is_listed(tmp_path, serve, small):
    base = serve(tmp_path / "web")
    small(f"{base}none/", "http://127.0.0.1:1/")
    try:
        raise ValueError("what the caller is busy with is not the cause")
    except ValueError:
        with pytest.raises(DataError) as caught:
            download("mnist", tmp_path / "c")
    causes = f"{base}none/: train-images-idx3-ubyte.gz: HTTP 404 File not found; "
    causes += "http://127.0.0.1:1/: train-images-idx3-ubyte.gz: Connection refused"
    place = "place the four files in DIR and pass --data-dir DIR"
    assert str(caught.value) == f"mnist could not be fetched ({causes}); {place}"


def test_a_cache_that_cannot_be_written(tmp_path, serve, small):
    (tmp_path / "file").write_bytes(b"")
    small(serve(tmp_path / "web") + "good/")
    with pytest.raises(DataError, match=r"cannot be written .*; set APES_CACHE"):
        download("mnist", tmp_path / "file")


@pytest.mark.unit
def test_parameters(tmp_path):
    with pytest.raises(ParameterError, match="name must be one of mnist, fashion-mnist, qmnist; got 'digits'"):
        download("digits", tmp_path)


def test_the_command(tmp_path, serve, small, monkeypatch):
    base = serve(tmp_path / "web")
    small(f"{base}good/")
    monkeypatch.setenv("APES_CACHE", str(tmp_path / "c"))
    folder = str(tmp_path / "c" / "data" / "mnist")
    done = CliRunner().invoke(app, ["data", "get", "mnist", "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"name": "mnist", "folder": folder})
    assert CliRunner().invoke(app, ["data", "get", "mnist"]).stdout == f"mnist is in {folder}\n"
    small(f"{base}none/")
    failed = CliRunner().invoke(app, ["data", "get", "mnist"])
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert failed.stderr.strip().startswith("apes: mnist could not be fetched (")


@pytest.mark.process
def test_the_package_starts_without_the_downloader():
    script = "import sys, apes; print(sorted({'requests'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"[]\n"


@pytest.mark.mnist
def test_the_published_checksums_are_those_of_mnist(mnist_dir, tmp_path, serve, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "mnist", dataclasses.replace(CATALOGUE["mnist"], mirrors=(serve(mnist_dir),)))
    folder = download("mnist", tmp_path)
    assert sum(1 for _ in folder.iterdir()) == 4
