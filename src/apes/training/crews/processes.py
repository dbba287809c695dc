"""Processes of this machine, started for a run and ended with it."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from apes.errors import ParameterError, WorkersError
from apes.shuffler.parts import Part
from apes.training.crews.crew import in_tree
from apes.training.crews.files import Files, FromFile
from apes.training.crews.hands import HandLost
from apes.training.crews.kept import Call, Failed, attempt
from apes.training.free_memory import free_bytes

# Memory of its own that a process has once it has started.
_LEAST_BYTES = 64 << 20
# Seconds in which a process has to start: it imports the package, and perhaps torch.
_START = 120.0


class Processes:
    """A hall of processes: values go through files that all of them map into memory."""

    way = "processes"

    def __init__(self) -> None:
        self._files = Files()

    def hire(self, count: int) -> list["ProcessHand"]:
        """Start so many, side by side, and wait for them; none if they would not fit into memory."""
        if count * _LEAST_BYTES > (free := free_bytes()):
            takes = f"they take about {count * _LEAST_BYTES / 2**30:.3g} GB to start, {free / 2**30:.3g} GB are free"
            raise ParameterError(f"processes must be fewer: {takes}; got {count}")
        hands: list[ProcessHand] = []
        try:
            for _ in range(count):
                hands.append(ProcessHand())
            for hand in hands:
                hand.wait_for_start()
        except BaseException:
            for hand in hands:
                hand.end()
            raise
        return hands

    def send(self, slot: str, value: object) -> FromFile:
        """Write a value to a file."""
        return self._files.write(slot, value)

    def add(self, parts: list[Part], hands: list["ProcessHand"]) -> Part:
        """Pairwise, here: on one machine there is no shorter way."""
        return in_tree(parts, lambda one, other: one.plus(other))

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()


class ProcessHand:
    """One process. It ends when we do, however we end: nobody else holds the other end of its pipe."""

    def __init__(self) -> None:
        # Spawned: a fork would take this process' threads' locks along, and none of the threads.
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        return self._process.pid

    def wait_for_start(self) -> None:
        """Wait until it is ready for calls."""
        try:
            if self._connection.poll(_START):
                self._connection.recv()
                return
        except (EOFError, OSError):
            pass
        raise WorkersError(
            "a process for the work did not start, and said above why; in a script of your own, what trains must be "
            'under `if __name__ == "__main__":`'
        )

    def do(self, call: Call) -> Part:
        """Do a call, and wait for it."""
        try:
            self._connection.send(call)
            answer: Part | Failed = self._connection.recv()
        except (EOFError, OSError):
            raise HandLost from None
        if isinstance(answer, Failed):
            raise answer.error
        return answer

    def end(self) -> None:
        """End it at once: it holds nothing that has to be written."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: "Connection[Any, Any]") -> None:
    """What the process does: calls, until nobody is there to give any."""
    # Whoever interrupts from a terminal means the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    connection.send("ready")
    while True:
        try:
            call = connection.recv()
        except EOFError:
            return
        connection.send(attempt(call))


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
