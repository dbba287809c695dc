"""How the analyzer talks to the shuffler: over TLS, patiently, and without holding the batch in memory."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from apes.errors import ProtocolError
from apes.federation.expiry import warning_of, why_refused
from apes.storage.certificates import check_end
from apes.storage.json_logs import log
from apes.wire.release import ANNOUNCEMENT, ROUND, Release
from apes.wire.roster import ROSTER, Roster

_SECONDS_TO_CONNECT = 10.0
_WHOSE = "the shuffler's"
_LONGEST_PAUSE = 2.0


class CohortTooSmall(ProtocolError):  # noqa: N818 - the name says what happened
    """The shuffler found too few reports to release a round."""


class TargetReached(ProtocolError):  # noqa: N818 - likewise
    """The shuffler does not release a round, since it would pass the target."""


class _StillOpen(ProtocolError):  # noqa: N818 - likewise
    """The shuffler has not released a round."""


_REFUSALS = {"cohort": CohortTooSmall, "target": TargetReached, "open": _StillOpen}


class ShufflerClient:
    """Sends batches to ``url``, gets releases.

    It shows the token, and wants a certificate that the authority signed. It goes on trying for ``patience`` seconds
    while the shuffler cannot be reached or its ledger cannot be written.
    """

    def __init__(self, url: str, token: str, authority: Path, patience: float = 120.0) -> None:
        self._said: set[str | None] = {None}
        self._say(check_end("the authority's", authority))
        self._http = httpx.Client(
            base_url=url,
            verify=ssl.create_default_context(cafile=str(authority)),
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(None, connect=_SECONDS_TO_CONNECT),
            trust_env=False,
        )
        self._patience = patience

    def roster(self, run: str) -> Roster:
        """Return a run's roster; who signed it is not checked yet."""
        answer = self._insist(lambda: self._http.get(ROSTER.format(run=run)))
        return Roster.decode(_checked(answer).content)

    def announce(self, run: str, number: int, announcement: bytes) -> None:
        """Announce a round, once and for ever; ProtocolError if it was announced otherwise, or does not follow."""
        path = ANNOUNCEMENT.format(run=run, number=number)
        _checked(self._insist(lambda: self._http.put(path, content=announcement)))

    def release(self, run: str, number: int) -> Release | None:
        """Return the release of a round, or None if it is open."""
        try:
            return _read(self._insist(lambda: self._http.get(ROUND.format(run=run, number=number))))
        except _StillOpen:
            return None

    def close_round(self, run: str, number: int, batch: Path) -> Release:
        """Send the framed reports in the file ``batch`` and return the round's release.

        If the round was closed by another batch meanwhile (an earlier attempt of ours, say), its release is returned.

        Raises:
            CohortTooSmall: If too few reports count; the round stays open.
            TargetReached: If the round would pass the target; nothing is released.
            ProtocolError: If the shuffler refuses for another reason, or cannot be reached.
        """
        path = ROUND.format(run=run, number=number)

        def send() -> httpx.Response:
            with batch.open("rb") as file:
                return self._http.post(path, content=file)

        answer = self._insist(send)
        if answer.status_code == httpx.codes.CONFLICT:
            answer = self._insist(lambda: self._http.get(path))
        return _read(answer)

    def _insist(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        """Ask until there is an answer; asking twice is safe, since a round is released only once."""
        end, pause = time.monotonic() + self._patience, 0.1
        while True:
            try:
                answer = ask()
                self._say(warning_of(answer.extensions["network_stream"].get_extra_info("ssl_object"), _WHOSE))
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                    return answer
                problem = f"it answered {answer.status_code}: {answer.text[:200]}"
            except httpx.TransportError as error:
                # It may be renewed while this goes on trying, if somebody hears of it.
                ended = why_refused(error, _WHOSE, self._http.base_url.host, self._http.base_url.port or 443)
                self._say(ended)
                problem = ended or f"{type(error).__name__}: {error}"
            if time.monotonic() + pause > end:
                raise ProtocolError(f"the shuffler at {self._http.base_url} does not answer: {problem}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _say(self, line: str | None) -> None:
        """Log what is to be said of a certificate, once."""
        if line not in self._said:
            self._said.add(line)
            log("certificate", message=line)


def _read(answer: httpx.Response) -> Release:
    return Release.decode(_checked(answer).content)


def _checked(answer: httpx.Response) -> httpx.Response:
    """The answer, unless it is a refusal."""
    if answer.is_success:
        return answer
    try:
        body = answer.json()
        message, reason = str(body["message"]), str(body["refused"])
    except (ValueError, KeyError, TypeError):
        raise ProtocolError(f"the shuffler answered {answer.status_code}: {answer.text[:200]}") from None
    raise _REFUSALS.get(reason, ProtocolError)(f"the shuffler refused ({reason}): {message}")
