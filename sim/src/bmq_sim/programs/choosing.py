"""Clients of the base whose messages name their lane by a header: each message is in the topic of its lane, or in the
base's, once and in its producer's order, and nowhere else.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from bmq.config.topic_config import LANE_HEADER
from bmq.wire.records import Record, build_batch
from bmq_sim.client import METADATA, PRODUCE, ConnectionLost, KafkaConnection, SimClient
from bmq_sim.consumer import read_all
from bmq_sim.delivery import reordered
from bmq_sim.history import FinalRecord, History, Place
from bmq_sim.producer import IdempotentProducer, produce_fields
from bmq_sim.rest import Rest

TOPIC: Final = "chosen"
PARTITIONS: Final = 2
BASE: Final = ""
LANES: Final = ("left", "right")
HEADER: Final = "X-Lane"
TOPIC_AUTHORIZATION_FAILED: Final = 29
INVALID_RECORD: Final = 87
NO_LANE: Final = b"nowhere"


def client_id(name: str, lane: str) -> str:
    """The client id of a client that is in the lane."""
    return f"{name},lane={lane}"


class Chooser:
    """One topic of the base's, and who writes to it."""

    def __init__(
        self,
        client: SimClient,
        elsewhere: SimClient,
        in_lanes: Mapping[str, SimClient],
        history: History,
        rest: Rest,
        *,
        rng: Random,
        configs: Mapping[str, str],
    ) -> None:
        """`client` and `elsewhere` are the base's, `in_lanes` one of each lane: see `client_id`."""
        self._elsewhere = elsewhere
        self._client = client
        self._clients = {BASE: client, **in_lanes}
        self._history = history
        self._rest = rest
        self._rng = rng
        self._configs = {**configs, LANE_HEADER: HEADER.lower()}
        self._own = History()
        """What its producers sent: the checkers of others' look for it in one topic."""
        self._lanes: dict[bytes, str] = {}
        """Which one each message is for."""
        self._maybe: set[bytes] = set()
        """Messages for a lane whose topic was deleted then, or was being: they may be gone."""
        self._producers = 0
        self._batches_max = rng.choice((3, 20))
        self._pace_s = rng.choice((0.02, 0.3))

    async def begin(self) -> None:
        """Returns when topic and lanes are there."""
        await self._client.create_topic(TOPIC, partitions=PARTITIONS, configs=self._configs)
        for lane in LANES:
            await self._rest.until_told("POST", "/v1/lanes", {"name": lane}, fine=(409,))
            await self._clients[lane].everywhere(self._is_known_at)

    async def _is_known_at(self, connection: KafkaConnection) -> bool:
        asked = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
        answer = await connection.send(METADATA, asked)
        return all(topic.error_code != TOPIC_AUTHORIZATION_FAILED for topic in answer.topics)

    async def run(self, partition: int) -> None:
        """Producers of one partition, one after the other, until the client is stopped."""
        while not self._client.stopped:
            self._producers += 1
            place = Place(f"{TOPIC}#{self._producers}", partition)  # its values are told from others' by that
            await IdempotentProducer(
                self._client,
                self._own,
                place,
                batches=self._rng.randint(1, self._batches_max),
                pace_s=self._pace_s,
                headers_of=self._headers_of,
                elsewhere=self._elsewhere if self._rng.random() < 0.5 else None,
            ).run()
            if self._own.refused:
                self._history.refused += self._own.refused
                return
            await self._name_no_lane(place)
            await self._client.rest(3 * self._rng.random())

    async def disturb(self) -> None:
        """Now and then a lane's topic is deleted, until its client is stopped; the next message for it makes another
        one.
        """
        rng = self._rng
        while not self._client.stopped:
            await self._client.rest(2 + 15 * rng.random())
            lane = rng.choice(LANES)
            if self._client.stopped:
                return
            self._may_go(lane)
            await self._clients[lane].delete_topic(TOPIC)
            self._may_go(lane)

    def _may_go(self, lane: str) -> None:
        self._maybe.update(value for value, its in self._lanes.items() if its == lane)

    def _headers_of(self, value: bytes) -> Sequence[tuple[str, bytes]]:
        lane = self._lanes[value] = self._rng.choice((BASE, *LANES, LANES[0]))
        return ((HEADER, lane.encode()),) if lane else ()

    async def _name_no_lane(self, place: Place) -> None:
        """A batch of which one message names a lane that does not exist: nothing of it is taken."""
        records = [Record(0, 1_000, None, NO_LANE, headers) for headers in ((), ((HEADER, NO_LANE),))]
        try:
            answer = await (await self._client.leader(place)).send(PRODUCE, produce_fields(place, build_batch(records)))
        except ConnectionLost:
            self._client.forget_leaders()
            return
        code = answer.responses[0].partition_responses[0].error_code
        if not code or (code == INVALID_RECORD and not answer.responses[0].partition_responses[0].record_errors):
            self._history.refused.append(f"{place}: a message for a lane that does not exist was told {code}")

    async def check(self) -> None:
        """Reads all that there is, and says what is wrong."""
        places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
        logs = {
            (lane, place): await read_all(client, place) for lane, client in self._clients.items() for place in places
        }
        self._history.refused += self._wrong(logs)

    async def clear_away(self) -> None:
        """Lanes and topic are gone, with all that they had."""
        for lane in LANES:
            await self._rest.until_told("DELETE", f"/v1/lanes/{lane}", fine=(404,))
        self._history.deleted_topics.add(TOPIC)
        await self._client.delete_topic(TOPIC)

    def _wrong(self, logs: Mapping[tuple[str, Place], Sequence[FinalRecord]]) -> list[str]:
        wrong = []
        sent = {value: attempt for attempt in self._own.attempts for value in attempt.values}
        for (lane, place), records in logs.items():
            where = f"{place} of {f'lane {lane}' if lane else 'the base'}"
            counts = Counter(record.value for record in records)
            for value, count in counts.items():
                if value not in sent or sent[value].place.on_the_wire != place or self._lanes[value] != lane:
                    wrong.append(f"{where} has {value!r}, which is not for it")
                elif count > 1:
                    wrong.append(f"{where} has {value!r} {count} times")
            of_producers: dict[int, list[int]] = {}
            for record in records:
                if record.value in sent:
                    of_producers.setdefault(record.producer_id, []).append(int(record.value.rpartition(b":")[2]))
            for numbers in of_producers.values():
                wrong += [f"{where} has {later} before {number}" for later, number in reordered(numbers)]
            for attempt in self._own.attempts:
                if attempt.acknowledged is None or attempt.place.on_the_wire != place:
                    continue
                wrong += [
                    f"{where} has no {value!r}, which was acknowledged"
                    for value in attempt.values
                    if self._lanes[value] == lane and value not in counts and value not in self._maybe
                ]
        at = {(place, record.offset): record.value for (lane, place), log in logs.items() if not lane for record in log}
        for attempt in self._own.attempts:
            if attempt.base_offset is None or attempt.base_offset < 0:
                continue
            for offset, value in enumerate(attempt.values, attempt.base_offset):
                found = at.get((attempt.place.on_the_wire, offset))
                if found != (value if self._lanes[value] == BASE else None):
                    wrong.append(f"{attempt.place} has {found!r} at {offset}, where {value!r} was acknowledged")
        return wrong


async def run_all(chooser: Chooser) -> None:
    """All of its partitions, and what disturbs them."""
    await asyncio.gather(chooser.disturb(), *[chooser.run(partition) for partition in range(PARTITIONS)])
