"""A client on bare sockets: requests made once and sent as they are, answers looked at as far as needed. For latencies
and requests per second.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from tests.waiting import until_async

from bmq.wire.batches import Record, build_batch
from bmq.wire.frames import encode_request_frame
from bmq.wire.messages import encode_request

PRODUCE, PRODUCE_VERSION = 0, 8
FETCH, FETCH_VERSION = 1, 11
_BATCH = struct.Struct(">qi")
_FETCHED = struct.Struct(">ihqqqi")
NOT_LEADER = 6
EACH_S = 60.0
Answered = Callable[[memoryview], None]


class Connection(asyncio.Protocol):
    """Answers come in the order of the requests, so each is handed to the oldest callback."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Answered] = deque()
        self._received = bytearray()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connected to this machine's port."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        received = self._received
        received += data
        position, size = 0, len(received)
        with memoryview(received) as view:
            while size - position >= 4:
                end = position + 4 + int.from_bytes(view[position : position + 4], "big")
                if end > size:
                    break
                with view[position + 4 : end] as answer:
                    self._waiting.popleft()(answer)
                position = end
        del received[:position]

    def send(self, frames: bytes, *answered: Answered) -> None:
        """One callback per request in `frames`; each gets the answer without its length, valid only during the call."""
        assert self._transport is not None
        self._waiting.extend(answered)
        self._transport.write(frames)

    def close(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()


def produce_frame(
    topic: str, partition: int, *, records: int, record_bytes: int, fill: bytes, client_id: str = "bench"
) -> bytes:
    """A Produce request, acks=all, of one batch; its values repeat `fill`, which should be random."""
    value = (fill * (record_bytes // len(fill) + 1))[:record_bytes]
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(index, now_ms, None, value) for index in range(records)])
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    body = encode_request(PRODUCE, PRODUCE_VERSION, {"acks": -1, "timeout_ms": 60_000, "topic_data": data})
    return encode_request_frame(
        api_key=PRODUCE, api_version=PRODUCE_VERSION, correlation_id=0, client_id=client_id, body=body
    )


def check_produced(topic: str, answer: memoryview) -> int:
    """The base offset. Raises AssertionError with the error's number."""
    position = 4 + 4 + 2 + len(topic) + 4 + 4
    error, base_offset = struct.unpack_from(">hq", answer, position)
    assert error == 0, f"produce failed with error {error}"
    return int(base_offset)


def fetch_frame(topic: str, partition: int, offset: int, *, client_id: str = "bench") -> bytes:
    """A Fetch of one partition that waits up to half a second for the first byte."""
    partitions = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 4 << 20}]
    fields = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 32 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": partitions}],
    }
    body = encode_request(FETCH, FETCH_VERSION, fields)
    return encode_request_frame(
        api_key=FETCH, api_version=FETCH_VERSION, correlation_id=0, client_id=client_id, body=body
    )


def fetched_to(topic: str, answer: memoryview, offset: int) -> int:
    """The offset behind the last record in the answer; `offset` where there is none. Raises AssertionError with the
    error's number.

    A partition that moves is asked for again, as any client does.
    """
    position = 4 + 4 + 2 + 4 + 4
    if len(answer) <= position:
        return offset
    position += 2 + len(topic) + 4
    _, error, _, _, _, aborted = _FETCHED.unpack_from(answer, position)
    if error == NOT_LEADER:
        return offset
    assert error == 0, f"fetch failed with error {error}"
    position += _FETCHED.size + 16 * max(0, aborted) + 4
    end = position + 4 + max(0, int.from_bytes(answer[position : position + 4], "big", signed=True))
    position += 4
    while end - position >= _BATCH.size:
        base_offset, length = _BATCH.unpack_from(answer, position)
        if position + _BATCH.size + length > end:
            break
        offset = base_offset + int.from_bytes(answer[position + 23 : position + 27], "big") + 1
        position += _BATCH.size + length
    return offset


async def write_to_each(
    port: int, topic: str, frames: Iterable[tuple[int, bytes]], *, in_flight_max: int | None = None
) -> float:
    """Sends a Produce to each partition over one connection, all at once unless bounded; when the last one was
    acknowledged.
    """
    connection = await Connection.open(port)
    waiting: set[int] = set()
    failures: list[str] = []

    def answered(answer: memoryview, index: int) -> None:
        waiting.discard(index)
        try:
            check_produced(topic, answer)
        except AssertionError as error:
            failures.append(f"partition {index}: {error}")

    async def until_at_most(count: int) -> None:
        await until_async(
            lambda: len(waiting),
            f"all but {count} partitions to answer",
            EACH_S,
            holds=lambda left: left <= count,
            unless=connection.lost.done,
            every_s=0.002,
        )

    for index, frame in frames:
        if in_flight_max is not None:
            await until_at_most(in_flight_max - 1)
        waiting.add(index)
        connection.send(frame, lambda answer, index=index: answered(answer, index))
    await until_at_most(0)
    connection.close()
    assert not failures, f"{len(failures)} records failed: {failures[0]}"
    return time.perf_counter()
