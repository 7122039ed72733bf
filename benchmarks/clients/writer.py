"""librdkafka as an application uses it: a few records a second to each of some partitions, and when each was
acknowledged.

With librdkafka's defaults but for the linger: a plain producer, acks=all.
"""

import os
import threading
from collections.abc import Sequence
from itertools import count, cycle, pairwise
from time import perf_counter
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer
from tests.waiting import until, until_async

VALUE = os.urandom(1024)
WRITTEN_S = 60.0


class Acknowledged(NamedTuple):
    """One record. Times are `perf_counter()` of this process."""

    partition: int
    sent_s: float
    at_s: float


class SteadyWriter:
    """Writes from `start` to `stop`, in a thread of its own."""

    def __init__(self, address: str, topic: str, partitions: Sequence[int], *, per_s: float) -> None:
        """`per_s`: records a second over all of the partitions, which take turns."""
        self.acknowledged: list[Acknowledged] = []
        self.failed: list[str] = []
        self._topic = topic
        self._partitions = tuple(partitions)
        self._interval_s = 1 / per_s
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "acks": "all"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        until(
            lambda: len({one.partition for one in self.acknowledged}),
            "the writer to get through",
            holds=lambda count: count >= len(self._partitions),
            shows=lambda: self.failed[:1],
            every_s=0.01,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not left, f"{left} records were not acknowledged within a minute"

    def last_s(self, partition: int) -> float:
        """When the newest record sent of those that are acknowledged was sent."""
        return next((one.sent_s for one in reversed(self.acknowledged) if one.partition == partition), 0.0)

    async def until_written(self, partitions: Sequence[int], *, since_s: float) -> float:
        """Until a record that was sent after `since_s` is acknowledged in each of them; when the last of them first had
        one.
        """
        await until_async(
            lambda: [index for index in partitions if self.last_s(index) < since_s],
            "an acknowledgement in each partition",
            WRITTEN_S,
            holds=lambda waiting: not waiting,
            every_s=0.005,
        )
        return max(
            next(one.at_s for one in self.acknowledged if one.partition == index and one.sent_s >= since_s)
            for index in partitions
        )

    def stood_still_s(self, partition: int, *, since_s: float) -> float:
        """The longest time between two acknowledgements in a row, of which the second came after `since_s`."""
        times = [one.at_s for one in self.acknowledged if one.partition == partition]
        return max((after - before for before, after in pairwise(times) if after >= since_s), default=0.0)

    def _write(self) -> None:
        turns = cycle(self._partitions)
        began_s = perf_counter()
        for number in count():
            if self._stop.is_set():
                return
            partition, sent_s = next(turns), perf_counter()

            def delivered(
                error: KafkaError | None, _: Message, partition: int = partition, sent_s: float = sent_s
            ) -> None:
                if error is None:
                    self.acknowledged.append(Acknowledged(partition, sent_s, perf_counter()))
                else:
                    self.failed.append(str(error))

            self._producer.produce(self._topic, VALUE, partition=partition, on_delivery=delivered)
            while (left_s := began_s + (number + 1) * self._interval_s - perf_counter()) > 0:
                self._producer.poll(min(left_s, 0.05))
            self._producer.poll(0)


class Filler:
    """Writes much at once and waits for it."""

    def __init__(self, address: str, *, record_bytes: int = 32 << 10) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "linger.ms": 5,
                "acks": "all",
                "batch.size": 512 << 10,
                "queue.buffering.max.kbytes": 256 << 10,
            }
        )
        self._value = os.urandom(record_bytes)

    def fill(self, topic: str, partition: int, size_bytes: int) -> None:
        """Returns when it is acknowledged."""
        failed: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(str(error))

        for _ in range(size_bytes // len(self._value)):
            self._producer.produce(topic, self._value, partition=partition, on_delivery=delivered)
            self._producer.poll(0)
        left = self._producer.flush(120)
        assert not left and not failed, f"{left} records were not acknowledged, {failed[:1]}"
