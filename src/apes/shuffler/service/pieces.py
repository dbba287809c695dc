"""What a caller sends, piece by piece: as long as it keeps coming and is not absurdly large."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from apes.shuffler.service.refused import RequestRefused

# The lock of a round is held while its batch comes in.
_SECONDS_FOR_A_PIECE = 60.0


async def limited(stream: AsyncIterable[bytes], most: int) -> AsyncIterator[bytes]:
    """Pass on what comes, at most so many bytes, or refuse the request."""
    pieces, received = aiter(stream), 0
    while True:
        try:
            async with asyncio.timeout(_SECONDS_FOR_A_PIECE):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RequestRefused(408, "slow", f"nothing came for {_SECONDS_FOR_A_PIECE:g} seconds") from None
        received += len(piece)
        if received > most:
            raise RequestRefused(413, "size", f"at most {most} bytes are taken here")
        yield piece
