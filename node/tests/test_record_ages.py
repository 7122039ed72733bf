"""How old a record is, is told from its batch's header: nothing is opened for it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bmq.values import TopicId, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq.wire.compression import Codec
from bmq_node.admin.record_ages import RecordAges
from bmq_sim.loop import on_virtual_time

TP = TopicPartition(TopicId(UUID(int=1)), 0)
NOW_MS = 1_000_000_000


class Holding:
    """A reader whose every answer is one batch, in parts."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts
        self.released = 0

    async def read(self, *_: Any, **__: Any) -> Any:
        def release() -> None:
            self.released += 1

        found = SimpleNamespace(error=None, size_bytes=sum(map(len, self.parts)), parts=self.parts)
        return SimpleNamespace(found=[found], release=release)


def five_records() -> bytes:
    made = [Record(number, NOW_MS - 50_000 + 10_000 * number, None, b"x", ()) for number in range(5)]
    return build_batch(made, codec=Codec.ZSTD)


@pytest.mark.parametrize("cut", [0, 10, 60, 61, 70])
@on_virtual_time
async def test_a_record_is_as_old_as_its_place_between_the_first_and_the_last_says(cut: int) -> None:
    batch = bytearray(five_records())
    batch[61:] = b"\xff" * (len(batch) - 61)  # nobody could open it
    reader = Holding([bytes(batch[:cut]), b"", bytes(batch[cut:])])
    ages = RecordAges(reader, SimpleNamespace(now_ms=lambda: NOW_MS))  # type: ignore[arg-type]
    assert [await ages.age_of(TP, offset) for offset in (0, 1, 4, 9)] == [50, 40, 10, 10]
    assert reader.released == 4


@on_virtual_time
async def test_of_what_is_no_batch_nobody_knows_how_old_it_is() -> None:
    ages = RecordAges(Holding([b"short"]), SimpleNamespace(now_ms=lambda: NOW_MS))  # type: ignore[arg-type]
    assert await ages.age_of(TP, 0) is None
