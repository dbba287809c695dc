"""The desk: works on questions part by part, and on the newest of each page only."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

from apes.errors import ApesError
from apes.mathematics.search import Progress
from apes.page.answers import Part, parts
from apes.page.door import Refused
from apes.page.setting import Setting

T = TypeVar("T")
# Open tabs that are kept apart; questions that are worked on or wait.
_PAGES, _WAITING = 64, 16
_QUICK = "about"
# Proofs begin when a page has rested for so long: one that has begun cannot be stopped.
_REST = 0.08


class Desk:
    """Three workers: for estimates while somebody drags; for proofs and all that takes longer; for the adviser."""

    def __init__(self) -> None:
        self._quick = ThreadPoolExecutor(1, "quick")
        self._slow = ThreadPoolExecutor(1, "slow")
        self._adviser = ThreadPoolExecutor(1, "adviser")
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._working = 0

    def close(self) -> None:
        """Begin nothing more."""
        for worker in (self._quick, self._slow, self._adviser):
            worker.shutdown(wait=False, cancel_futures=True)

    def reserve(self) -> None:
        """Reserve a place for a question, until `release`; refused where all places are taken."""
        if self._working >= _WAITING:
            raise Refused(503, "too many questions at once: ask again in a moment")
        self._working += 1

    def release(self) -> None:
        """Free the place of a question that is over."""
        self._working -= 1

    def take(self, page: str, number: int) -> None:
        """Reserve a place for a page's question; work on older questions of the same page stops."""
        self.reserve()
        self._newest[page] = max(number, self._newest.get(page, number))
        self._newest.move_to_end(page)
        while len(self._newest) > _PAGES:
            self._newest.popitem(last=False)

    async def answer(self, setting: Setting, page: str, number: int) -> AsyncIterator[str]:
        """Lines of JSON, a part each; the last one says whether they are all."""
        for name, make in parts(setting):
            if self._newest.get(page, number) != number:
                yield _line({"part": "superseded", "number": number})
                return
            worker = self._quick if name == _QUICK else self._slow
            yield _line({"part": name, "number": number, **await self._made(worker, make)})
            if name == _QUICK:
                await asyncio.sleep(_REST)
        yield _line({"part": "end", "number": number})

    async def advise(self, work: Callable[[Progress], dict[str, Any]]) -> AsyncIterator[str]:
        """Lines of JSON: how far the adviser is, and the advice; none is worked out for whoever went away."""
        said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        loop, is_wanted = asyncio.get_running_loop(), Event()
        is_wanted.set()

        def tell(done: int, total: int) -> None:
            if not is_wanted.is_set():
                raise Refused(499, "nobody waits for this advice any more")
            loop.call_soon_threadsafe(said.put_nowait, {"done": done, "total": total})

        try:
            made = asyncio.ensure_future(self._made(self._adviser, lambda: work(tell)))
            made.add_done_callback(lambda done: said.put_nowait({} if done.cancelled() else done.result()))
            while (line := await said.get()).keys() == {"done", "total"}:
                yield _line(line)
            yield _line(line)
        finally:
            is_wanted.clear()

    async def later(self, work: Callable[[], T]) -> T:
        """Do some work that takes long, when its turn comes; refused where too many wait."""
        self.reserve()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._slow, work)
        finally:
            self.release()

    async def _made(self, worker: ThreadPoolExecutor, make: Callable[[], Part]) -> dict[str, Any]:
        try:
            return await asyncio.get_running_loop().run_in_executor(worker, make)
        except ApesError as error:
            # Also a figure that there is none of is an answer: the others are shown beside it.
            return {"error": str(error)}
        except Exception as error:
            # A defect of ours in one figure takes no other with it.
            return {"error": f"this could not be computed ({type(error).__name__}: {error})"}


def _line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, allow_nan=False) + "\n"
