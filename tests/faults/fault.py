"""A seeded fault: one wrong change of one source file, and the tests that have to notice it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEVELS = ("unit", "service", "process")


class StaleFaultError(Exception):
    """The text that a fault replaces is no longer in its file, or is there more than once."""


@dataclass(frozen=True)
class Fault:
    """A text of a source file, the text to put in its place, and the tests that have to fail then.

    Attributes:
        name: What identifies the fault on the command line, in lower case with hyphens.
        consequence: What goes wrong for a user or an operator.
        file: The file, relative to the root of the checkout.
        before: A text that occurs exactly once in the file.
        after: What stands there instead.
        caught_by: Tests that have to fail, as node ids or files; each begins with ``tests/``.
        level: The level of those tests, the cheapest at which the fault is noticed: ``unit``, ``service`` or
            ``process``.
    """

    name: str
    consequence: str
    file: str
    before: str
    after: str
    caught_by: tuple[str, ...]
    level: str = "unit"

    @property
    def package(self) -> str:
        """The package whose source is changed: ``accounting`` for src/apes/accounting/roster.py."""
        return Path(self.file).parts[2].removesuffix(".py")

    def apply(self, root: Path) -> None:
        """Change the file in a copy of the checkout; StaleFaultError if the text is not there exactly once."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.before) != 1:
            count = text.count(self.before)
            raise StaleFaultError(f"{self.name}: the text to replace occurs {count} times in {self.file}, not once")
        path.write_text(text.replace(self.before, self.after), encoding="utf-8")
