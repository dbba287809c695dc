"""Tell a SuperLink which nodes it may let in: those whose cards were admitted. It forgets them when it ends."""

import ssl
import time
from pathlib import Path

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from apes.errors import DataError, ProtocolError
from apes.storage.json_logs import log

_SECONDS_BETWEEN_TRIES = 0.5


class KeyRefused(ProtocolError):  # noqa: N818 - the name says what happened
    """The SuperLink does not take a key."""


def register(folder: Path, superlink: str, patience: float = 60.0) -> int:
    """Register all keys in ``folder/nodes`` at the SuperLink's local door, host and port; return how many are.

    A key that is registered already is as good. One that is none, or that the SuperLink does not take, is logged, and
    costs nobody else anything. The SuperLink is waited for, ``patience`` seconds at most.
    """
    end, registered = time.monotonic() + patience, 0
    trusted = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    told = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    with ControlHttpClient(f"https://{superlink}", interceptors=told, verify=trusted) as client:
        for key in sorted((folder / "nodes").glob("*.pub")):
            try:
                asked = RegisterNodeRequest(public_key=_read(key), name=key.stem)
                while not _is_registered(client, asked):
                    if time.monotonic() > end:
                        raise ProtocolError(f"the SuperLink at {superlink} cannot be reached")
                    time.sleep(_SECONDS_BETWEEN_TRIES)
                registered += 1
            except (DataError, KeyRefused) as error:
                log("node-not-registered", error=str(error))
    return registered


def _is_registered(client: ControlHttpClient, asked: RegisterNodeRequest) -> bool:
    """Register a key; False if there is nobody to ask; KeyRefused if it is not taken."""
    try:
        client.RegisterNode(asked)
    except httpx.TransportError:
        return False
    except httpx.HTTPStatusError as error:
        said = FlowerError.from_json(error.response.text)
        if said is None or said.code != ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
            why = error.response.status_code if said is None else said.message
            raise KeyRefused(f"the SuperLink does not register {asked.name}: {why}") from None
    return True


def _read(path: Path) -> bytes:
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePublicKey):
        raise DataError(f"{path} must hold a key of an elliptic curve, as `apes federation join` makes it")
    return public_key_to_bytes(key)
