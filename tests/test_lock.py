"""The lock file: what containers install is pinned, hashed, what pyproject.toml asks for, and of no machine of ours."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
LOCK = (ROOT / "deploy" / "requirements.txt").read_text(encoding="utf-8")
# Extras of the parties; torch, tables, clusters and tools for developers are not in it.
LOCKED = ("service", "flower", "postgres")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
SYSTEMS = {
    "linux x86_64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "linux aarch64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "macOS": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
}


def entries(text):
    """Requirements of a lock file, each with its hashes; comments are none."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [line.split() for line in joined.splitlines() if line.strip()]


def requirement(words):
    """What an entry pins, without its hashes."""
    return Requirement(" ".join(word for word in words if not word.startswith("--hash=")))


def asked_for(extras):
    """Direct dependencies of the package with these extras, and what builds it."""
    found = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    waiting = list(extras)
    while waiting:
        for text in EXTRAS[waiting.pop()]:
            each = Requirement(text)
            if canonicalize_name(each.name) == PROJECT["project"]["name"]:
                waiting += each.extras
            else:
                found.append(text)
    return [Requirement(text) for text in found]


def environment(python, system):
    names = {"os_name": "posix", "implementation_name": "cpython", "platform_python_implementation": "CPython"}
    versions = {"python_version": python, "python_full_version": f"{python}.5", "extra": ""}
    return names | versions | SYSTEMS[system]


PINNED = [requirement(words) for words in entries(LOCK)]


def test_every_line_has_one_version_and_hashes():
    assert len(PINNED) > 50
    for words in entries(LOCK):
        pinned = requirement(words)
        assert re.fullmatch(r"==[\w.!+]+", str(pinned.specifier)), words[0]
        assert pinned.url is None
        hashes = [word for word in words if word.startswith("--")]
        assert hashes, words[0]
        assert all(HASH.fullmatch(word) for word in hashes), words[0]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_that_is_asked_for_is_there_once_and_within_its_range(python, system):
    here = environment(python, system)
    pins = {}
    for pinned in PINNED:
        if pinned.marker is None or pinned.marker.evaluate(here):
            name = canonicalize_name(pinned.name)
            assert name not in pins
            (pins[name],) = [each.version for each in pinned.specifier]
    wanted = [each for each in asked_for(LOCKED) if each.marker is None or each.marker.evaluate(here)]
    assert {"hatchling", "numpy", "fastapi", "flwr", "psycopg"} <= {each.name for each in wanted}
    for each in wanted:
        assert each.specifier.contains(pins[canonicalize_name(each.name)]), f"{each}: make lock"
        # An extra of another package brings packages of its own.
        if each.name == "psycopg":
            assert "psycopg-binary" in pins


def test_it_names_no_machine():
    """Neither where an index is, nor a folder: versions and hashes alone."""
    assert re.findall(r"\w+://|--(?:index|extra|find|trusted)\S*|(?:^|[\s=])/\w+", LOCK) == []


def test_a_line_without_a_hash_would_be_found():
    words = entries("numpy==2.0 \\\n    --hash=sha256:" + 64 * "0" + "\n# a comment\nscipy==1.17\n")
    assert [len(each) for each in words] == [2, 1]
    assert [str(requirement(each)) for each in words] == ["numpy==2.0", "scipy==1.17"]


def test_the_command_that_renews_it_covers_what_is_said_here():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"\nLOCKED := {' '.join(LOCKED)}\n" in makefile
    assert "\nLOCK := deploy/requirements.txt\n" in makefile
