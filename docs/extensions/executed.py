"""Examples and commands that are run while the site is built: a page shows what was run and what it printed.

``{output} own_table.py`` runs a file of ``examples/``; ``{shell}`` runs its lines, one after the other; ``{picture}
FILE`` shows a picture that they left. All of a page is run in one folder, made for it and removed again. What fails is
a warning, which fails the build. Whoever writes a page may leave it all out: ``make docs ARGS="-D executed_run=0"``.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
LONGEST = 600.0
"""Seconds after which something that runs is given up."""
WIDEST = 90
"""Characters of a line that a page has room for."""
WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}

logger = logging.getLogger(__name__)


class Workshop:
    """Where pages are run: a folder for each, and how long everything took."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.ran: list[tuple[str, float]] = []

    def folder(self, page: str) -> Path:
        """The page's folder, with ``examples`` in it."""
        if page not in self.folders:
            # In the system's own place for such things: sockets want short paths.
            self.folders[page] = Path(tempfile.mkdtemp(prefix="apes-page-"))
            (self.folders[page] / "examples").symlink_to(ROOT / "examples")
        return self.folders[page]

    def run(self, page: str, name: str, command: list[str]) -> tuple[int, str]:
        """Run a command in the page's folder: exit code, and what it printed, as on a terminal of 80 columns."""
        folder = self.folder(page)
        bin_folder, path = Path(sys.executable).parent, os.environ.get("PATH", "")
        plain = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1", "MPLBACKEND": "agg"}
        environment = os.environ | plain | {"PATH": f"{bin_folder}{os.pathsep}{path}"}
        how: dict[str, Any] = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, "timeout": LONGEST}
        began = time.perf_counter()
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
            code, printed = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            code, printed = -1, f"not over after {LONGEST:.0f} s"
        self.ran.append((name, time.perf_counter() - began))
        logger.info("ran %s in %.1f s", name, self.ran[-1][1])
        return code, _readable(printed, folder)

    def clean(self) -> None:
        """Remove the folders."""
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        self.folders.clear()


def _readable(printed: str, folder: Path) -> str:
    """Without colours and the names of folders that nobody will find; sentences that are too long go on below."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed).replace(f"{folder}/", "").replace(str(folder), ".")
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    parts = (part for line in lines for part in textwrap.wrap(line, WIDEST, **WHOLE_WORDS) or [line])
    return "\n".join(parts).strip("\n")


class _Runs(SphinxDirective):
    """What both directives share."""

    option_spec: ClassVar[dict[str, Any]] = {"needs": directives.unchanged, "last": directives.nonnegative_int}

    def missing(self) -> list[nodes.Node] | None:
        """A note in place of what is not run here, as a package is missing; None if all is there."""
        if not self.env.config.executed_run:
            return [nodes.note("", nodes.paragraph("", "Not run when this page was built, on purpose."))]
        absent = [name for name in self.options.get("needs", "").split() if importlib.util.find_spec(name) is None]
        if not absent:
            return None
        logger.info("not run, without %s: %s", ", ".join(absent), self.env.docname)
        said = f"Not run when this page was built: {', '.join(absent)} was not installed."
        return [nodes.note("", nodes.paragraph("", said))]

    def printed(self, name: str, command: list[str]) -> str:
        """Run, and return what was printed; all of it, or the last lines."""
        code, text = self.env.app.apes_workshop.run(self.env.docname, name, command)
        if code != 0:
            logger.warning("%s ended with exit code %d:\n%s", name, code, text, location=self.get_location())
        lines = text.split("\n")
        last = self.options.get("last", len(lines))
        return "\n".join(lines if last >= len(lines) else ["...", *lines[-last:]])


def _block(text: str, language: str, *classes: str) -> nodes.Element:
    return nodes.literal_block(text, text, language=language, classes=list(classes))


class Output(_Runs):
    """Run a file of ``examples/`` and show what it printed."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The output, or a note where a package is missing."""
        path = ROOT / "examples" / self.arguments[0]
        self.env.note_dependency(str(path))
        if (note := self.missing()) is not None:
            return note
        shell = ["sh", "-e"] if path.suffix == ".sh" else [sys.executable]
        return [_block(self.printed(f"examples/{path.name}", [*shell, str(path)]), "text", "printed")]


class Shell(_Runs):
    """Run commands, line by line, and show each with what it printed."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """A block per command, and one per output; of a command that prints nothing, the command alone."""
        if (note := self.missing()) is not None:
            return [_block("\n".join(self.content), "console"), *note]
        shown: list[nodes.Node] = []
        # A command ends with the first line that has no backslash at its end.
        for command in re.split(r"(?<!\\)\n", "\n".join(self.content)):
            shown.append(_block(f"$ {command}", "console"))
            if printed := self.printed(" ".join(command.replace("\\\n", "").split()), ["sh", "-ec", command]):
                shown.append(_block(printed, "text", "printed"))
        return shown


class Picture(SphinxDirective):
    """Show a picture that something on the page left in its folder."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """The picture, copied to where the builder finds it."""
        source = self.env.app.apes_workshop.folder(self.env.docname) / self.arguments[0]
        name = f"{self.env.docname}-{self.arguments[0]}".replace("/", "-")
        kept = Path(self.env.srcdir) / "_build" / "pictures" / name
        if not self.env.config.executed_run:
            return []
        if not source.exists():
            logger.warning("no picture %s was made", self.arguments[0], location=self.get_location())
            return []
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, kept)
        return [nodes.image(uri=f"/_build/pictures/{name}", alt=self.options["alt"])]


def _forget(app: Sphinx, env: object, page: str) -> None:
    """A page that is read again begins with an empty folder."""
    if (folder := app.apes_workshop.folders.pop(page, None)) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _finish(app: Sphinx, error: Exception | None) -> None:
    workshop = app.apes_workshop
    workshop.clean()
    examples = sum(name.startswith("examples/") for name, _ in workshop.ran)
    seconds = sum(took for _, took in workshop.ran)
    logger.info("ran %d examples and %d commands in %.0f s", examples, len(workshop.ran) - examples, seconds)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx. Pages are read one after the other: what runs on them uses all cores."""
    app.apes_workshop = Workshop()
    app.add_config_value("executed_code", "", "env")
    app.add_config_value("executed_run", True, "env")
    for name, directive in {"output": Output, "shell": Shell, "picture": Picture}.items():
        app.add_directive(name, directive)
    app.connect("env-purge-doc", _forget)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
