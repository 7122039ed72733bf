"""CreatePartitions: a topic gets one partition after the other, and what is written to a new one at once is there in
the end.
"""

from bmq_sim.client import CREATE_PARTITIONS, INVALID_PARTITIONS, SimClient
from bmq_sim.history import History, Place
from bmq_sim.producer import PlainProducer
from bmq_sim.programs.asking import set_until_told

TOPIC = "growing"
PARTITIONS_MAX = 5


class TopicGrower:
    """Makes one topic, gives it one partition after the other, and writes to each at once."""

    def __init__(
        self, client: SimClient, history: History, places: list[Place], *, configs: dict[str, str], pause_s: float
    ) -> None:
        """`places` gets what was acknowledged."""
        self._client = client
        self._history = history
        self._places = places
        self._configs = configs
        self._pause_s = pause_s

    async def run(self) -> None:
        """Returns when the topic is large."""
        client, rng = self._client, self._client.rng
        await client.create_topic(TOPIC, partitions=1, configs=self._configs)
        await self._use(Place(TOPIC, 0))
        for count in range(2, PARTITIONS_MAX + 1):
            await client.rest(self._pause_s * rng.random())
            if client.stopped:
                return
            topic = {"name": TOPIC, "count": count, "assignments": None}
            await set_until_told(
                client,
                self._history,
                api_key=CREATE_PARTITIONS,
                fields={"topics": [topic], "timeout_ms": 30_000, "validate_only": False},
                code_of=lambda answer: int(answer.results[0].error_code),
                writes=(),
                fine=frozenset((INVALID_PARTITIONS,)),  # an earlier try did it
            )
            await self._use(Place(TOPIC, count - 1))

    async def _use(self, place: Place) -> None:
        self._places.append(place)
        await self._client.refresh_until_known(place)
        await PlainProducer(
            self._client, self._history, place, batches=self._client.rng.randint(1, 3), pace_s=0.2
        ).run()
