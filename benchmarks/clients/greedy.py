"""A client that takes all it can get, for a while: `python -m benchmarks.clients.greedy PORT TOPIC produce|fetch
CONNECTIONS SECONDS`.

On bare sockets, with as many requests under way as a connection may have. Prints the MiB that it moved per second.
"""

import asyncio
import os
import sys
from time import perf_counter

from benchmarks.clients.bare import Connection, check_produced, fetch_frame, fetched_to, produce_frame

MIB = 1 << 20
BATCH_RECORDS, RECORD_BYTES = 512, 1024
PRODUCES, FETCHES = 64, 4


async def produce(port: int, topic: str, partition: int, until_s: float) -> int:
    """Bytes that were acknowledged."""
    frame = produce_frame(
        topic, partition, records=BATCH_RECORDS, record_bytes=RECORD_BYTES, fill=os.urandom(509), client_id="greedy"
    )
    connection = await Connection.open(port)
    moved_bytes = 0

    def answered(answer: memoryview) -> None:
        nonlocal moved_bytes
        check_produced(topic, answer)
        moved_bytes += len(frame)
        if perf_counter() < until_s:
            connection.send(frame, answered)

    for _ in range(PRODUCES):
        connection.send(frame, answered)
    await asyncio.sleep(until_s - perf_counter())
    connection.close()
    return moved_bytes


async def fetch(port: int, topic: str, partition: int, until_s: float) -> int:
    """Bytes that came: the partition from its beginning to its end, again and again."""
    connection = await Connection.open(port)
    moved_bytes = 0

    def read(offset: int) -> None:
        def answered(answer: memoryview) -> None:
            nonlocal moved_bytes
            moved_bytes += len(answer)
            if perf_counter() < until_s:
                behind = fetched_to(topic, answer, offset)
                read(behind if behind > offset else 0)

        connection.send(fetch_frame(topic, partition, offset, client_id="greedy"), answered)

    for _ in range(FETCHES):
        read(0)
    await asyncio.sleep(until_s - perf_counter())
    connection.close()
    return moved_bytes


async def main(port: int, topic: str, kind: str, connections: int, seconds: float) -> None:
    """All connections; each has a partition of its own."""
    until_s = perf_counter() + seconds
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context.get("exception")))
    work = produce if kind == "produce" else fetch
    moved = await asyncio.gather(*(work(port, topic, partition, until_s) for partition in range(connections)))
    assert not failures, failures[0]
    print(f"{sum(moved) / MIB / seconds:.1f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
