"""A producer whose numbers go wrong, as those of a broken client or of an old one that wakes up: what has to be refused
is never taken.

Between batches that are right it sends one again, leaves a number out, goes on with an epoch that is over, or begins
one in the middle. Each request goes to one of several hosts, so that owners are asked, too, that were replaced and know
less than their successor.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import cycle

from bmq.wire.messages import Message
from bmq.wire.records import Record, build_batch
from bmq_sim.client import (
    DUPLICATE_SEQUENCE_NUMBER,
    INIT_PRODUCER_ID,
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    PRODUCE,
    RETRIABLE,
    ConnectionLost,
    KafkaConnection,
    SimClient,
)
from bmq_sim.clock import true_now_ms
from bmq_sim.history import Attempt, History, Place
from bmq_sim.producer import produce_fields

AGAIN_MAX = 10
"""So many of the last batches it may send again: fewer than an owner remembers."""


class OddProducer:
    """Writes to one partition, with one batch in flight that is right, and at times one behind it that is not."""

    def __init__(
        self, name: str, clients: Sequence[SimClient], history: History, place: Place, *, batches: int, pace_s: float
    ) -> None:
        """`clients`: one for each host that it asks."""
        self._name = name
        self._clients = clients
        self._rng = clients[0].rng
        self._history = history
        self._place = place
        self._batches = batches
        self._pace_s = pace_s
        self._producer_id = -1
        self._epoch = 0
        self._sequence = 0
        self._records = 0
        self._done: deque[tuple[bytes, int, int]] = deque(maxlen=AGAIN_MAX)
        """Batches of this epoch, with their base offsets (-1: not told) and when they were appended (-1: not told, or
        the time is the producer's)."""
        self._old: bytes | None = None
        """A batch of an epoch that is over, which nobody has had."""

    async def run(self) -> None:
        """Returns when every batch that is right is acknowledged, and every other one refused."""
        await self._begin()
        for number in range(self._batches):
            await self._next(with_one_behind=number > 0 and self._rng.random() < 1 / 3)
            await asyncio.sleep(self._pace_s * self._rng.random())
            await self._rng.choice((self._again, self._leave_out, self._go_back, self._begin_epoch, self._nothing))()

    async def _begin(self) -> None:
        # of the hosts there may be one where nobody lives any more
        for attempt, client in enumerate(cycle(self._clients), start=1):
            with contextlib.suppress(ConnectionLost):
                answer = await (await client.connection()).send(
                    INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 60_000}
                )
                if not answer.error_code:
                    self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                    return
            await client.back_off(attempt)

    async def _nothing(self) -> None:
        return

    async def _next(self, *, with_one_behind: bool) -> None:
        """The next batch, until it is acknowledged; directly behind it, once, one that leaves numbers out."""
        count = self._rng.randint(1, 3)
        behind = self._odd(ahead=count + self._rng.randint(1, 3)) if with_one_behind else None
        values = tuple(f"{self._name}:{self._place}:{self._records + index}".encode() for index in range(count))
        attempt = Attempt(
            producer=self._name,
            place=self._place,
            values=values,
            idempotent=True,
            sent=self._history.turn(),
            timestamp_ms=true_now_ms(),
        )
        self._history.attempts.append(attempt)
        data = self._batch(values, epoch=self._epoch, sequence=self._sequence)
        attempt.size_bytes = len(data)
        part = await self._answered(data, (0, DUPLICATE_SEQUENCE_NUMBER), "the next batch", behind=behind)
        attempt.acknowledged = self._history.turn()
        attempt.base_offset = part.base_offset if part.error_code == 0 else -1
        self._sequence += count
        self._records += count
        self._done.append((data, attempt.base_offset, part.log_append_time_ms))

    async def _again(self) -> None:
        """One of the last batches: it is there already, where it was."""
        data, base_offset, append_time_ms = self._rng.choice(self._done)
        part = await self._answered(data, (0, DUPLICATE_SEQUENCE_NUMBER), "a batch that it has")
        if part.error_code == 0 and base_offset >= 0 and part.base_offset != base_offset:
            self._wrong(f"a batch that is at {base_offset} is at {part.base_offset} now")
        if part.error_code == 0 and append_time_ms >= 0 and part.log_append_time_ms != append_time_ms:
            self._wrong(f"a batch that was appended at {append_time_ms} was appended at {part.log_append_time_ms} now")

    async def _leave_out(self) -> None:
        """A batch whose predecessor does not exist."""
        await self._answered(self._odd(ahead=self._rng.randint(1, 4)), (OUT_OF_ORDER_SEQUENCE_NUMBER,), "a gap")

    async def _go_back(self) -> None:
        """A batch of an epoch that is over."""
        if self._old is not None:
            await self._answered(self._old, (INVALID_PRODUCER_EPOCH,), "an epoch that is over")

    async def _begin_epoch(self) -> None:
        """As clients do by themselves after an error: the next epoch begins with sequence 0, and with no other."""
        self._old = self._odd(ahead=0)
        self._epoch, self._sequence = self._epoch + 1, 0
        await self._answered(
            self._odd(ahead=self._rng.randint(1, 4)), (OUT_OF_ORDER_SEQUENCE_NUMBER,), "an epoch begun in the middle"
        )
        self._done.clear()
        await self._next(with_one_behind=False)

    def _odd(self, *, ahead: int) -> bytes:
        """One that nobody may ever find in the log: it is no attempt of the history's."""
        return self._batch((f"{self._name}:never".encode(),), epoch=self._epoch, sequence=self._sequence + ahead)

    def _batch(self, values: Sequence[bytes], *, epoch: int, sequence: int) -> bytes:
        records = [Record(0, true_now_ms(), None, value) for value in values]
        return build_batch(records, producer_id=self._producer_id, producer_epoch=epoch, base_sequence=sequence)

    async def _answered(self, data: bytes, right: Sequence[int], what: str, *, behind: bytes | None = None) -> Message:
        """What comes of it in the end, at whichever host it is asked; an answer that no correct server gives is kept in
        the history.
        """
        attempt = 0
        while True:
            client = self._rng.choice(self._clients)
            try:
                connection = await client.leader(self._place)
                answer = connection.send(PRODUCE, produce_fields(self._place, data))
                if behind is not None:
                    follows, behind = connection.send(PRODUCE, produce_fields(self._place, behind)), None
                    follows.add_done_callback(partial(self._look_behind, connection))
                part: Message = (await answer).responses[0].partition_responses[0]
            except ConnectionLost:
                client.forget_leaders()
            else:
                if part.error_code in right:
                    return part
                if part.error_code not in RETRIABLE:
                    self._wrong(f"{what} was answered with {part.error_code}")
                    return part
                client.forget_leaders()
            attempt += 1
            await client.back_off(attempt)

    def _look_behind(self, connection: KafkaConnection, answer: "asyncio.Future[Message]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        code = answer.result().responses[0].partition_responses[0].error_code
        if code in RETRIABLE:
            connection.close()  # on which a proxy would wait for it
        elif code != OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._wrong(f"a gap behind a batch on its way was answered with {code}")

    def _wrong(self, what: str) -> None:
        self._history.refused.append(f"{self._place}: {self._name}: {what}")
