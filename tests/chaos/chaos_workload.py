"""Who writes and reads during a run, and how they come to their end: first the writers, then everybody reads up to the
end of the log. Some do so in the base, others in a lane, where the same topic and group are others.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from chaos_clients import Client, java_writer, python_client
from chaos_reader import GROUP
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import NeverSo, until

TOPIC: Final = "chaos"
PARTITIONS: Final = 12
LANE: Final = "chaos"
FOLLOWERS: Final = 2
MEMBERS: Final = 2
GROUP_AT_END_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSpec:
    """A writer of the run; `producer` is its number in the values."""

    name: str
    producer: int
    idempotent: bool
    java: bool


WRITERS: Final = (
    WriterSpec(name="librdkafka-idempotent", producer=1, idempotent=True, java=False),
    WriterSpec(name="librdkafka-plain", producer=2, idempotent=False, java=False),
    WriterSpec(name="java-idempotent", producer=3, idempotent=True, java=True),
    WriterSpec(name="java-plain", producer=4, idempotent=False, java=True),
)
WRITERS_IN_LANE: Final = (
    WriterSpec(name="lane-idempotent", producer=5, idempotent=True, java=False),
    WriterSpec(name="lane-plain", producer=6, idempotent=False, java=False),
)


@dataclass(slots=True)
class Ended:
    """What is left of a workload besides the rows of its clients."""

    committed: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """What clients were told and never should be."""
    hung: int = 0
    """Clients whose library locked itself up, and that others went on for."""
    first_errors: dict[str, str] = field(default_factory=dict)
    """Of writers, the first failed delivery report."""

    def take(self, answer: dict[str, Any]) -> None:
        """What a reader said at its end."""
        self.failures += answer["failures"]
        self.hung += answer["hung"]

    def join(self, other: "Ended") -> None:
        """What is left of another workload, but for its offsets."""
        self.failures += other.failures
        self.hung += other.hung
        self.first_errors |= other.first_errors


class Workload:
    """The clients of one run that are in the base, or those that are in one lane."""

    def __init__(
        self,
        servers: str,
        folder: Path,
        *,
        per_second: int,
        seed: int,
        writers: tuple[WriterSpec, ...] = WRITERS,
        lane: str = "",
    ) -> None:
        """`lane` "": the base. Else `make_lane` is called before `start`."""
        self.specs = writers
        self.lane = lane
        self._servers = servers
        self._folder = folder
        self.writers = {spec: self._writer(spec, per_second=per_second) for spec in writers}
        self.followers = [self._reader("follow", number) for number in range(FOLLOWERS)]
        self.members = [
            self._reader("member", number, commits=folder / f"member-{number}.commits") for number in range(MEMBERS)
        ]
        self.whole = self._reader("whole", 0)
        self.prober = python_client(
            "prober",
            "chaos_prober.py",
            folder=folder,
            servers=servers,
            topic=TOPIC,
            partitions=PARTITIONS,
            client_id=self._client_id("prober"),
            seed=seed,
        )

    @property
    def commits(self) -> list[Path]:
        return [self._folder / f"member-{number}.commits" for number in range(MEMBERS)]

    async def make_lane(self, admin: str) -> None:
        """By REST, at HOST:PORT."""
        body = json.dumps({"name": self.lane}).encode()
        headers = {"content-type": "application/json"}
        asked = Request(f"http://{admin}/v1/lanes", method="POST", data=body, headers=headers)
        with await asyncio.to_thread(urlopen, asked, timeout=30) as answer:
            assert answer.status == 201, answer.status

    async def start(self) -> None:
        """Makes the topic and starts everybody."""
        await asyncio.to_thread(self._prepare)
        for client in (*self.writers.values(), *self.followers, *self.members, self.prober):
            await client.start()

    async def finish(self) -> Ended:
        """Once all is well again: until every record has its report, and everybody has read what there is."""
        ended = Ended()
        for writer in self.writers.values():
            writer.tell()
        answers = await asyncio.gather(*(writer.finish() for writer in self.writers.values()))
        for spec, answer in zip(self.writers, answers, strict=True):
            if answer["first_error"]:
                ended.first_errors[spec.name] = answer["first_error"]
        self.prober.tell()
        await self.prober.finish()
        ends = await asyncio.to_thread(self._ends)
        await self.whole.start()
        for reader in (*self.followers, self.whole):
            reader.tell({"ends": ends})
        for reader in (*self.followers, self.whole):
            ended.take(await reader.finish())
        ended.committed = await asyncio.to_thread(self._until_group_is_at, ends)
        for member in self.members:
            member.tell()
        for member in self.members:
            ended.take(await member.finish())
        return ended

    async def close(self) -> None:
        await asyncio.gather(
            *(
                client.close()
                for client in (*self.writers.values(), *self.followers, *self.members, self.whole, self.prober)
            )
        )

    def _writer(self, spec: WriterSpec, *, per_second: int) -> Client:
        common = {
            "servers": self._servers,
            "topic": TOPIC,
            "partitions": PARTITIONS,
            "producer": spec.producer,
            "per_second": per_second,
            "client_id": self._client_id(str(spec.producer)),
        }
        if spec.java:
            return java_writer(
                spec.name,
                servers=self._servers,
                topic=TOPIC,
                partitions=PARTITIONS,
                producer=spec.producer,
                per_second=per_second,
                idempotent=spec.idempotent,
                folder=self._folder,
            )
        arguments = ("--idempotent",) if spec.idempotent else ()
        return python_client(spec.name, "chaos_writer.py", *arguments, folder=self._folder, **common)

    def _reader(self, mode: str, number: int, **options: object) -> Client:
        name = f"{mode}-{number}"
        return python_client(
            name,
            "chaos_reader.py",
            mode,
            folder=self._folder,
            servers=self._servers,
            topic=TOPIC,
            partitions=PARTITIONS,
            client_id=self._client_id(name),
            **options,
        )

    def _client_id(self, name: str) -> str:
        return f"lane={self.lane},chaos-{name}" if self.lane else f"chaos-{name}"

    def _prepare(self) -> None:
        """The group has offsets from the beginning: nobody may ever be told to look for a place to start at."""
        admin = AdminClient({"bootstrap.servers": self._servers, "client.id": self._client_id("admin")})
        for future in admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)], operation_timeout=30).values():
            future.result(60)
        consumer = self._consumer(GROUP)
        consumer.commit(
            offsets=[TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)], asynchronous=False
        )
        consumer.close()

    def _ends(self) -> dict[int, int]:
        consumer = self._consumer("ends")
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)[1]
            for partition in range(PARTITIONS)
        }
        consumer.close()
        return ends

    def _until_group_is_at(self, ends: dict[int, int]) -> dict[int, int]:
        """The committed offsets: those, unless the group does not come so far in time."""
        consumer = self._consumer(GROUP)
        committed: dict[int, int] = {}

        def asked() -> dict[int, int]:
            found = consumer.committed([TopicPartition(TOPIC, partition) for partition in ends], timeout=10)
            committed.update({one.partition: one.offset for one in found})
            return committed

        with suppress(NeverSo):
            until(
                asked,
                f"the group to be at {ends}",
                GROUP_AT_END_S,
                holds=lambda at: at == ends,
                not_yet=KafkaException,
                every_s=0.2,
            )
        consumer.close()
        return committed

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "client.id": self._client_id("ends"),
                "group.id": group,
                "enable.auto.commit": False,
            }
        )
