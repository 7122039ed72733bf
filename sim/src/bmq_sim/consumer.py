"""Readers of the simulated workload: one that follows a partition, and one that reads all of it in the end."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from bmq.wire.batches import check_crc, iterate_records, split
from bmq.wire.messages import Message
from bmq.wire.special_timestamps import EARLIEST, LATEST
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

FETCH_BYTES_MAX = 64 * 1024
FINAL_FETCH_BYTES_MAX = 1024 * 1024
SESSIONS_SHARE = 0.5
"""The share of those who follow a partition that do so with a fetch session."""


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


def joined_fields(several: Sequence[dict[str, Any]], *, min_bytes: int) -> dict[str, Any]:
    """One Fetch of what each of these asks, in their order."""
    topics = [topic for fields in several for topic in fields["topics"]]
    names = list(dict.fromkeys(topic["topic"] for topic in topics))
    together = [
        {
            "topic": name,
            "partitions": [part for topic in topics if topic["topic"] == name for part in topic["partitions"]],
        }
        for name in names
    ]
    return {**several[0], "min_bytes": min_bytes, "topics": together}


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
    """An incremental fetch session with one node (KIP-227), as Kafka's clients have one with each."""

    def __init__(self) -> None:
        self._at: KafkaConnection | None = None
        self._id = 0
        self._epoch = 0
        self._told: dict[tuple[str, int], tuple[int, int]] = {}
        """What the session has of each partition: where to fetch, and how much."""

    def forget(self) -> None:
        """The next Fetch begins a new one."""
        self._at = None

    def request(self, connection: KafkaConnection, fields: dict[str, Any]) -> dict[str, Any]:
        """The Fetch with the session's numbers, naming only partitions of which something has changed, and those that
        are wanted no more.
        """
        if connection is not self._at:
            self._at, self._id, self._epoch, self._told = connection, 0, 0, {}
        wanted = {
            (topic["topic"], part["partition"]): (part["fetch_offset"], part["partition_max_bytes"])
            for topic in fields["topics"]
            for part in topic["partitions"]
        }
        topics = []
        for topic in fields["topics"]:
            changed = [
                part
                for part in topic["partitions"]
                if wanted[place := (topic["topic"], part["partition"])] != self._told.get(place)
            ]
            if changed:
                topics.append({"topic": topic["topic"], "partitions": changed})
        forgotten = [
            {"topic": name, "partitions": [index]} for name, index in self._told if (name, index) not in wanted
        ]
        self._told = wanted
        return {
            **fields,
            "topics": topics,
            "session_id": self._id,
            "session_epoch": self._epoch,
            "forgotten_topics_data": forgotten,
        }

    def answered(self, answer: Message) -> bool:
        """Whether it goes on; if not, the next Fetch begins a new one."""
        if answer.error_code or not answer.session_id:
            self.forget()
            return not answer.error_code
        self._id = answer.session_id
        self._epoch += 1
        return True


async def answer_of(connection: KafkaConnection, fields: dict[str, Any], session: FetchSession | None) -> Message:
    """The answer to a Fetch, in the session or without one. Raises ConnectionLost."""
    if session is None:
        return await connection.send(FETCH, fields)
    try:
        answer = await connection.send(FETCH, session.request(connection, fields))
    except ConnectionLost:
        session.forget()
        raise
    session.answered(answer)
    return answer


def check_whole(answer: Message, session: FetchSession | None, history: History, what: str) -> None:
    """That a Fetch was not refused as a whole. Raises ConnectionLost."""
    if answer.error_code in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH) and session is not None:
        raise ConnectionLost("the session is gone")
    if answer.error_code:
        history.refused.append(f"{what}: Fetch without a session was told {answer.error_code}")
        raise ConnectionLost("refused")


class PartitionReader:
    """Fetches on and on from an offset and keeps what it sees. `position` is the next offset that it wants."""

    def __init__(
        self,
        client: SimClient,
        history: History,
        place: Place,
        *,
        reader: str,
        position: int,
        session: FetchSession | None = None,
    ) -> None:
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
        answer = await answer_of(connection, fields, self._session)
        check_whole(answer, self._session, self._history, str(self._place))
        if not answer.responses:
            return 0  # of a session: nothing is new
        return await self.heard(answer.responses[0].partitions[0], asked=asked)

    async def heard(self, part: Message, *, asked: int) -> int:
        """What a Fetch said of the partition; returns how many records came. Raises ConnectionLost where it has to be
        tried again.
        """
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
                await self._reader.fetch(
                    max_wait_ms=rng.choice((0, 100, 500)), max_bytes=rng.choice((1, 300, FETCH_BYTES_MAX))
                )
                attempt = 0
            except ConnectionLost:
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)
                continue
            if rng.random() < 0.15:
                await end_offset(self._client, self._history, self._place)
            await asyncio.sleep(rng.random() * 0.2)


class SeveralFollower:
    """Follows several partitions by one Fetch of all that one node leads, as Kafka's clients do: whoever owns them."""

    def __init__(self, client: SimClient, history: History, places: Sequence[Place]) -> None:
        self._client = client
        self._history = history
        self._session = FetchSession() if client.rng.random() < SESSIONS_SHARE else None
        self._readers = {
            place.on_the_wire: PartitionReader(
                client, history, place, reader=f"{client.name}-{place.partition}", position=0
            )
            for place in places
        }

    async def run(self) -> None:
        """Never returns: cancel it."""
        attempt = 0
        while True:
            try:
                await self._fetch()
                attempt = 0
            except ConnectionLost:
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)
                continue
            await asyncio.sleep(self._client.rng.random() * 0.2)

    async def _fetch(self) -> None:
        """Those of one leader, in any order; what is heard of one is no reason not to take what is heard of the
        others.
        """
        rng, asked = self._client.rng, self._history.turn()
        first = rng.choice(list(self._readers))
        connection = await self._client.leader(first)
        places = self._client.led_with(first, list(self._readers))
        rng.shuffle(places)
        max_bytes, max_wait_ms = rng.choice((1, 300, 3_000, FETCH_BYTES_MAX)), rng.choice((0, 100, 500, 2_000))
        each_bytes = rng.choice((1, 300, FETCH_BYTES_MAX))
        several = [
            fetch_fields(place, self._readers[place].position, max_wait_ms=max_wait_ms, max_bytes=each_bytes)
            for place in places
        ]
        fields = {**joined_fields(several, min_bytes=rng.choice((1, 1_000, 20_000))), "max_bytes": max_bytes}
        answer = await answer_of(connection, fields, self._session)
        check_whole(answer, self._session, self._history, self._client.name)
        again: ConnectionLost | None = None
        for topic in answer.responses:
            for part in topic.partitions:
                try:
                    await self._readers[Place(topic.topic, part.partition_index)].heard(part, asked=asked)
                except ConnectionLost as error:
                    again = error
        if again is not None:
            raise again


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


async def read_all(client: SimClient, place: Place) -> list[FinalRecord]:
    """All records that a partition has now, which may have gaps: it goes on where a batch ends, as Kafka's consumers
    do.
    """
    records: list[FinalRecord] = []
    position, end = await client.list_offset(place, EARLIEST), await client.list_offset(place, LATEST)
    attempt = 0
    while position < end:
        try:
            fields = fetch_fields(place, position, max_wait_ms=100, max_bytes=FINAL_FETCH_BYTES_MAX)
            part = (await (await client.leader(place)).send(FETCH, fields)).responses[0].partitions[0]
            if part.error_code:
                raise ConnectionLost(f"error {part.error_code}")
        except ConnectionLost:
            client.forget_leaders()
            attempt += 1
            await client.back_off(attempt)
            continue
        records += records_of(part, position)
        position = batches_end(part, position)
    return records


def batches_end(part: Message, position: int) -> int:
    """Where the batches of a fetched partition end; at `position` where there are none."""
    return max([position, *(header.next_offset for header in split(part.records or b""))])


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
            answer = await connection.send(
                FETCH, fetch_fields(place, position, max_wait_ms=100, max_bytes=FINAL_FETCH_BYTES_MAX)
            )
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
