"""Reading a WAL stream in order, and deleting what nobody needs of a sealed one."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from bmq.errors import BmqError, Corrupt, ObjectMissing
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import Trouble, TroubleLog, cancelled, together, when_available
from bmq.storage.numbered import wal_key
from bmq.storage.stream_seal import check_place, is_seal, list_stream
from bmq.storage.wal import Seal, WalObject, decode_head, decode_wal
from bmq.values import StreamId

READS_AHEAD: Final = 4
DELETES_AT_ONCE: Final = 8


class WalObjectMissing(BmqError):
    """Object `number` of a stream is not there: its owner rolled it and deleted it meanwhile, or it is lost. Never to
    be skipped.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class WalObjectDamaged(Corrupt):
    """Object `number` of a stream is not what was written. `data` is what is there instead."""

    def __init__(self, message: str, number: int, data: bytes) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


async def read_stream(
    store: ObjectStore, stream: StreamId, *, start: int, end: int, rng: Rng, reads_ahead: int = READS_AHEAD
) -> AsyncGenerator[WalObject, None]:
    """The data objects `start` to `end - 1`, in order. Waits out a store that is down.

    At most `reads_ahead` objects are held besides the one that was given. Raises WalObjectMissing, WalObjectDamaged,
    FormatTooNew.
    """
    loop = asyncio.get_running_loop()
    trouble = TroubleLog(f"read {stream.prefix}")
    reading: deque[asyncio.Task[WalObject]] = deque()
    following = start
    try:
        while reading or following < end:
            while following < end and len(reading) < reads_ahead:
                reading.append(loop.create_task(_read(store, stream, following, rng=rng, trouble=trouble)))
                following += 1
            yield await reading.popleft()
    finally:
        await cancelled(reading)


async def read_number(store: ObjectStore, stream: StreamId, number: int, *, rng: Rng) -> WalObject:
    """One data object. Waits out a store that is down. Raises WalObjectMissing, WalObjectDamaged, FormatTooNew."""
    return await _read(store, stream, number, rng=rng, trouble=TroubleLog(f"read {stream.prefix}"))


async def drop_stream(store: ObjectStore, stream: StreamId, *, rng: Rng) -> int:
    """Deletes every data object of a sealed stream that no partition names any more; seals stay. Returns how many went.

    Only on a committed record that says so. A stream that was dropped must not be sealed again.
    """
    trouble = TroubleLog(f"drop {stream.prefix}")
    listed = await list_stream(store, stream, at_least=0, rng=rng, trouble=trouble)
    keys = [meta.key for _, meta in listed if not is_seal(meta)]
    for at in range(0, len(keys), DELETES_AT_ONCE):
        await together(_delete(store, key, rng=rng, trouble=trouble) for key in keys[at : at + DELETES_AT_ONCE])
    return len(keys)


async def _read(store: ObjectStore, stream: StreamId, number: int, *, rng: Rng, trouble: Trouble) -> WalObject:
    key = wal_key(stream, number)
    try:
        data = await when_available(lambda: store.get(key), rng=rng, trouble=trouble)
    except ObjectMissing:
        raise WalObjectMissing(f"{key} is missing", number) from None
    try:
        head = decode_head(data)
        check_place(head, stream, number)
        if isinstance(head, Seal):
            raise WalObjectMissing(f"{key} is a seal in the stream's deleted past", number)
        return decode_wal(data)
    except Corrupt as error:
        raise WalObjectDamaged(f"{key}: {error}", number, data) from None


async def _delete(store: ObjectStore, key: str, *, rng: Rng, trouble: Trouble) -> None:
    await when_available(lambda: store.delete(key), rng=rng, trouble=trouble)
