"""A Dask cluster: values are tasks whose results workers keep, so that Dask makes them anew where a worker died.

Every share of users has a worker, its home. What only that one needs is made there; what everybody needs is made once
on each, rather than copied between them: Dask takes copies away when it tidies up.
"""

import pickle
import time
import uuid
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

from apes.errors import WorkersError
from apes.shuffler.parts import Part
from apes.training.crews.crew import Facts, in_tree
from apes.training.crews.kept import cannot_travel
from apes.training.crews.same_code import own_version, refusal
from apes.training.crews.work import gather

# Seconds: how long a cluster may be silent when it is first asked, how often it is looked at in a round, and how long
# it may be without any worker.
ANSWER, _LOOK, _ALONE = 5.0, 2.0, 60.0
# Each thread of a worker has this many shares: enough for Dask to balance workers of different speed.
_SHARES_PER_THREAD = 2


@dataclass(eq=False)
class _Value:
    """A value on its way: packed, and the futures that hold it on workers, by home."""

    slot: str
    share: int | None
    packed: bytes
    futures: dict[str, Any] = field(default_factory=dict)


class DaskCluster:
    """Work by the workers of a Dask cluster, which may come and go; a client that is our own is closed at the end."""

    def __init__(self, client: Any, *, is_own: bool) -> None:
        self._client, self._is_own = client, is_own
        self._run, self._count, self._lost = uuid.uuid4().hex[:12], 0, 0
        self._homes: dict[int, str] = {}
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> Facts:
        """How many workers there are now."""
        return Facts("dask", len(self._threads()), self._lost)

    @property
    def shares(self) -> int:
        """Some per thread of a worker."""
        return _SHARES_PER_THREAD * max(sum(self._threads().values()), 1)

    def keep(self, slot: str, value: object, share: int | None = None) -> "_Value":
        """Pack a value, to be sent as a task that makes it: as long as its future is held, some worker has it."""
        import cloudpickle

        try:
            packed = cloudpickle.dumps(value)
        except Exception as error:
            raise cannot_travel(value, error) from None
        return _Value(slot, share, packed)

    def run(self, calls: list[tuple[Any, ...]]) -> Part:
        """Do the calls, each at the home of its users, and add up on the workers what they bring."""
        before = set(self._threads())
        parts = [
            self._submit(gather, [self._there(kept, home) for kept in call], "part", home)
            for call, home in ((call, self._home(call)) for call in calls)
        ]
        total = in_tree(parts, lambda one, other: self._submit(_plus, [one, other], "sum"))
        # Nobody else holds on to the addends: Dask lets go of each as it is used up.
        del parts
        try:
            part = self._result(total)
        except BaseException:
            # Whoever interrupts does not wait for what is under way.
            if self._client.status == "running":
                total.cancel()
            raise
        self._lost += len(before - set(self._threads()))
        return part

    def _there(self, value: "_Value", home: str) -> Any:
        """A future of a value: at the home of its users; or at this home, if everybody needs it."""
        place = "" if value.share is not None else home
        if place not in value.futures:
            value.futures[place] = self._submit(pickle.loads, [value.packed], value.slot, home)
            if value.share is not None:
                # The scheduler has it from now on; the data need not be here twice.
                value.packed = b""
        return value.futures[place]

    def _home(self, call: tuple["_Value", ...]) -> str:
        """The worker who has the users of a call; a new one if it died."""
        share, threads = next(kept.share for kept in reversed(call) if kept.share is not None), self._threads()
        if self._homes.get(share) not in threads:
            # Where Dask made their data anew, if it did; else whoever has fewest shares per thread.
            futures = [future for kept in call if kept.slot == "share" for future in kept.futures.values()]
            holders = [worker for at in self._client.who_has(futures).values() for worker in at] if futures else []
            load = {worker: list(self._homes.values()).count(worker) / count for worker, count in threads.items()}
            living = [worker for worker in holders if worker in threads] or sorted(threads, key=lambda w: load[w])
            self._homes[share] = living[0] if living else ""
        return self._homes[share]

    def _submit(self, function: Any, arguments: list[Any], name: str, home: str = "") -> Any:
        import dask

        self._count += 1
        # Others do it where the home dies meanwhile.
        where = {"workers": [home], "allow_other_workers": True} if home else {}
        # Dask warns of tasks that carry data; ours are to, so that it can make the data anew.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self._client.submit(function, *arguments, key=f"apes-{name}-{self._run}-{self._count}", **where)

    def close(self) -> None:
        """Close the client, if it is ours; what workers keep goes with the values."""
        if self._is_own:
            self._client.close()

    def _threads(self) -> dict[str, int]:
        """How many threads each worker has."""
        try:
            return dict(self._client.nthreads())
        except OSError as error:
            said = f"the Dask scheduler answers no longer; nothing of this round was released: {error}"
            raise WorkersError(said) from None

    def _check(self) -> None:
        """Raise unless there are workers, and all of them have our version."""
        until = time.monotonic() + ANSWER
        while not self._threads():
            if time.monotonic() > until:
                raise WorkersError("the Dask cluster must have a worker, got none; start one with: dask worker ADDRESS")
            time.sleep(0.1)
        for worker, version in self._client.run(own_version, on_error="return").items():
            if version != own_version():
                got = version if isinstance(version, str) else f"none ({type(version).__name__}: {version})"
                raise WorkersError(f"{refusal(own_version(), got)}; at {worker}")

    def _result(self, total: Any) -> Part:
        from distributed import KilledWorker

        alone_since = None
        while True:
            try:
                part: Part = total.result(timeout=_LOOK)
                return part
            except TimeoutError:
                # A stranger's model may have its own.
                if total.status == "error":
                    raise
                now = time.monotonic()
                alone_since = None if self._is_there() else alone_since or now
                if alone_since is not None and now - alone_since > _ALONE:
                    silent = f"the Dask cluster has had no worker for {_ALONE:g} s"
                    raise WorkersError(f"{silent}; nothing of this round was released") from None
            except KilledWorker as error:
                raise WorkersError(f"workers died over and over on the same users: {error}") from None
            except CancelledError as error:
                said = f"the Dask cluster let go of the work; nothing of this round was released: {error}"
                raise WorkersError(said) from None

    def _is_there(self) -> bool:
        """Whether the cluster has a worker; not to be known while the scheduler is silent."""
        try:
            return bool(self._threads())
        except WorkersError:
            return False


def _plus(one: Part, other: Part) -> Part:
    return one.plus(other)  # type: ignore[no-any-return]  # both are of one kind
