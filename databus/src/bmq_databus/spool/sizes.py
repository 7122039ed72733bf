"""What messages take on disk. Pure."""

from collections.abc import Iterable
from typing import Final

from bmq_databus.spool.frames import FRAME_HEAD_BYTES, Once, Spooled
from bmq_databus.spool.identity import ID_BYTES

MESSAGE_EXTRA_BYTES: Final = 48
"""What a message takes on disk beside its texts, at most: what MessagePack says of their lengths, and its numbers."""
HEADER_EXTRA_BYTES: Final = 12
ONCE_EXTRA_BYTES: Final = 64
ENTRY_EXTRA_BYTES: Final = FRAME_HEAD_BYTES + 8 + 2 + ID_BYTES
"""What messages that enter together take beside themselves: they are a frame."""


def entry_bytes(messages: Iterable[Spooled], once: Once | None = None) -> int:
    """What they take where they enter together, at most."""
    return ENTRY_EXTRA_BYTES + sum(map(bytes_of, messages)) + (0 if once is None else once_bytes(once))


def once_bytes(once: Once) -> int:
    """What a key and its answer take, at most."""
    return ONCE_EXTRA_BYTES + len(once.body) + len(once.key.encode())


def bytes_of(message: Spooled) -> int:
    """What a message takes on disk, at most, and not much less."""
    own = len(message.key or b"") + len(message.value or b"") + len(message.topic) + MESSAGE_EXTRA_BYTES
    own += len(message.lane) + len(message.partitioner)
    if not message.headers:
        return own
    return own + sum(len(name.encode()) + len(value or b"") + HEADER_EXTRA_BYTES for name, value in message.headers)
