"""No batch gets to its owner that no reader could open, as far as its topic asks; and what is proved late is not
overtaken.
"""

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from crc32c import crc32c
from one_connection import run
from proxy_in_memory import Client, MemoryClock, MemoryMetadata, Running

from bmq.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidTimestamp
from bmq.values import TopicPartition
from bmq.wire import batch_headers
from bmq.wire.batch_headers import HEADER_SIZE_BYTES
from bmq.wire.batches import Record, build_batch, iterate_records, read_header
from bmq.wire.compression import Codec, compress
from bmq.wire.error_codes import ErrorCode
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX
from bmq_proxy.proofs import INLINE_COMPRESSED_BYTES_MAX, Proofs
from bmq_sim.loop import on_virtual_time

NOW_MS = MemoryClock().now_ms()
EVERY_CODEC = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
THREAD = pytest.mark.parametrize("inline_records_max", [1_000, 0], ids=["at once", "in a thread"])


def batch(*timestamps_ms: int, codec: int = 0, value: bytes = b"value") -> bytes:
    return build_batch([Record(0, each, b"key", value, (("h", b"x"),)) for each in timestamps_ms], codec=codec)


def changed(
    data: bytes, *, body: bytes | None = None, max_timestamp_ms: int | None = None, count: int | None = None
) -> bytes:
    """The batch with other contents, and the checksum that these have."""
    copy = bytearray(data)
    if body is not None:
        copy[HEADER_SIZE_BYTES:] = body
        struct.pack_into(">i", copy, 8, len(copy) - 12)
    if max_timestamp_ms is not None:
        struct.pack_into(">q", copy, 35, max_timestamp_ms)
    if count is not None:
        struct.pack_into(">i", copy, 23, count - 1)
        struct.pack_into(">i", copy, 57, count)
    struct.pack_into(">I", copy, 17, crc32c(memoryview(copy)[21:]))
    return bytes(copy)


class Proved:
    """Proofs of one topic."""

    def __init__(self, configs: Mapping[str, str], *, inline_records_max: int = 1_000) -> None:
        metadata = MemoryMetadata()
        self.tp = TopicPartition(metadata.add_topic("orders", 1, configs).topic_id, 0)
        self.proofs = Proofs(metadata, {}, clock=MemoryClock(), inline_records_max=inline_records_max)

    async def prove(self, data: bytes) -> bytes:
        proof = self.proofs.begin(self.tp, data)
        return bytes(await proof if isinstance(proof, asyncio.Future) else proof.records)


@THREAD
@EVERY_CODEC
@pytest.mark.parametrize("validation", ["header", "lengths", "records"])
def test_good_batches_pass_unchanged(validation: str, codec: Codec, inline_records_max: int) -> None:
    @on_virtual_time
    async def main() -> None:
        proved = Proved({"bmq.validation": validation}, inline_records_max=inline_records_max)
        for data in (
            batch(NOW_MS, codec=codec),
            batch(*[NOW_MS + at for at in range(50)], codec=codec, value=bytes(3_000)),
        ):
            assert await proved.prove(data) == data
        await proved.proofs.close()

    main()


@THREAD
@pytest.mark.parametrize(
    "data",
    [
        changed(batch(NOW_MS, NOW_MS, NOW_MS), body=b"\xff" * 64),
        changed(batch(NOW_MS, codec=Codec.GZIP), body=b"not gzip"),
        changed(batch(NOW_MS, codec=Codec.ZSTD), body=b"not zstd"),
        changed(batch(NOW_MS, codec=Codec.LZ4), body=b"not lz4"),
        changed(batch(NOW_MS, codec=Codec.SNAPPY), body=b"not snappy at all"),
        changed(batch(NOW_MS, codec=Codec.SNAPPY), body=compress(Codec.SNAPPY, b"\x80" * 20)),
        changed(batch(NOW_MS, NOW_MS), count=1),
        changed(batch(NOW_MS, NOW_MS), count=3),
        changed(batch(NOW_MS), body=bytes(batch(NOW_MS)[HEADER_SIZE_BYTES:]) + b"more"),
        changed(batch(NOW_MS), body=bytes(batch(NOW_MS)[HEADER_SIZE_BYTES:-3])),
    ],
    ids=[
        "garbage",
        "gzip",
        "zstd",
        "lz4",
        "snappy",
        "snappy of garbage",
        "too many",
        "too few",
        "something behind",
        "truncated",
    ],
)
def test_what_no_reader_can_open_is_refused_for_good(data: bytes, inline_records_max: int) -> None:
    @on_virtual_time
    async def main() -> None:
        with pytest.raises(InvalidBatch, match="no reader could open this batch") as refused:
            await Proved({}, inline_records_max=inline_records_max).prove(data)
        assert isinstance(refused.value.__cause__, CorruptBatch)
        # it would keep what was opened, of up to 64 MiB, as long as the error lives
        assert refused.value.__cause__.__traceback__ is None
        assert await Proved({"bmq.validation": "header"}).prove(data) == data

    main()


@THREAD
def test_what_was_damaged_on_its_way_may_be_sent_again(inline_records_max: int) -> None:
    @on_virtual_time
    async def main() -> None:
        data = bytearray(batch(NOW_MS, NOW_MS))
        data[HEADER_SIZE_BYTES] ^= 0x10
        with pytest.raises(CorruptBatch, match="has CRC"):
            await Proved({}, inline_records_max=inline_records_max).prove(bytes(data))

    main()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_batch_that_decompresses_without_end_is_refused(codec: Codec) -> None:
    @on_virtual_time
    async def main() -> None:
        bomb = changed(batch(NOW_MS, codec=codec), body=compress(codec, bytes(DECOMPRESSED_BYTES_MAX + 1)))
        with pytest.raises(BatchTooLarge):
            await Proved({}).prove(bomb)

    main()


def test_of_a_payload_of_very_many_batches_two_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is what a partition may have: two tell that it is refused."""
    looked_at = 0
    read = batch_headers.read_header

    def counted(*where: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return read(*where)

    monkeypatch.setattr(batch_headers, "read_header", counted)

    @on_virtual_time
    async def main() -> None:
        many = batch(NOW_MS) * 10_000
        assert Proved({}).proofs.begin(Proved({}).tp, many).records is many
        assert looked_at == 2

    main()


def test_more_records_than_a_batch_may_have_are_not_even_counted() -> None:
    """The owner refuses them by the header; 9 million records in 6 KB would take seconds to walk."""

    @on_virtual_time
    async def main() -> None:
        bomb = changed(
            batch(NOW_MS, codec=Codec.ZSTD),
            body=compress(Codec.ZSTD, bytes([0x0C, 0, 0, 0, 1, 1, 0]) * 300_000),
            count=300_000,
        )
        proof = Proved({}).proofs.begin(Proved({}).tp, bomb)
        assert not isinstance(proof, asyncio.Future)
        assert proof.records is bomb

    main()


@THREAD
def test_lies_inside_records_are_found_where_the_topic_asks_for_it(inline_records_max: int) -> None:
    @on_virtual_time
    async def main() -> None:
        body = bytearray(batch(NOW_MS)[HEADER_SIZE_BYTES:])
        assert body[4] == 2 * len(b"key")
        body[4] += 2  # the key takes a byte of what follows
        lying = changed(batch(NOW_MS), body=bytes(body))
        with pytest.raises(InvalidBatch):
            await Proved({"bmq.validation": "records"}, inline_records_max=inline_records_max).prove(lying)

    main()


@THREAD
@EVERY_CODEC
def test_a_largest_timestamp_that_is_not_the_records_is_corrected(codec: Codec, inline_records_max: int) -> None:
    @on_virtual_time
    async def main() -> None:
        proved = Proved({"bmq.validation": "records"}, inline_records_max=inline_records_max)
        for claimed_ms in (NOW_MS - 10_000, NOW_MS + 10_000):
            data = changed(batch(NOW_MS, NOW_MS + 500, NOW_MS + 3, codec=codec), max_timestamp_ms=claimed_ms)
            found = await proved.prove(data)
            header = read_header(found)
            assert header.max_timestamp_ms == NOW_MS + 500
            assert crc32c(found[21:]) == header.crc
            assert [record.timestamp_ms for record in iterate_records(found, header)] == [
                NOW_MS,
                NOW_MS + 500,
                NOW_MS + 3,
            ]

    main()


def test_a_record_too_old_for_the_topic_is_found_behind_a_young_one() -> None:
    @on_virtual_time
    async def main() -> None:
        configs = {"bmq.validation": "records", "message.timestamp.before.max.ms": "1000"}
        with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.before\.max\.ms"):
            await Proved(configs).prove(batch(NOW_MS, NOW_MS - 1_001))

    main()


def test_a_topic_that_changes_its_mind_is_heard_at_once() -> None:
    @on_virtual_time
    async def main() -> None:
        metadata = MemoryMetadata()
        topic = metadata.add_topic("orders", 1, {"bmq.validation": "header"})
        proofs = Proofs(metadata, {}, clock=MemoryClock())
        garbage = changed(batch(NOW_MS), body=b"\xff" * 20)
        tp = TopicPartition(topic.topic_id, 0)
        assert proofs.begin(tp, garbage).records is garbage
        now = type(topic)(
            topic_id=topic.topic_id, name=topic.name, partitions=topic.partitions, configs={"bmq.validation": "lengths"}
        )
        metadata.change(topics={topic.topic_id: now})
        with pytest.raises(InvalidBatch):
            proofs.begin(tp, garbage)

    main()


def test_a_client_is_told_which_batch_is_refused_and_the_others_are_taken() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("bills", 3)
        garbage = changed(batch(NOW_MS), body=b"\xff" * 20)
        client.send_produce("bills", {0: batch(NOW_MS), 1: garbage, 2: batch(NOW_MS)})
        _, reply = await client.receive()
        answers = reply.responses[0].partition_responses
        assert [answer.error_code for answer in answers] == [0, ErrorCode.invalid_record, 0]
        assert "no reader could open this batch" in answers[1].error_message

    run(test)


def test_a_second_batch_for_a_partition_in_one_request_is_refused_alone() -> None:
    """Thousands of them, proved one after the other, were looked through thousands of times when they were given up."""

    async def test(proxy: Running, client: Client) -> None:
        partitions = [{"index": index, "records": batch(NOW_MS)} for index in (0, 1, 0)]
        proxy.metadata.add_topic("bills", 2)
        client.send(
            0, 9, {"acks": -1, "timeout_ms": 1_000, "topic_data": [{"name": "bills", "partition_data": partitions}]}
        )
        _, reply = await client.receive()
        answers = reply.responses[0].partition_responses
        assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.invalid_request]
        assert "send one batch for a partition" in answers[2].error_message

    run(test)


def test_a_batch_that_takes_long_to_prove_is_not_overtaken_on_its_connection() -> None:
    async def test(proxy: Running, client: Client) -> None:
        slow = batch(*[NOW_MS] * 20, codec=Codec.GZIP, value=bytes(range(256)) * 40)
        many = batch(*[NOW_MS] * 2_000)
        quick = batch(NOW_MS)
        assert len(slow) < INLINE_COMPRESSED_BYTES_MAX < len(batch(*[NOW_MS] * 20, value=bytes(range(256)) * 40))
        sent: list[tuple[bytes, int]] = [(slow, 20), (quick, 1), (many, 2_000), (quick, 1), (slow, 20)]
        for data, _ in sent:
            client.send_produce("orders", {0: data})
        expected = 0
        for _, count in sent:
            answer: Any = (await client.receive())[1].responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, expected)
            expected += count

    run(test)
