"""The courier: carries the model to the user's vault and the sealed report back.

It is code that a server ships to the users' machines, so it must be taken for hostile. It needs nothing that is secret:
only Flower, and the path of the vault's socket, which the node's owner sets (``vault`` in the node's configuration).
"""

import socket
import struct

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

# The same as in `apes.wire.frames`, written again: nothing of ours is installed where this runs.
_LENGTH = struct.Struct("<I")

app = ClientApp()


@app.train()
def carry(message: Message, context: Context) -> Message:
    """Ask the vault for this round's sealed reports."""
    header = message.content.config_records["ask"]["header"]
    if not isinstance(header, bytes):
        raise TypeError(f"header must be bytes, got {type(header).__name__}")
    weights = message.content.array_records["model"]["weights"].data
    answer = ask_vault(str(context.node_config["vault"]), header, weights)
    if answer[:1] != b"\x00":
        reason = answer[1:].decode("ascii", "replace") or "silent"
        return Message(RecordDict({"refused": ConfigRecord({"reason": reason})}), reply_to=message)
    sealed = ArrayRecord({"sealed": Array("uint8", (len(answer) - 1,), "raw", answer[1:])})
    return Message(RecordDict({"reports": sealed}), reply_to=message)


def ask_vault(path: str, header: bytes, weights: bytes) -> bytes:
    """Send a request to the vault's socket, unread, and return the whole answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(_LENGTH.pack(len(header)) + header + _LENGTH.pack(len(weights)) + weights)
        pieces = []
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
    return b"".join(pieces)
