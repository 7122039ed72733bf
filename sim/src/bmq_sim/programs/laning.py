"""A lane that is made, used, deleted and made again under its name: it never has anything of the base, of another, or of its predecessor."""

from bmq_sim.client import METADATA, KafkaConnection, SimClient
from bmq_sim.consumer import read_final
from bmq_sim.history import History, Place
from bmq_sim.producer import IdempotentProducer
from bmq_sim.programs.committed import NONE, OffsetKeeper
from bmq_sim.rest import Rest

LANE = "dev"
TOPIC_AUTHORIZATION_FAILED = 29


def client_id(name: str) -> str:
    """Of a client that is in the lane."""
    return f"{name},lane={LANE}"


class LaneUser:
    """Of one lane. It writes to a topic that the base has, too."""

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
            await self._rest.until_told("POST", "/v1/lanes", {"name": LANE}, fine=(409,))
            await self._until_everywhere(is_there=True)
            place = Place(f"{self._topic}#{LANE}-{self.made}", 0)
            client.forget_leaders()
            await client.refresh_until_known(place)
            if rng.random() < 0.5:
                await read_final(client, self._history, place)
            await self._keeper.look(place)
            await IdempotentProducer(client, self._history, place, batches=rng.randint(1, 4), pace_s=0.2).run()
            await self._keeper.commit(place, 1000 * self.made + rng.randint(0, 9))
            await client.rest(self._pause_s * rng.random())
            await self._keeper.look(place)
            await read_final(client, self._history, place)
            register = self._keeper.register(place)
            await self._rest.until_told("DELETE", f"/v1/lanes/{LANE}", fine=(404,), writes=[(register, NONE)])
            await self._until_everywhere(is_there=False)

    async def _until_everywhere(self, *, is_there: bool) -> None:
        """Returns when all proxies that there are have heard of it."""

        async def is_so_at(connection: KafkaConnection) -> bool:
            answer = await connection.send(METADATA, {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False})
            return is_there is all(topic.error_code != TOPIC_AUTHORIZATION_FAILED for topic in answer.topics)

        await self._client.everywhere(is_so_at)
