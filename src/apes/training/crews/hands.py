"""Hands: workers who each have their own users, and whose calls are given to others when they die."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from apes.errors import WorkersError
from apes.shuffler.parts import Part
from apes.training.crews.crew import Facts
from apes.training.crews.kept import Call, Kept

# A worker may die of bad luck; those who take its place all dying as well means that something is wrong with the work.
_MOST_TRIES = 4


class HandLost(Exception):  # noqa: N818 - caught here
    """A worker died."""


class Hand(Protocol):
    """One worker."""

    def do(self, call: Call) -> Any:
        """Do a call, and wait for it; returns a part, or what stands for it. Raises HandLost if the worker dies."""

    def end(self) -> None:
        """End it, also in the middle of a call."""


class Hall(Protocol):
    """Where workers come from, and what they share."""

    way: str

    def hire(self, count: int) -> list[Any]:
        """So many new workers, or as many as there are to be had."""

    def send(self, slot: str, value: object) -> Any:
        """Put a value where workers can get it; returns what gets it."""

    def add(self, parts: list[Any], hands: list[Any]) -> Part:
        """All parts as one; raises HandLost if some are lost."""

    def close(self) -> None:
        """Take everything down; workers are ended before."""


class Hands:
    """So many workers from a hall; the same users go to the same worker in every round."""

    def __init__(self, hall: Hall, count: int) -> None:
        self._hall, self._run, self._wanted, self._lost = hall, uuid.uuid4().hex, count, 0
        self._versions: dict[str, int] = {}
        self._hands: list[Hand | None] = []
        try:
            self._hands += hall.hire(count)
        except BaseException:
            hall.close()
            raise

    @property
    def facts(self) -> Facts:
        """How many there are, and how many died."""
        return Facts(self._hall.way, len(self._living()), self._lost)

    @property
    def shares(self) -> int:
        """One per worker."""
        return max(len(self._hands), 1)

    def keep(self, slot: str, value: object, share: int | None = None) -> Kept:
        """Put a value where workers can get it, in place of the slot's earlier one."""
        slot = slot if share is None else f"{slot} {share}"
        self._versions[slot] = self._versions.get(slot, 0) + 1
        return Kept(self._run, slot, self._versions[slot], self._hall.send(slot, value))

    def run(self, calls: list[tuple[Any, ...]]) -> Part:
        """Do the calls and add up what they bring; what is lost with a worker is done again."""
        done: dict[int, Any] = {}
        for _ in range(_MOST_TRIES):
            self._replace()
            self._try(calls, done)
            if len(done) == len(calls):
                try:
                    return self._hall.add([done[place] for place in range(len(calls))], self._living())
                except HandLost:
                    # What was there may have been on the machine that went.
                    done.clear()
        raise WorkersError(
            f"workers died {_MOST_TRIES} times over the same users ({self._lost} in all): is there enough memory? "
            "Fewer workers need less; nothing of this round was released"
        )

    def close(self) -> None:
        """End all workers, and what they share."""
        self._dismiss()
        self._hall.close()

    def _dismiss(self) -> None:
        for place, hand in enumerate(self._hands):
            if hand is not None:
                self._hands[place] = None
                hand.end()

    def _living(self) -> list[Hand]:
        return [hand for hand in self._hands if hand is not None]

    def _replace(self) -> None:
        """Hire new workers for those who died."""
        places = [place for place, hand in enumerate(self._hands) if hand is None]
        if places:
            for place, hand in zip(places, self._hall.hire(len(places)), strict=False):
                self._hands[place] = hand
        if not self._living():
            raise WorkersError(f"no worker is left, and no other is to be had; {self._lost} died")

    def _try(self, calls: list[tuple[Any, ...]], done: dict[int, Any]) -> None:
        """Do what is not done yet, each worker its own calls; those without one go to the others."""
        lists: dict[int, list[int]] = {place: [] for place, hand in enumerate(self._hands) if hand is not None}
        places = list(lists)
        for number in range(len(calls)):
            if number not in done:
                own = number % len(self._hands)
                lists[own if own in lists else places[number % len(places)]].append(number)
        # A thread per worker, to wait for it.
        with ThreadPoolExecutor(len(places)) as pool:
            futures = [pool.submit(self._serve, place, numbers, calls, done) for place, numbers in lists.items()]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                # Whoever interrupts does not wait for what is under way; for the next round there are new ones.
                self._dismiss()
                raise

    def _serve(self, place: int, numbers: list[int], calls: list[tuple[Any, ...]], done: dict[int, Any]) -> None:
        """Let one worker do some calls, until it dies."""
        hand = self._hands[place]
        for number in numbers:
            if hand is None:
                return
            try:
                done[number] = hand.do(calls[number])
            except HandLost:
                # Else it was dismissed, and is nobody who died.
                if self._hands[place] is hand:
                    self._hands[place], self._lost = None, self._lost + 1
                    hand.end()
                return
