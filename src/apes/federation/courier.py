"""The courier: a Flower node that carries the model to the user's vault and the sealed reports back.

It is the user's own program: nothing that a server ships is fetched, installed or imported. It needs nothing that is
secret but the node's key, looks at nothing that it carries, and is taken for hostile by the vault all the same.
"""

import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from apes.checks import address, positive, whole
from apes.errors import DataError, ProtocolError
from apes.federation.fleet import ANNOUNCED_SECONDS, Fleet, NotRegistered, RunOver, StillThere
from apes.storage.json_logs import RareLog, log
from apes.storage.locks import lock
from apes.storage.settings import read_settings, write_settings
from apes.wire.frames import framed

COURIER = "courier.json"
"""Name of a courier's settings."""
# What a question has beside its weights: announcement, names of parts.
_BESIDE_WEIGHTS = 4 << 20
# Looks for work come soon after work, and rarely when there is none.
_FIRST_PAUSE, _GROWTH = 0.1, 1.5
# Flower forgets a node that says nothing after two announced intervals; a SuperLink that was started again has all its
# nodes to register first.
_SECONDS_TO_BE_LET_IN = 2.0 * ANNOUNCED_SECONDS + 60
_SECONDS_BETWEEN_TRIES = 3.0
_LONGEST_WORD = 40


def largest_question(dimensions: int) -> int:
    """Most bytes of a message with a model of so many coordinates."""
    return 4 * dimensions + _BESIDE_WEIGHTS


@dataclass(frozen=True)
class CourierSettings:
    """Between whom a courier goes; paths are relative to the folder of the settings' own file."""

    superlink: str  # host and port
    vault: str = "../socket/vault.sock"  # where it is asked
    key: str = "node.key"  # of the Flower node, OpenSSH
    authority: str = "authority.pem"  # certificate that the SuperLink's must be signed by
    pause: float = 1.0  # longest time between looks for work, seconds, in (0, 3600]
    patience: float = 600.0  # how long the vault may take for an answer, seconds, in (0, 86400]
    largest: int = 1 << 30  # most bytes of a message from the SuperLink, in [2^16, 2^40]

    def __post_init__(self) -> None:
        address("superlink", self.superlink)
        whole("largest", self.largest, 1 << 16, 1 << 40)
        positive("pause", self.pause, 3600)
        positive("patience", self.patience, 86400)


@dataclass(frozen=True)
class _Known:
    """What a courier remembers: the number that the SuperLink knows it by."""

    node: int


class Courier:
    """The courier that a settings file describes."""

    def __init__(self, file: Path) -> None:
        self._settings, folder = read_settings(file, CourierSettings), file.parent
        # Until the process ends: two with one key would sign each other off.
        self._lock = lock(file)
        self._vault, self._memory = folder / self._settings.vault, folder / "node.json"
        authority = folder / self._settings.authority
        if not authority.is_file():
            raise DataError(f"there is no {authority}")
        key = _read_key(folder / self._settings.key)
        self._fleet = Fleet(self._settings.superlink, authority, key, self._settings.largest)
        self._dropped = RareLog("dropped")

    def run(self) -> None:
        """Carry messages until told to stop."""
        signal.signal(signal.SIGTERM, _stop)
        try:
            while True:
                self._sign_on()
                try:
                    self._serve()
                except NotRegistered:
                    # Once let in, we know our key to be good: the SuperLink was started again.
                    log("unknown", message="the SuperLink has forgotten this node")
        finally:
            self._fleet.sign_off()

    def _serve(self) -> NoReturn:
        pause = _FIRST_PAUSE
        while True:
            if self._carry():
                pause = _FIRST_PAUSE
            else:
                time.sleep(pause)
                pause = min(_GROWTH * pause, self._settings.pause)

    def _sign_on(self) -> None:
        known_as = read_settings(self._memory, _Known).node if self._memory.exists() else None
        end, is_told = time.monotonic() + _SECONDS_TO_BE_LET_IN, False
        while True:
            try:
                node = self._fleet.sign_on(known_as)
                write_settings(self._memory, _Known(node))
                log("courier", node=node, superlink=self._settings.superlink)
                return
            except StillThere:
                if known_as is None or time.monotonic() > end:
                    raise NotRegistered(_NOT_LET_IN.format(self._settings.superlink)) from None
            if not is_told:
                log("waiting", message="the SuperLink does not let this node in yet; trying again")
                is_told = True
            time.sleep(_SECONDS_BETWEEN_TRIES)

    def _carry(self) -> bool:
        """Carry one message, if there is one; whatever is wrong with it harms nothing but itself.

        Returns:
            Whether a message was carried. After an error the caller waits before it asks again, as it does when there
            was no message: a server that fails at once must not be asked without a pause.
        """
        try:
            found = self._fleet.receive()
            if found is None:
                return False
            self._fleet.send(self._reply(*found))
        except NotRegistered:
            raise
        except RunOver:
            self._dropped.count("over")
        # Of a server's bytes, by Flower's code: there is no telling what may be raised.
        except Exception as error:
            self._dropped.count(type(error).__name__)
        else:
            return True
        return False

    def _reply(self, head: Message, whole: Message) -> Message:
        header, weights = _asked(whole)
        began = time.perf_counter()
        answer = ask_vault(self._vault, header, weights, self._settings.patience)
        seconds = round(time.perf_counter() - began, 3)
        if answer[:1] == b"\x00":
            log("carried", bytes=len(answer) - 1, seconds=seconds)
            sealed = Array("uint8", (len(answer) - 1,), "raw", answer[1:])
            return Message(RecordDict({"reports": ArrayRecord({"sealed": sealed})}), reply_to=head)
        reason = answer[1 : 1 + _LONGEST_WORD].decode("ascii", "replace") or "silent"
        log("refused", reason=reason, seconds=seconds)
        return Message(RecordDict({"refused": ConfigRecord({"reason": reason})}), reply_to=head)


def ask_vault(path: Path, header: bytes, weights: bytes, seconds: float) -> bytes:
    """Send a request to the vault's socket and return the whole answer; nothing, if none came in time."""
    end, pieces = time.monotonic() + seconds, []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(b"".join(framed([header, weights])))
            while piece := connection.recv(1 << 20):
                pieces.append(piece)
                connection.settimeout(max(end - time.monotonic(), 1e-3))
    except OSError as error:
        log("vault-silent", kind=type(error).__name__)
        return b""
    return b"".join(pieces)


_NOT_LET_IN = (
    "the SuperLink at {} does not let this node in: its key is not registered there, or another courier uses it; "
    "let the organiser register it and start again"
)


def _asked(message: Message) -> tuple[bytes, bytes]:
    """Header and weights of a question: handed on, never looked at."""
    header = message.content.config_records["ask"]["header"]
    if not isinstance(header, bytes):
        raise ProtocolError("a question must have its header as bytes")
    return header, message.content.array_records["model"]["weights"].data


def _read_key(path: Path) -> EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise DataError(f"there is no {path}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise DataError(f"{path} must hold a key of an elliptic curve, as `apes federation join` makes it")
    return key


def _stop(number: int, frame: FrameType | None) -> None:
    """End by way of the blocks that clean up."""
    sys.exit(0)
