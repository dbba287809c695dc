"""What the documents name is there: tests, files, and what they are said to hold."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)]
TESTS = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
FOLDERS = (ROOT / "src" / "apes", ROOT / "benchmarks", ROOT / "examples")
SOURCES = {path: path.read_text(encoding="utf-8") for folder in FOLDERS for path in folder.rglob("*.py")}
QUOTED = re.compile(r"`([^`\n]+)`")


def missing(text):
    """Names in backticks that stand for a test, or for a file of ours with what is in it, and are not there."""
    found = []
    for name in QUOTED.findall(text):
        if re.fullmatch(r"test_\w+|Test[A-Z]\w+", name):
            if not any(re.search(rf"^\s*(async def|def|class) {name}\b", source, re.M) for source in TESTS.values()):
                found.append(name)
        elif file := re.fullmatch(r"([\w/]+\.py)(?::([\w.]+))?", name):
            places = [*SOURCES.items(), *TESTS.items()]
            texts = [source for path, source in places if f"/{path.relative_to(ROOT)}".endswith(f"/{file[1]}")]
            inner = (file[2] or "").split(".")[-1]
            if not any(re.search(rf"^\s*(async def|def|class) {inner}\b|^{inner}\b", source, re.M) for source in texts):
                found.append(name)
    return found


@pytest.mark.service
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_is_named_is_there(path):
    assert missing(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "name",
    ["test_no_such_test", "TestNothing", "test_nowhere.py", "accounting/nothing.py", "accounting/exposure.py:Nothing"],
)
def test_what_is_missing_is_seen(name):
    assert missing(f"as `{name}` shows") == [name]
