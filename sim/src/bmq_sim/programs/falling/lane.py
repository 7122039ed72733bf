"""The lane with its topic: who writes, consumes and deletes in it, and what came of that."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

from bmq.config.topic_config import LANE_HEADER
from bmq_sim.client import FETCH, ConnectionLost, SimClient
from bmq_sim.consumer import batches_end, fetch_fields
from bmq_sim.history import History, Place
from bmq_sim.programs.falling.batches import found_in
from bmq_sim.programs.falling.belonging import MemberOfLane
from bmq_sim.programs.falling.ledger import LANE, PARENT, PARENTS_GROUP, PARTITIONS, TOPIC, Ledger
from bmq_sim.programs.falling.lone import LoneConsumer
from bmq_sim.programs.falling.watching import Watcher
from bmq_sim.programs.falling.writing import BASES_OWN, CHOSEN, delete_some, remake_base, write, write_by_header
from bmq_sim.rest import Rest

HEADER: Final = ("bmq-lane", LANE.encode())
DONE_WITHIN_S: Final = 300.0
PAUSES_S: Final = (0.0, 2.0, 10.0, 14.0)
"""About so long nobody consumes: the longer ones are longer than most graces."""


def client_id(name: str, lane: str = LANE) -> str:
    """The client id of a client that is in the lane."""
    return f"{name},lane={lane}"


class FallingLane:
    """One topic in such a lane."""

    def __init__(
        self,
        writer: SimClient,
        readers: Sequence[SimClient],
        base: SimClient,
        history: History,
        rest: Rest,
        *,
        between: SimClient,
        rng: Random,
    ) -> None:
        """`writer` and the two `readers` are in the lane, `between` in the one that it may be nested in: see
        `client_id`.
        """
        self._writer = writer
        self._reader = readers[0]
        self._between = between
        self._base = base
        self._history = history
        self._rest = rest
        self._ledger = Ledger()
        self._lone = LoneConsumer(readers[0], history, self._ledger)
        self._lone_between = LoneConsumer(between, history, self._ledger, group=PARENTS_GROUP)
        self._members = [MemberOfLane(client, history, self._ledger) for client in readers]
        self._pause_s = rng.choice((0.3, 1.0))
        self._deletes = rng.random() < 1 / 3
        self._remakes = rng.random() < 1 / 2
        self._configs = {
            "retention.ms": "-1",
            "message.timestamp.type": rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        }
        self._is_nested = rng.random() < 1 / 2
        if rng.random() < 1 / 2:
            self._configs[LANE_HEADER] = CHOSEN[0]

    async def begin(self) -> None:
        """Returns when topic and lanes are there."""
        await self._base.create_topic(TOPIC, partitions=PARTITIONS, configs=self._configs)
        lane = {"name": LANE, "fallback": "base"}
        if self._is_nested:
            await self._rest.until_told("POST", "/v1/lanes", {**lane, "name": PARENT}, fine=(409,))
            lane["parent"] = PARENT
        await self._rest.until_told("POST", "/v1/lanes", lane, fine=(409,))

    async def write(self) -> None:
        """Until its client is stopped."""
        await write(self._writer, self._ledger, pause_s=self._pause_s)

    async def write_by_header(self) -> None:
        """The same, by a client of the base, whose messages are the base's own in part."""
        if LANE_HEADER in self._configs:
            await write_by_header(self._base, self._ledger, pause_s=2 * self._pause_s)

    async def consume(self) -> None:
        """Lives of consumers, one after the other, until its client is stopped."""
        rng = self._reader.rng
        while not self._reader.stopped:
            await self._reader.rest(rng.choice(PAUSES_S) * (0.7 + 0.3 * rng.random()))
            if self._reader.stopped:
                return
            if rng.random() < 0.4:
                await self._lone.peek()
            match rng.choice(("lone", "lone", "member", "members")):
                case "lone":
                    await self._lone.live()
                case "member":
                    await self._members[0].live()
                case _:
                    await asyncio.gather(*(member.live() for member in self._members))

    async def consume_between(self) -> None:
        """Now and then somebody does in the lane that this one is nested in, until its client is stopped."""
        rng = self._between.rng
        while self._is_nested and not self._between.stopped:
            await self._between.rest(2 * rng.choice(PAUSES_S) * (0.7 + 0.3 * rng.random()))
            if not self._between.stopped:
                await self._lone_between.live()

    async def disturb(self) -> None:
        """Now and then what is there goes, until its client is stopped."""
        client = self._base
        while not client.stopped and (self._deletes or self._remakes):
            await client.rest(5 + 25 * client.rng.random())
            if client.stopped:
                return
            if self._remakes and (not self._deletes or client.rng.random() < 0.5):
                await remake_base(client, self._ledger, self._configs)
                self._remakes = False
            elif self._deletes:
                await delete_some(self._writer, self._ledger)

    def watcher(self, client: SimClient, rest: Rest) -> Watcher:
        """Who asks where its messages go."""
        return Watcher(client, self._history, rest, self._ledger)

    async def check(self) -> None:
        """Waits until all that nobody handled is in the base, and says what is wrong."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + DONE_WITHIN_S
        while True:
            base = await self._all_of_the_base()
            if not self._ledger.missing(base.keys()) or loop.time() > until_s:
                break
            await asyncio.sleep(1.0)
        self._history.refused += self._ledger.wrong(base)

    async def clear_away(self) -> None:
        """The lane and the topic are gone, with all that they had: nobody writes there any more, so owners would not
        claim what is left of them.
        """
        await self._rest.until_told("DELETE", f"/v1/lanes/{LANE}", fine=(404,))
        if self._is_nested:
            await self._rest.until_told("DELETE", f"/v1/lanes/{PARENT}", fine=(404,))
        self._history.deleted_topics.add(TOPIC)
        await self._base.delete_topic(TOPIC)

    async def _all_of_the_base(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for index in range(PARTITIONS):
            found.update(await self._all_of(Place(TOPIC, index)))
        return found

    async def _all_of(self, place: Place) -> list[bytes]:
        values: list[bytes] = []
        position, attempt = 0, 0
        end = await self._base.list_offset(place, -1)
        while position < end:
            try:
                answer = await (await self._base.leader(place)).send(
                    FETCH, fetch_fields(place, position, max_wait_ms=100)
                )
                part = answer.responses[0].partitions[0]
                code = part.error_code
            except ConnectionLost:
                code = -1
            if code:
                self._base.forget_leaders()
                attempt += 1
                await self._base.back_off(attempt)
                continue
            for one in found_in(part, position):
                if one.value.startswith(BASES_OWN):
                    continue
                values.append(one.value)
                if one.headers is not None and list(one.headers) not in ([HEADER], [CHOSEN, HEADER]):
                    self._history.refused.append(f"{one.value!r} came to the base with headers {one.headers}")
            position = batches_end(part, position)
        return values
