"""The command page: sliders in a browser, on this machine."""

import webbrowser
from threading import Thread
from typing import Annotated

import typer

from apes.cli import shared


def page_command(
    port: Annotated[int, typer.Option(help="Port on this machine; 0 for any that is free.")] = 8300,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    as_json: shared.Json = False,
) -> None:
    """Serve a page with sliders on this machine: what a training would reveal, as you drag."""
    from apes.page.server import listen, serve

    def ready(url: str) -> None:
        shared.tell({"url": url}, as_json, f"{url} is ready; Ctrl-C ends it")
        if not no_open:
            # Some browsers stay until they are closed.
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serve(listen(port), ready)
