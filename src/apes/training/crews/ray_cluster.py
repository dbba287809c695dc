"""Ray: an actor per processor, each with its own users; values lie in Ray's object store, put there once."""

import os
import time
import warnings
from dataclasses import dataclass
from typing import Any

from apes.errors import WorkersError
from apes.shuffler.parts import Part
from apes.training.crews.crew import in_tree
from apes.training.crews.hands import HandLost
from apes.training.crews.kept import Call, Failed, attempt, cannot_travel
from apes.training.crews.same_code import own_version, refusal

LOCAL = "ray://local"
# Seconds in which an actor has to start: on a machine that has not run Python yet, it imports everything.
_START = 120.0
# Seconds in which a processor has to become free.
_FREE = 5.0
# The address that a crew of this process connected to, as long as it does: Ray holds one connection per process.
_STARTED: list[str] = []


class RayWorker:
    """What an actor is."""

    def hello(self) -> tuple[str, int]:
        """Version of the package there, and the number of the process."""
        return own_version(), os.getpid()

    def do(self, call: Call) -> tuple[Failed | None, Part | None]:
        """Do a call; two answers, so that what went wrong is seen without fetching what came of it."""
        answer = attempt(call)
        return (answer, None) if isinstance(answer, Failed) else (None, answer)

    def add(self, one: Part, other: Part) -> Part:
        """Two parts as one."""
        return one.plus(other)  # type: ignore[no-any-return]  # both are of one kind


@dataclass(frozen=True)
class FromStore:
    """Gets a value from Ray's object store."""

    # In a list: Ray would fetch what stands open in an argument at every call.
    reference: list[Any]

    def __call__(self) -> Any:
        """The value; its arrays lie in the store."""
        import ray

        try:
            return ray.get(self.reference[0])
        except ray.exceptions.RaySystemError as error:
            said = str(error).strip().splitlines()[-1]
            raise WorkersError(f"a Ray worker cannot unpack what it was sent: {said}") from None


class RayCluster:
    """A hall of Ray's actors. What was started for it is shut down at the end."""

    way = "ray"

    def __init__(self, address: str) -> None:
        import ray

        self._kept: dict[str, Any] = {}
        self._is_own = not ray.is_initialized()
        if self._is_own:
            _start(address)
        elif address not in (LOCAL, *_STARTED):
            held = f"this process holds a connection to Ray already; end it (ray.shutdown()), or use it ({LOCAL})"
            raise WorkersError(f"cluster must be where this process is connected to: {held}; got {address!r}")
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_concurrency=1)(RayWorker)

    @property
    def size(self) -> int:
        """How many processors are free."""
        import ray

        until = time.monotonic() + _FREE
        while (free := int(ray.available_resources().get("CPU", 0))) < 1:
            # Those of a run that ended just now take a moment.
            if time.monotonic() > until:
                raise WorkersError("the Ray cluster must have a free processor, got none; end what else runs there")
            time.sleep(0.1)
        return free

    def hire(self, count: int) -> list["RayHand"]:
        """As many actors as start in time, all of our version."""
        import ray

        actors = [self._actor.remote() for _ in range(count)]
        hellos = [actor.hello.remote() for actor in actors]
        ray.wait(hellos, num_returns=count, timeout=_START)
        try:
            hands = [_greeted(actor, hello) for actor, hello in zip(actors, hellos, strict=True)]
        except BaseException:
            for actor in actors:
                ray.kill(actor)
            raise
        return [hand for hand in hands if hand is not None]

    def send(self, slot: str, value: object) -> FromStore:
        """Put a value into the store, in place of the slot's earlier one."""
        import ray

        try:
            self._kept[slot] = ray.put(value)
        except TypeError as error:
            raise cannot_travel(value, error) from None
        return FromStore([self._kept[slot]])

    def add(self, parts: list[Any], hands: list["RayHand"]) -> Part:
        """In a tree, on the workers."""
        import ray

        turns = iter(range(len(parts)))
        total = in_tree(parts, lambda one, other: hands[next(turns) % len(hands)].actor.add.remote(one, other))
        try:
            part: Part = ray.get(total)
            return part
        except ray.exceptions.RayError:
            raise HandLost from None

    def close(self) -> None:
        """Let go of what the store holds, and of Ray, if it was not there before."""
        import ray

        self._kept.clear()
        if self._is_own and ray.is_initialized():
            ray.shutdown()
            _STARTED.clear()


@dataclass(frozen=True)
class RayHand:
    """One actor, and the number of its process."""

    actor: Any
    pid: int

    def do(self, call: Call) -> Any:
        """Do a call, and wait for it; the part stays where it is."""
        import ray

        failed, part = self.actor.do.options(num_returns=2).remote(call)
        try:
            failure: Failed | None = ray.get(failed)
        except ray.exceptions.RayError:
            raise HandLost from None
        if failure is not None:
            raise failure.error
        return part

    def end(self) -> None:
        """End it at once."""
        import ray

        if ray.is_initialized():
            ray.kill(self.actor)


def _greeted(actor: Any, hello: Any) -> RayHand | None:
    """An actor that has started, and has our version; None if it did not start in time."""
    import ray

    try:
        version, pid = ray.get(hello, timeout=0)
    except ray.exceptions.GetTimeoutError:
        ray.kill(actor)
        return None
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split())[-300:]
        raise WorkersError(f"a Ray worker did not start; is apes installed there? {said}") from None
    if version != (wanted := own_version()):
        raise WorkersError(f"{refusal(wanted, version)}; on Ray")
    return RayHand(actor, pid)


def _start(address: str) -> None:
    """Start Ray on this machine, or connect to where it runs."""
    import ray

    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == LOCAL:
        # A new one, whatever runs here or was left behind. The driver works little: every processor gets an actor.
        options |= {"address": "local"}
        options |= {"num_cpus": os.cpu_count() or 1, "include_dashboard": False, "configure_logging": False}
    else:
        options |= {"address": address}
    with warnings.catch_warnings():
        # Of Ray's own coming changes, which concern nobody who trains.
        warnings.simplefilter("ignore", FutureWarning)
        # Said once more, as the error.
        warnings.filterwarnings("ignore", "Ray Client connection timed out", UserWarning)
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())
            must = "cluster must be the address of a Ray cluster that lets us in (with its token, if it asks for one)"
            raise WorkersError(f"{must}, got {address!r}: {said}") from None
    _STARTED[:] = [address]
