"""Flower wants an app for nodes; ours run none, and whoever runs this one is told so."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def refuse(message: Message, context: Context) -> Message:
    """Say that this is not how it is done."""
    raise RuntimeError("nodes of this federation run `apes courier`, and no app of a server's")
