"""A lane that is made, used, deleted and made again under its name: it never has anything of the base, of another, or
of its predecessor.
"""

from collections.abc import Callable
from typing import Any

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET
from bmq.wire.messages import Message
from bmq_sim.client import METADATA, ConnectionLost, KafkaConnection, SimClient
from bmq_sim.consumer import PartitionReader, read_final, start_offset
from bmq_sim.history import History, Place
from bmq_sim.producer import IdempotentProducer
from bmq_sim.programs.committed import NONE, OffsetKeeper
from bmq_sim.rest import Rest

LANE = "dev"
READS_BASE = {"reads_base": {"enabled": True, "topics": ["*"], "bytes_per_second": 1_000_000}}
QUOTA = {
    "quota": {
        "write_bytes_per_second": 1_024,
        "read_bytes_per_second": 1_024,
        "partitions": 100,
        "storage_bytes": 100 << 20,
    }
}
"""Less than its clients would write and read, and more than they keep."""
READS_OF_BOUNDED = 4
"""So often together they are more than may be read in a second."""
TOPIC_AUTHORIZATION_FAILED = 29
OF_NONE = 5
"""Partitions that every other first write names besides those that there are."""


def client_id(name: str) -> str:
    """The client id of a client that is in the lane."""
    return f"{name},lane={LANE}"


class LaneUser:
    """Makes, uses and deletes one lane, again and again. It writes to a topic that the base has, too."""

    def __init__(self, client: SimClient, history: History, rest: Rest, *, topic: str, pause_s: float) -> None:
        """`client` is in the lane: see `client_id`."""
        self._client = client
        self._history = history
        self._rest = rest
        self._topic = topic
        self._pause_s = pause_s
        self._keeper = OffsetKeeper(client, history, group="of-a-lane")
        self.made = 0
        """How often."""

    async def run(self) -> None:
        """Until its client is stopped: the last one, too, is used, read and deleted."""
        client, rng = self._client, self._client.rng
        while not client.stopped:
            self.made += 1
            reads_base = rng.random() < 0.5
            is_bounded = self.made % 3 == 1
            asked = {"name": LANE, **(READS_BASE if reads_base else {}), **(QUOTA if is_bounded else {})}
            await self._rest.until_told("POST", "/v1/lanes", asked, fine=(409,))
            await self._until_everywhere(lambda topic: topic.error_code != TOPIC_AUTHORIZATION_FAILED)
            place = Place(f"{self._topic}#{LANE}-{self.made}", 0)
            client.forget_leaders()
            await client.refresh_until_known(place)
            producer = IdempotentProducer(
                client, self._history, place, batches=rng.randint(1, 4), pace_s=0.2, of_none=OF_NONE * (self.made % 2)
            )
            if reads_base:
                await self._go_over(place, producer)
            else:
                if rng.random() < 0.5:
                    await read_final(client, self._history, place)
                await self._keeper.look(place)
                await producer.run()
            first = READING_LANES_FIRST_OFFSET if reads_base else 0
            await self._keeper.commit(place, first + 1000 * self.made + rng.randint(0, 9))
            await client.rest(self._pause_s * rng.random())
            await self._keeper.look(place)
            for _ in range(READS_OF_BOUNDED if is_bounded else 1):
                await read_final(client, self._history, place)
            register = self._keeper.register(place)
            await self._rest.until_told("DELETE", f"/v1/lanes/{LANE}", fine=(404,), writes=[(register, NONE)])
            await self._until_everywhere(lambda topic: topic.error_code == TOPIC_AUTHORIZATION_FAILED)

    async def _go_over(self, place: Place, producer: IdempotentProducer) -> None:
        """Reads in the base's topic, until the lane has its own: no offset of the base's leads into it. As many clients
        it sends no epochs.
        """
        client, history = self._client, self._history
        base = Place(self._topic, place.partition)
        reader = PartitionReader(
            client,
            history,
            base,
            reader=f"{client.name}-{self.made}",
            position=await start_offset(client, history, base),
        )
        for _ in range(client.rng.randint(1, 3)):
            await self._fetch(reader)
        await self._keeper.commit(base, reader.position)
        history.may_go(place, READING_LANES_FIRST_OFFSET)  # nothing is there
        read = (await client.call(METADATA, self._asked())).topics[0].topic_id
        forgotten = history.write(self._keeper.register(place), NONE)
        await producer.run()
        await self._until_everywhere(lambda topic: topic.topic_id != read)
        forgotten.acknowledged = history.turn()
        client.forget_leaders()
        await client.refresh_until_known(place)
        await self._keeper.look(place)
        stale = PartitionReader(client, history, place, reader=client.name, position=reader.position)
        if await self._fetch(stale):
            history.refused.append(
                f"{place}: an offset of the base's, {reader.position}, was found in the lane's own topic"
            )
        await self._keeper.commit_as_nothing(place, reader.position)
        await self._keeper.look(place)

    async def _fetch(self, reader: PartitionReader) -> int:
        attempt = 0
        while True:
            try:
                return await reader.fetch(max_wait_ms=0, max_bytes=300)
            except ConnectionLost:
                self._client.forget_leaders()
                attempt += 1
                await self._client.back_off(attempt)

    def _asked(self) -> dict[str, Any]:
        return {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False}

    async def _until_everywhere(self, is_so: Callable[[Message], bool]) -> None:
        """Returns when all proxies that there are say so of the topic."""

        async def is_so_at(connection: KafkaConnection) -> bool:
            return all(is_so(topic) for topic in (await connection.send(METADATA, self._asked())).topics)

        await self._client.everywhere(is_so_at)
