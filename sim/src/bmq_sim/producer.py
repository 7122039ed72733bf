"""Producers of the simulated workload: an idempotent one that behaves as librdkafka does, and a plain one that sends
everything once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from bmq.wire.messages import Message
from bmq.wire.records import Record, build_batch
from bmq_sim.client import (
    DUPLICATE_SEQUENCE_NUMBER,
    INIT_PRODUCER_ID,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    PRODUCE,
    PRODUCE_BY_ID,
    RETRIABLE,
    ConnectionLost,
    KafkaConnection,
    SimClient,
)
from bmq_sim.clock import true_now_ms
from bmq_sim.history import Attempt, History, Place

IN_FLIGHT_MAX = 5
TIMEOUT_MS = 30_000
BATCH_RECORDS_MAX = 4
NO_PARTITION = 1_000
"""There is none of this number."""
TO_ANOTHER = 0.3
"""How probable it is that a producer of several connections goes on over another one."""
BUFFERED_BATCHES_MAX = 100
"""As a real producer's `buffer.memory`: it makes no more while so many wait."""


@dataclass(slots=True)
class _Batch:
    attempt: Attempt
    data: bytes


class _InFlight(NamedTuple):
    batch: _Batch
    answer: "asyncio.Future[Message]"
    connection: KafkaConnection
    overtakes: bool
    """What precedes it was under way over another connection."""


def produce_fields(place: Place, data: bytes, *, topic_id: UUID | None = None, of_none: int = 0) -> dict[str, object]:
    """A Produce request with one batch, acks=all; its topic by id where one is given (PRODUCE_BY_ID), otherwise by
    name. `of_none`: it is there again so many times, for partitions that there are not.
    """
    indexes = (place.partition, *range(NO_PARTITION, NO_PARTITION + of_none))
    parts = [{"index": index, "records": data} for index in indexes]
    topic = {"name": place.name} if topic_id is None else {"topic_id": topic_id}
    return {"acks": -1, "timeout_ms": TIMEOUT_MS, "topic_data": [{**topic, "partition_data": parts}]}


def _part(answer: Message) -> Message:
    part: Message = answer.responses[0].partition_responses[0]
    return part


HeadersOf = Callable[[bytes], Sequence[tuple[str, bytes]]]
"""The headers of a record, by its value."""


def no_headers(_: bytes) -> Sequence[tuple[str, bytes]]:
    """None."""
    return ()


Age = Callable[[int], int]
"""How many ms before now the records of a batch say that they were made, by the batch's number."""


def young(_: int) -> int:
    """Made at this moment."""
    return 0


class _Values:
    """Values that are unique in a run, and whose batches come at seeded moments."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        place: Place,
        *,
        batch_records_max: int,
        age_ms: Age = young,
        headers_of: HeadersOf = no_headers,
    ) -> None:
        self.age_ms = age_ms
        self.headers_of = headers_of
        self.batch_records_max = batch_records_max
        self.client = client
        self.history = history
        self.place = place
        self.records = 0
        self.batches = 0

    def next(self, *, idempotent: bool) -> tuple[Attempt, list[Record]]:
        count = self.client.rng.randint(1, self.batch_records_max)
        timestamp_ms = true_now_ms() - self.age_ms(self.batches)
        values = tuple(f"{self.client.name}:{self.place}:{self.records + index}".encode() for index in range(count))
        self.records += count
        attempt = Attempt(
            producer=self.client.name,
            place=self.place,
            values=values,
            idempotent=idempotent,
            sent=self.history.turn(),
            number=self.batches,
            timestamp_ms=timestamp_ms,
        )
        self.batches += 1
        self.history.attempts.append(attempt)
        return attempt, [Record(0, timestamp_ms, None, value, self.headers_of(value)) for value in values]


class IdempotentProducer:
    """Sends batches of one partition with sequences: at most five in flight, order kept, everything tried again until
    it is acknowledged.
    """

    def __init__(
        self,
        client: SimClient,
        history: History,
        place: Place,
        *,
        batches: int,
        pace_s: float,
        batch_records_max: int = BATCH_RECORDS_MAX,
        topic_id: UUID | None = None,
        of_none: int = 0,
        headers_of: HeadersOf = no_headers,
        elsewhere: SimClient | None = None,
    ) -> None:
        """`topic_id`: what it calls the topic; None: by its name. `of_none`: see `produce_fields`. `elsewhere`: where
        it sends some batches while others are under way, as when its partition goes from one proxy to another.
        """
        self._elsewhere = elsewhere
        self._client = client
        self._history = history
        self._place = place
        self._topic_id = topic_id
        self._of_none = of_none
        self._values = _Values(client, history, place, batch_records_max=batch_records_max, headers_of=headers_of)
        self._batches_left = batches
        self._pace_s = pace_s
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._waiting: deque[_Batch] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._together = client.rng.choice((1, 1, 3, IN_FLIGHT_MAX))
        """As a real producer's `linger.ms`: it sends when it has so many, one behind the other."""

    def stop(self) -> None:
        """Makes no more batches; `run` returns when those that there are are acknowledged."""
        self._batches_left = 0
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> None:
        """Returns when every batch is acknowledged, or an answer came after which a real producer gives up."""
        await self._begin()
        maker = asyncio.get_running_loop().create_task(self._make(), name=f"{self._client.name} makes")
        try:
            attempt = 0
            while self._batches_left or self._waiting:
                try:
                    connections = [await self._client.leader(self._place)]
                    if self._elsewhere is not None:
                        connections.append(await self._elsewhere.connection())
                    await self._send_all(connections)
                    attempt = 0
                except ConnectionLost:
                    self._client.forget_leaders()
                if self._history.refused:
                    return
                attempt += 1
                await self._client.back_off(attempt)
        finally:
            maker.cancel()

    async def _begin(self) -> None:
        attempt = 0
        while True:
            answer = await self._client.call(
                INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 60_000}
            )
            if not answer.error_code:
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
                return
            if answer.error_code not in RETRIABLE:
                self._history.refused.append(f"InitProducerId: error {answer.error_code}")
            attempt += 1
            await self._client.back_off(attempt)

    async def _make(self) -> None:
        rng = self._client.rng
        while self._batches_left:
            if len(self._waiting) >= BUFFERED_BATCHES_MAX:
                await asyncio.sleep(self._pace_s)
                continue
            attempt, records = self._values.next(idempotent=True)
            data = build_batch(
                records,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=self._sequence,
            )
            attempt.size_bytes = len(data)
            self._sequence += len(records)
            self._waiting.append(_Batch(attempt, data))
            self._batches_left -= 1
            if self._wake is not None and not self._wake.done():
                self._wake.set_result(None)
            await asyncio.sleep(self._pace_s * rng.random() * (5 if rng.random() < 0.2 else 0.2))

    async def _send_all(self, connections: Sequence[KafkaConnection]) -> None:
        """Sends on one connection after another until something has to be tried again (or nothing is left); then
        everything is back in `_waiting`, in order.
        """
        again: list[_Batch] = []
        connection = connections[0]
        while self._in_flight or not again:
            is_due = len(self._waiting) >= self._together or not self._batches_left
            while is_due and not again and self._waiting and len(self._in_flight) < IN_FLIGHT_MAX:
                batch = self._waiting.popleft()
                version = None if self._topic_id is None else PRODUCE_BY_ID
                fields = produce_fields(self._place, batch.data, topic_id=self._topic_id, of_none=self._of_none)
                if len(connections) > 1 and self._client.rng.random() < TO_ANOTHER:
                    connection = self._client.rng.choice(connections)
                overtakes = any(one.connection is not connection for one in self._in_flight)
                answer = connection.send(PRODUCE, fields, version=version)
                self._in_flight.append(_InFlight(batch, answer, connection, overtakes))
            if not self._in_flight:
                if not self._batches_left:
                    break
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
                continue
            batch, answer, _, overtakes = self._in_flight[0]
            if not again and len(self._in_flight) < IN_FLIGHT_MAX and self._batches_left:
                self._wake = asyncio.get_running_loop().create_future()
                await asyncio.wait((answer, self._wake), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    continue
            try:
                part = _part(await answer)
            except ConnectionLost:
                self._in_flight.popleft()
                self._client.forget_leaders()
                again.append(batch)
                continue
            self._in_flight.popleft()
            if not self._judge(batch, part, after_failure=bool(again) or overtakes):
                again.append(batch)
        self._waiting.extendleft(reversed(again))

    def _judge(self, batch: _Batch, part: Message, *, after_failure: bool) -> bool:
        """Whether the batch is done with."""
        code = part.error_code
        if code in (0, DUPLICATE_SEQUENCE_NUMBER):
            batch.attempt.acknowledged = self._history.turn()
            batch.attempt.base_offset = part.base_offset if code == 0 else -1
            return True
        if code in RETRIABLE:
            self._client.forget_leaders()
            return False
        if code == OUT_OF_ORDER_SEQUENCE_NUMBER and after_failure:
            return False  # an earlier one has to be sent again first
        self._history.refused.append(
            f"{self._place}: {self._client.name} was told {code} for batch {batch.attempt.number} "
            f"{batch.attempt.values!r}"
        )
        return False


class PlainProducer:
    """Sends each batch once, several in flight; what is not acknowledged is not sent again."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        place: Place,
        *,
        batches: int,
        pace_s: float,
        batch_records_max: int = BATCH_RECORDS_MAX,
        age_ms: Age = young,
    ) -> None:
        self._client = client
        self._history = history
        self._place = place
        self._values = _Values(client, history, place, batch_records_max=batch_records_max, age_ms=age_ms)
        self._batches = batches
        self._pace_s = pace_s
        self._stopped = False

    def stop(self) -> None:
        """Sends no more."""
        self._stopped = True

    async def run(self) -> None:
        """Returns when every batch was answered or lost."""
        rng = self._client.rng
        answers: list[asyncio.Task[None]] = []
        for _ in range(self._batches):
            if self._stopped:
                break
            connection = await self._connected()
            attempt, records = self._values.next(idempotent=False)
            attempt.connection = connection.number
            data = build_batch(records)
            attempt.size_bytes = len(data)
            answer = connection.send(PRODUCE, produce_fields(self._place, data))
            answers.append(asyncio.get_running_loop().create_task(self._await(attempt, answer)))
            await asyncio.sleep(self._pace_s * rng.random() * (5 if rng.random() < 0.2 else 0.2))
        await asyncio.gather(*answers)

    async def _connected(self) -> KafkaConnection:
        attempt = 0
        while True:
            try:
                return await self._client.leader(self._place)
            except ConnectionLost:
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)

    async def _await(self, attempt: Attempt, answer: "asyncio.Future[Message]") -> None:
        try:
            part = _part(await answer)
        except ConnectionLost:
            self._client.forget_leaders()
            return
        if part.error_code == 0:
            attempt.acknowledged = self._history.turn()
            attempt.base_offset = part.base_offset
        elif part.error_code in RETRIABLE:
            self._client.forget_leaders()
        else:
            self._history.refused.append(
                f"{self._place}: {self._client.name} was told {part.error_code} for {attempt.values!r}"
            )
