"""Readers of the simulated workload: one that follows a partition, and one that reads all of it in the end."""

import asyncio
from collections.abc import Iterator
from typing import Any

from bmq.wire.batches import check_crc, iterate_records, split
from bmq.wire.messages import Message
from bmq_sim.client import (
    FETCH,
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    OFFSET_OUT_OF_RANGE,
    RETRIABLE,
    ConnectionLost,
    KafkaConnection,
    SimClient,
)
from bmq_sim.history import EndOffset, FinalLog, FinalRecord, History, OutOfRange, Place, SeenRecord, StartOffset

LATEST = -1
EARLIEST = -2
FETCH_BYTES_MAX = 64 * 1024
FINAL_FETCH_BYTES_MAX = 1024 * 1024
SESSIONS_SHARE = 0.5
"""Of those who follow a partition."""


def fetch_fields(place: Place, offset: int, *, max_wait_ms: int, max_bytes: int = FETCH_BYTES_MAX) -> dict[str, Any]:
    """A Fetch of one partition, without a session."""
    part = {"partition": place.partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "topics": [{"topic": place.name, "partitions": [part]}],
    }


def records_of(part: Message, offset: int) -> Iterator[FinalRecord]:
    """The records of a fetched partition at and above `offset`; every batch's CRC is checked."""
    data = part.records or b""
    for header in split(data):
        check_crc(data, header)
        for record in iterate_records(data, header):
            if record.offset >= offset:
                yield FinalRecord(
                    offset=record.offset,
                    value=record.value or b"",
                    leader_epoch=header.leader_epoch,
                    timestamp_ms=record.timestamp_ms,
                    producer_id=header.producer_id,
                )


class FetchSession:
    """An incremental fetch session of one partition with one node (KIP-227), as Kafka's clients have one with each."""

    def __init__(self) -> None:
        self._at: KafkaConnection | None = None
        self._id = 0
        self._epoch = 0
        self._told: tuple[int, int] | None = None
        """What the session has of the partition: where to fetch, and how much."""

    def forget(self) -> None:
        """The next Fetch begins a new one."""
        self._at = None

    def request(self, connection: KafkaConnection, fields: dict[str, Any]) -> dict[str, Any]:
        """The Fetch with the session's numbers, naming the partition only where something of it has changed."""
        if connection is not self._at:
            self._at, self._id, self._epoch, self._told = connection, 0, 0, None
        [topic] = fields["topics"]
        [part] = topic["partitions"]
        now = (part["fetch_offset"], part["partition_max_bytes"])
        topics = fields["topics"] if now != self._told else []
        self._told = now
        return {**fields, "topics": topics, "session_id": self._id, "session_epoch": self._epoch, "forgotten_topics_data": []}

    def answered(self, answer: Message) -> bool:
        """Whether it goes on; if not, the next Fetch begins a new one."""
        if answer.error_code or not answer.session_id:
            self.forget()
            return not answer.error_code
        self._id = answer.session_id
        self._epoch += 1
        return True


class PartitionReader:
    """Fetches on and on from an offset and keeps what it sees. `position` is the next offset that it wants."""

    def __init__(self, client: SimClient, history: History, place: Place, *, reader: str, position: int, session: FetchSession | None = None) -> None:
        """`session` None: it fetches without one."""
        self._session = session
        self._client = client
        self._history = history
        self._place = place
        self._reader = reader
        self.position = position

    async def fetch(self, *, max_wait_ms: int, max_bytes: int = FETCH_BYTES_MAX) -> int:
        """One Fetch; returns how many records came. Raises ConnectionLost where it has to be tried again."""
        asked = self._history.turn()
        connection = await self._client.leader(self._place)
        fields = fetch_fields(self._place, self.position, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
        answer = await self._answer(connection, fields)
        if answer.error_code in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH) and self._session is not None:
            raise ConnectionLost("the session is gone")
        if answer.error_code:
            self._history.refused.append(f"{self._place}: Fetch without a session was told {answer.error_code}")
            raise ConnectionLost("refused")
        if not answer.responses:
            return 0  # of a session: nothing is new
        part = answer.responses[0].partitions[0]
        match part.error_code:
            case 0:
                return self._take(part)
            case code if code == OFFSET_OUT_OF_RANGE:
                self._history.out_of_range.append(OutOfRange(asked=asked, place=self._place, offset=self.position))
                self.position = max(self.position, await start_offset(self._client, self._history, self._place))
                return 0
            case code if code in RETRIABLE:
                self._client.forget_leaders()
                raise ConnectionLost(f"error {code}")
            case code:
                self._history.refused.append(f"{self._place}: Fetch at {self.position} was told {code}")
                raise ConnectionLost("refused")

    async def _answer(self, connection: KafkaConnection, fields: dict[str, Any]) -> Message:
        session = self._session
        if session is None:
            return await connection.send(FETCH, fields)
        try:
            answer = await connection.send(FETCH, session.request(connection, fields))
        except ConnectionLost:
            session.forget()
            raise
        session.answered(answer)
        return answer

    def _take(self, part: Message) -> int:
        count = 0
        for record in records_of(part, self.position):
            self._history.seen.append(
                SeenRecord(
                    turn=self._history.turn(),
                    reader=self._reader,
                    place=self._place,
                    offset=record.offset,
                    value=record.value,
                    leader_epoch=record.leader_epoch,
                    timestamp_ms=record.timestamp_ms,
                    high_watermark=part.high_watermark,
                )
            )
            self.position = record.offset + 1
            count += 1
        return count


class FollowingConsumer:
    """Follows a partition until it is told to stop; asks now and then for the end offset."""

    def __init__(self, client: SimClient, history: History, place: Place) -> None:
        self._client = client
        self._history = history
        self._place = place
        session = FetchSession() if client.rng.random() < SESSIONS_SHARE else None
        self._reader = PartitionReader(client, history, place, reader=client.name, position=0, session=session)

    async def run(self) -> None:
        """Never returns: cancel it."""
        rng = self._client.rng
        attempt = 0
        while True:
            try:
                await self._reader.fetch(max_wait_ms=rng.choice((0, 100, 500)), max_bytes=rng.choice((1, 300, FETCH_BYTES_MAX)))
                attempt = 0
            except ConnectionLost:
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)
                continue
            if rng.random() < 0.15:
                await end_offset(self._client, self._history, self._place)
            await asyncio.sleep(rng.random() * 0.2)


async def end_offset(client: SimClient, history: History, place: Place) -> int:
    """The latest offset, kept in the history."""
    asked = history.turn()
    offset = await client.list_offset(place, LATEST)
    history.ends.append(EndOffset(asked=asked, told=history.turn(), place=place, offset=offset))
    return offset


async def start_offset(client: SimClient, history: History, place: Place) -> int:
    """The earliest offset, kept in the history."""
    asked = history.turn()
    offset = await client.list_offset(place, EARLIEST)
    history.starts.append(StartOffset(asked=asked, told=history.turn(), place=place, offset=offset))
    return offset


async def read_final(client: SimClient, history: History, place: Place) -> FinalLog:
    """The whole partition from its start to its end, through the front door; kept in the history."""
    end = await end_offset(client, history, place)
    start = await start_offset(client, history, place)
    records: list[FinalRecord] = []
    position = start
    attempt = 0
    while position < end:
        try:
            connection = await client.leader(place)
            answer = await connection.send(FETCH, fetch_fields(place, position, max_wait_ms=100, max_bytes=FINAL_FETCH_BYTES_MAX))
        except ConnectionLost:
            client.forget_leaders()
            attempt += 1
            await client.back_off(attempt)
            continue
        part = answer.responses[0].partitions[0]
        if part.error_code == OFFSET_OUT_OF_RANGE:
            raised = await start_offset(client, history, place)
            if raised > position:  # retention, meanwhile
                start = position = raised
                records.clear()
                continue
        if part.error_code and part.error_code not in RETRIABLE:
            history.refused.append(f"{place}: Fetch at {position} of {start} to {end} was told {part.error_code}")
            break
        found = list(records_of(part, position)) if not part.error_code else []
        records += found
        if found:
            position = found[-1].offset + 1
        else:
            attempt += 1
            await client.back_off(attempt)
    log = FinalLog(start=start, end=end, records=tuple(record for record in records if record.offset < end))
    history.final[place] = log
    return log
