"""Writes orders to a sidecar: python write.py [URL]"""

import asyncio
import sys

from bmq_databus.client import AsyncDatabus, Databus, Message

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8600"

# One after the other: send returns when it is written, and raises where it is not.
with Databus(url) as databus:
    result = databus.send("orders", Message(key="4711", json={"total": 5}))
    print(f"written to partition {result.partition} at offset {result.offset}")

    # Many: the writer puts them together while they come, in their order.
    with databus.writer("orders") as writer:
        futures = [writer.send(Message(key=str(number), json={"total": number})) for number in range(1_000)]
    print(f"{sum(future.result().is_written for future in futures)} written")


async def main() -> None:
    async with AsyncDatabus(url) as databus, databus.writer("orders") as writer:
        results = [await writer.send(Message(value=f"order {number}")) for number in range(1_000)]
        print(f"{sum(result.is_written for result in await asyncio.gather(*results))} written")


asyncio.run(main())
