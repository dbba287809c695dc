"""People who travel to workers, and leave marks in a folder: of when they were sent, and of workers who died."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import apes


def mark(folder: str, name: str) -> None:
    with open(Path(folder) / name, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def marks(folder: Path, name: str) -> list[int]:
    """Processes that left this mark, once per time."""
    path = folder / name
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []


@dataclass
class Bag:
    """A part of people that notes when it is packed and unpacked; takes its worker along, or fails, when told to."""

    people: apes.Population
    folder: str
    name: str
    home: int

    @property
    def budgets(self):
        return self.people.budgets

    @property
    def digest(self):
        return self.people.digest

    def block(self, start, stop):
        if os.getpid() != self.home:
            try:
                # Whoever takes the order away is the one it was for.
                os.remove(Path(self.folder) / "die")
            except FileNotFoundError:
                pass
            else:
                mark(self.folder, "died")
                os.kill(os.getpid(), signal.SIGKILL)
            if (Path(self.folder) / "all die").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            if (Path(self.folder) / "fail").exists():
                raise ZeroDivisionError("a bad day")
        return self.people.block(start, stop)

    def __getstate__(self):
        mark(self.folder, f"packed {self.name}")
        return vars(self)

    def __setstate__(self, state):
        self.__dict__.update(state)
        mark(self.folder, f"unpacked {self.name}")


@dataclass
class Travellers(Bag):
    """All of them: with parts, or as one."""

    has_parts: bool = True

    def __getattr__(self, name):
        # Not there unless there are parts.
        if name == "part" and self.__dict__.get("has_parts"):
            return self._part
        raise AttributeError(name)

    def _part(self, start, stop):
        return Bag(self.people.part(start, stop), self.folder, f"{start}-{stop}", self.home)

    @classmethod
    def of(cls, people, folder, has_parts=True):
        return cls(people, str(folder), "all", os.getpid(), has_parts)
