"""A topic that is deleted and made again under its name, over and over: the new one has nothing of its predecessor."""

from uuid import UUID

from bmq_sim.client import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    KafkaConnection,
    SimClient,
)
from bmq_sim.consumer import read_final
from bmq_sim.history import History, Place
from bmq_sim.producer import IdempotentProducer
from bmq_sim.programs.asking import set_until_told
from bmq_sim.programs.committed import NONE, OffsetKeeper

TOPIC = "again"


class TopicRemaker:
    """Makes the topic, writes to it, commits an offset, reads all of it, deletes it; again and again. Whoever asks by
    name asks all proxies first.
    """

    def __init__(self, client: SimClient, history: History, *, configs: dict[str, str], pause_s: float) -> None:
        self._client = client
        self._history = history
        self._configs = configs
        self._pause_s = pause_s
        self._keeper = OffsetKeeper(client, history, group=client.name)
        self.made = 0
        """How often."""

    async def run(self) -> None:
        """Until its client is stopped: the last one, too, is used, read and deleted."""
        client, rng = self._client, self._client.rng
        last: UUID | None = None
        while not client.stopped:
            self.made += 1
            place = Place(f"{TOPIC}#{self.made}", 0)
            last = await self._make(not_this=last)
            client.forget_leaders()
            await client.refresh_until_known(place)
            await self._keeper.look(place)
            producer = IdempotentProducer(client, self._history, place, batches=rng.randint(1, 6), pace_s=0.2)
            await producer.run()
            await self._keeper.commit(place, 1000 * self.made + rng.randint(0, 9))
            await client.rest(self._pause_s * rng.random())
            await self._keeper.look(place)
            await read_final(client, self._history, place)
            await self._delete(place, last)

    async def _make(self, *, not_this: UUID | None) -> UUID:
        """Its id. All proxies that there are know it when this returns."""
        topic = {
            "name": TOPIC,
            "num_partitions": 1,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in self._configs.items()],
        }
        await set_until_told(
            self._client,
            self._history,
            api_key=CREATE_TOPICS,
            fields={"topics": [topic], "timeout_ms": 30_000},
            code_of=lambda answer: int(answer.topics[0].error_code),
            writes=(),
            fine=frozenset((TOPIC_ALREADY_EXISTS,)),  # an earlier try did it
        )
        made: UUID | None = None

        async def is_known_at(connection: KafkaConnection) -> bool:
            nonlocal made
            answer = await connection.send(METADATA, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False})
            found: list[UUID] = [
                one.topic_id for one in answer.topics if not one.error_code and one.topic_id != not_this
            ]
            made = found[0] if found else made
            return bool(found)

        while made is None:
            await self._client.everywhere(is_known_at)
            if made is None:  # nobody was there to be asked
                await self._client.back_off(1)
        return made

    async def _delete(self, place: Place, topic_id: UUID) -> None:
        """By id, so that no late try meets its successor."""
        await set_until_told(
            self._client,
            self._history,
            api_key=DELETE_TOPICS,
            fields={"topics": [{"name": None, "topic_id": topic_id}], "timeout_ms": 30_000},
            code_of=lambda answer: int(answer.responses[0].error_code),
            writes=((self._keeper.register(place), NONE),),
            fine=frozenset((UNKNOWN_TOPIC_ID,)),  # an earlier try did it
        )
