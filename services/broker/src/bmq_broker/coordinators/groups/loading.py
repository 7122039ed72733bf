"""From the log to the durable state: the newest snapshot, then every record after it, through the same `replay` as live
operations.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import Buffer

from bmq.errors import BmqError, Corrupt, FormatTooNew
from bmq.roles.log import CoordinatorLog
from bmq.values import Offset
from bmq.wire.batches import iterate_records, read_header
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.records import decode_key, decode_value
from bmq_broker.coordinators.groups.snapshot import decode_state

_BATCHES_PER_TURN: Final = 32
"""Batches replayed before the loop gets its turn."""


@dataclass(slots=True)
class Loaded:
    """`records` were replayed after the snapshot. `unknown` of them are of a kind that this bmq does not know: they
    stay in the log as they are.
    """

    state: DurableState = field(default_factory=DurableState)
    records: int = 0
    unknown: int = 0


async def load(log: CoordinatorLog) -> Loaded:
    """Raises Corrupt, FormatTooNew, and whatever reading the log raises."""
    loaded = Loaded()
    start = Offset(0)
    snapshot = await log.load_snapshot()
    if snapshot is not None:
        start, data = snapshot
        loaded.state = await asyncio.get_running_loop().run_in_executor(None, decode_state, data)
    batches = 0
    async for batch in log.read_from(start):
        _replay_batch(loaded, batch, start)
        batches += 1
        if batches % _BATCHES_PER_TURN == 0:
            await asyncio.sleep(0)
    return loaded


def _replay_batch(loaded: Loaded, batch: Buffer, start: Offset) -> None:
    header = read_header(batch)
    if header.is_control:
        return
    try:
        for record in iterate_records(batch, header):
            if record.offset >= start:
                _replay_record(loaded, record.key, record.value)
    except FormatTooNew:
        raise
    except BmqError as error:
        raise Corrupt(f"__consumer_offsets, batch at offset {header.base_offset}: {error}") from error


def _replay_record(loaded: Loaded, raw_key: bytes | None, raw_value: bytes | None) -> None:
    loaded.records += 1
    key = None if raw_key is None else decode_key(raw_key)
    if key is None:
        loaded.unknown += 1
        return
    loaded.state.replay(key, None if raw_value is None else decode_value(key, raw_value))
