"""The beginning of a connection of gRPC's, until its client has acknowledged what this end sets for it.

Before that the library holds it to nothing: half a megabyte of calls, of whose metadata each entry is one byte that
says "again", would be a hundred of memory. So what calls come by then is held, and is brought behind the
acknowledgement, wherever in it that came. Clients acknowledge as they come.
"""

import asyncio
from typing import Final

from bmq_databus.errors import DatabusError
from bmq_databus.grpc.resets import BURST, HEAD_BYTES, RESET

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX: Final = 16 << 10
"""Nobody may send a larger one who has not heard of this end's settings (RFC 9113, 6.5.2)."""
HELD_BYTES_MAX: Final = 96 << 10
"""More than the window that a connection begins with, and the calls' metadata."""
ALL_HELD_BYTES_MAX: Final = 4 << 20
"""All connections together have no more."""
_SETTINGS, _ACKNOWLEDGED = 4, 1
_OF_CONNECTION: Final = frozenset((2, _SETTINGS, 6, 8))
"""Priorities, settings, pings and windows: nothing of a call."""


class NotOpened(DatabusError):
    """A connection that does not begin as HTTP/2 does, or has too much before it acknowledges."""


class Openings:
    """One relay's."""

    def __init__(self) -> None:
        self._held_bytes = 0

    async def bring(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Returns once the client's acknowledgement is on its way, and what came before it. Raises NotOpened, and what
        reading raises.
        """
        if await reader.readexactly(len(PREFACE)) != PREFACE:
            raise NotOpened("it does not speak HTTP/2")
        writer.write(PREFACE)
        held = bytearray()
        resets = 0
        try:
            while True:
                head = await reader.readexactly(HEAD_BYTES)
                size_bytes, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                if size_bytes > FRAME_BYTES_MAX:
                    raise NotOpened(f"a frame of {size_bytes} bytes before it has acknowledged this end's settings")
                resets += kind == RESET
                if resets > BURST:
                    raise NotOpened("it takes back more calls than it may have, before anything looked at them")
                frame = head + await reader.readexactly(size_bytes)
                if kind == _SETTINGS and flags & _ACKNOWLEDGED:
                    writer.write(frame)
                    writer.write(bytes(held))
                    return
                if held or kind not in _OF_CONNECTION:
                    self._hold(held, frame)
                else:
                    writer.write(frame)
                    await writer.drain()
        finally:
            self._held_bytes -= len(held)

    def _hold(self, held: bytearray, frame: bytes) -> None:
        if len(held) + len(frame) > HELD_BYTES_MAX or self._held_bytes + len(frame) > ALL_HELD_BYTES_MAX:
            raise NotOpened("too much comes before it has acknowledged this end's settings")
        held += frame
        self._held_bytes += len(frame)
