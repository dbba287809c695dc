"""A vault in this process: asked in bytes as on its socket, made to fail where it writes, closed and opened again.

It is `parties.VaultProcess` without the process: the same folder, the same settings file, opened by what the command
`apes vault` calls. Only the socket is missing: a request's bytes are read, answered and paced by what serves a
connection of that socket.

A test of what a crash leaves behind names the point::

    vault.fail("before the witness is written")
    with pytest.raises(Crash):
        vault.ask(vault.request(1))
    vault.restart()
    assert vault.sealed(1)
"""

import contextlib
import os
from contextlib import contextmanager
from unittest import mock

from parties import VaultProcess

from apes.federation.vault import folder, socket, witness
from apes.storage.files import sync_folder

POINTS = (
    "before the draw",  # the ledger holds no answer to the round, and neither does the vault
    "before the ledger's commit",  # drawn and written down, and the transaction is open
    "after the ledger's commit",
    "before the witness is written",
    "before the witness is synced",  # it is in its place, and may not be after a power failure
    "after the witness is written",
    "before the answer leaves",  # no byte of it was sent
)
"""Where a vault can be made to fail, in the order in which a request comes by."""


class Crash(BaseException):
    """The process is gone: no handler of ours can answer in its place, unlike an error that the vault may catch."""


class Connection:
    """A courier's connection: the bytes that it sends before it hangs up, and what it is answered."""

    def __init__(self, request, before_sending):
        self._rest, self._before_sending = memoryview(request), before_sending
        self.answer = b""

    def settimeout(self, seconds):
        assert seconds > 0

    def recv(self, size):
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)

    def sendall(self, data):
        self._before_sending()
        self.answer += data


class LocalVault(VaultProcess):
    """A vault that answers in this process, by `ask` and `sealed` as a `VaultProcess` does; `start` opens it."""

    def __init__(self, folder, terms, keys, shuffler, **choices):
        super().__init__(folder, terms, keys, shuffler, **choices)
        self.served, self.connection, self._failures = None, None, {}

    def start(self):
        """Open the vault by its settings file, as the process does."""
        assert self.served is None, "it is open already"
        with self._logging(), mock.patch.object(socket, "_listen", return_value=None):
            self.served = folder.open_vault(self.folder / "vault.json")
        self._watch(self.vault.ledger)

    def kill(self):
        """Let go of everything that is open; what was made to fail works again."""
        self._failures.clear()
        if self.served is not None:
            self.served._worker.shutdown()
            self.vault.ledger.close()
            self.served = None

    def restart(self):
        self.kill()
        self.start()

    @property
    def vault(self):
        """The `Vault` that answers."""
        return self.served._vault

    def is_ready(self):
        return self.served is not None

    def ask(self, request):
        """The whole answer to these bytes."""
        assert self.served is not None, "it is not open"
        self.connection = Connection(request, lambda: self._pass("before the answer leaves"))
        # An answer that cannot be sent is no concern of the vault's: see `VaultSocket.serve`.
        watched = mock.patch.object(witness, "sync_folder", self._sync_folder)
        with self._logging(), watched, contextlib.suppress(OSError):
            self.served._serve_one(self.connection)
        return self.connection.answer

    def fail(self, point, error=Crash):
        """Raise ``error``, a class or an exception, whenever a request comes by this point, until `kill` or `heal`."""
        assert point in POINTS, point
        self._failures[point] = error

    def heal(self):
        """Let everything work again."""
        self._failures.clear()

    def let_write(self, allowed):
        """Let the vault write, or have every commit fail as on a full disk."""
        if allowed:
            self.heal()
        else:
            self.fail("before the ledger's commit", OSError(28, "No space left on device"))

    def memory(self):
        """Resident memory of this process, in bytes."""
        with open("/proc/self/statm") as sizes:
            return int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _pass(self, point):
        if point in self._failures:
            raise self._failures[point]

    def _watch(self, ledger):
        """Have the ledger and its witness come by the points."""
        spending, record, witnessed, cover = ledger.spending, ledger.record, ledger._witnessed, ledger._witness.cover

        def has_news():
            return ledger._held()[0] > ledger._witness.answers

        def watched_spending():
            self._pass("before the draw")
            return spending()

        def watched_record(run, number, answer, charges):
            record(run, number, answer, charges)
            self._pass("before the ledger's commit")

        def watched_witnessed():
            if has_news():
                self._pass("after the ledger's commit")
            witnessed()

        def watched_cover(answers, last):
            is_news = has_news()
            if is_news:
                self._pass("before the witness is written")
            cover(answers, last)
            if is_news:
                self._pass("after the witness is written")

        ledger.spending, ledger.record, ledger._witnessed = watched_spending, watched_record, watched_witnessed
        ledger._witness.cover = watched_cover

    def _sync_folder(self, path):
        self._pass("before the witness is synced")
        sync_folder(path)

    @contextmanager
    def _logging(self):
        with self.log.open("a") as log, contextlib.redirect_stderr(log):
            yield
