"""The analyzer as Flower starts it; the code is the installed package's."""

from apes.federation.relay import app

__all__ = ["app"]
