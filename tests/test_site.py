"""The site: its reference has every public name, its tutorials every example, and what is broken fails the build."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import apes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md") if "_build" not in path.parts}
SPHINX = "sphinx is not installed: make test EXTRAS=docs"
MINIMAL = """
import sys
sys.path.insert(0, {extensions!r})
extensions = ["myst_parser", "executed", "links"]
"""


def test_the_reference_has_every_public_name_once():
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: apes\.(\w+)$", "".join(PAGES.values()), re.M)
    assert sorted(named) == sorted([*apes.__all__, *apes._WITH_TORCH])


def test_every_example_is_run_and_shown_on_a_page():
    text = "".join(PAGES.values())
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            assert f"{{literalinclude}} ../../examples/{path.name}" in text
            assert f"{{output}} {path.name}" in text or f"python examples/{path.name} " in text


def test_every_page_is_in_the_index():
    listed = set(re.findall(r"^(?:.+ <)?([\w/-]+)>?$", PAGES[DOCS / "index.md"], re.M))
    assert listed == {str(path.relative_to(DOCS).with_suffix("")) for path in PAGES} - {"index"}


@pytest.fixture
def extensions(monkeypatch):
    """Our Sphinx extensions, by name."""
    pytest.importorskip("sphinx", reason=SPHINX)
    monkeypatch.syspath_prepend(DOCS / "extensions")
    return importlib.import_module


def test_a_dead_link_is_found(extensions, tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">x</a><a href="#gone">x</a><a href="b.html#there">x</a><a href="c.html">x</a>'
        '<a href="https://example.org/">x</a><script src="https://example.org/a.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there"><a href="a.html">x</a><img src="data:image/png;base64,">')
    wrong, external, looked_at = extensions("links").check(tmp_path)
    assert [line.split(": ", 1)[1] for line in wrong] == [
        "#gone: the page has no such place",
        "c.html: there is no such file",
        "is made of https://example.org/a.js, which is elsewhere",
    ]
    assert external == {"https://example.org/", "https://example.org/a.js"}
    assert looked_at == 8


def test_commands_are_described_by_what_they_say_themselves(extensions):
    made = extensions("command_line")
    found = {
        name: made.section(name, command)
        for group in ("top", "federation", "data")
        for name, command in made.commands(group)
    }
    assert {"apes train", "apes account", "apes federation join", "apes data get"} <= set(found)
    assert "`--target-epsilon TEXT`" in found["apes train"]
    assert all(text.startswith(f"## `{name}`") and "--help" in text for name, text in found.items())


def test_arrays_are_named_by_their_numbers(extensions):
    long = "(x: ~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]], *, y: int = 3)"
    assert extensions("docstrings").readable(long) == "(x: NDArray[float64], *, y: int = 3)"
    assert extensions("docstrings").readable(None) is None


def build(folder, page):
    (folder / "conf.py").write_text(MINIMAL.format(extensions=str(DOCS / "extensions")))
    (folder / "index.md").write_text(page)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", folder, folder / "_build/html"]
    done = subprocess.run(command, capture_output=True, text=True)
    html = folder / "_build" / "html" / "index.html"
    return done, html.read_text(encoding="utf-8") if html.exists() else ""


@pytest.mark.process
def test_what_a_command_printed_is_on_the_page(extensions, tmp_path):
    """Also that a package is missing which a command needs."""
    page = "# A\n\n```{shell}\necho $((6 * 7)) > left\ncat left\n```\n"
    done, html = build(tmp_path, page + "\n```{shell}\n:needs: no_such_package\nfalse\n```\n")
    assert done.returncode == 0, done.stderr
    assert "<pre>42" in html.replace("<span></span>", "")
    assert "no_such_package was not installed" in html


@pytest.mark.process
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("# A\n\n```{shell}\nexit 3\n```\n", ["exit code 3"]),
        (
            "# A\n\n[b](gone.md)\n\n[b](#gone)\n\n```{picture} none.png\n:alt: none\n```\n",
            ["gone.md", "'gone'", "no picture none.png"],
        ),
        ('# A\n\n<a href="gone.html">x</a>\n', ["there is no such file"]),
    ],
)
def test_what_is_broken_fails_the_build(extensions, tmp_path, page, said):
    done, _ = build(tmp_path, page)
    assert done.returncode != 0
    for words in said:
        assert words in done.stderr
