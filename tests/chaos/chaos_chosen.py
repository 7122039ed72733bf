"""A writer in the base some of whose records name a lane by a header, and what has to be in the base and in the lane
afterwards.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from chaos_checker import Findings, key_of, shown
from chaos_clients import python_client
from chaos_history import ACKNOWLEDGED, Sent, is_for_lane, of_value, read_sent
from chaos_workload import LANE, PARTITIONS
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bmq_sim.delivery import doubled, reordered

TOPIC: Final = "chosen"
HEADER: Final = "x-lane"
PRODUCER: Final = 7
READ_WITHIN_S: Final = 120.0

Keys = Mapping[int, list[int]]
"""Records, by partition and in their order."""


class Chosen:
    """The writer and its topic."""

    def __init__(self, servers: str, folder: Path, *, per_second: int) -> None:
        self._servers = servers
        self.writer = python_client(
            "by-header",
            "chaos_writer.py",
            "--idempotent",
            folder=folder,
            servers=servers,
            topic=TOPIC,
            partitions=PARTITIONS,
            producer=PRODUCER,
            per_second=per_second,
            client_id="chaos-by-header",
            lane=LANE,
        )

    async def start(self) -> None:
        """Makes the topic and starts the writer, once the lane is there."""
        await asyncio.to_thread(self._make_topic)
        await self.writer.start()

    async def finish(self) -> tuple[Keys, Keys]:
        """Once all is well again: what is in the base, and in the lane, when every record has its report."""
        self.writer.tell()
        await self.writer.finish()
        in_base = await asyncio.to_thread(self._read, "chaos-chosen")
        return in_base, await asyncio.to_thread(self._read, f"lane={LANE},chaos-chosen")

    async def close(self) -> None:
        await self.writer.close()

    def check(self, found: tuple[Keys, Keys], findings: Findings) -> int:
        """What is wrong goes to the findings; returns how many records were acknowledged."""
        in_base, in_lane = found
        return check_chosen(list(read_sent(self.writer.out)), in_base, in_lane, findings)

    def _make_topic(self) -> None:
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, config={"bmq.lane.header": HEADER})
        admin = AdminClient({"bootstrap.servers": self._servers})
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result(60)

    def _read(self, client_id: str) -> Keys:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "client.id": client_id,
                "group.id": "chosen",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        found: defaultdict[int, list[int]] = defaultdict(list)
        ended: set[int] = set()
        until_s = monotonic() + READ_WITHIN_S
        while len(ended) < PARTITIONS:
            assert monotonic() < until_s, f"{client_id} came to the end of {sorted(ended)} alone"
            message = consumer.poll(1.0)
            if message is None:
                continue
            partition = message.partition()
            assert partition is not None
            error = message.error()
            if error is None:
                found[partition].append(key_of(*of_value(message.value())))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
        consumer.close()
        return found


def check_chosen(sent: Iterable[Sent], in_base: Keys, in_lane: Keys, findings: Findings) -> int:
    """Each that was acknowledged is where it belongs, once and in order, and nothing is where it does not."""
    acknowledged = 0
    counts = {name: Counter(key for keys in log.values() for key in keys) for name, log in logs(in_base, in_lane)}
    for row in sent:
        if row.status != ACKNOWLEDGED:
            continue
        acknowledged += 1
        where = "the lane" if is_for_lane(row.sequence) else "the base"
        key = key_of(PRODUCER, row.sequence)
        if not counts[where][key]:
            findings.add("lost", f"{shown(key)} of {TOPIC}/{row.partition} in {where}")
    for where, log in logs(in_base, in_lane):
        for partition, keys in log.items():
            sequences = [key - key_of(PRODUCER, 0) for key in keys]
            for sequence in sequences:
                if is_for_lane(sequence) != (where == "the lane"):
                    findings.add("stray", f"{shown(key_of(PRODUCER, sequence))} of {TOPIC}/{partition} in {where}")
            for sequence, count in doubled(sequences).items():
                findings.add("duplicate", f"{shown(key_of(PRODUCER, sequence))} {count} times in {where}")
            for before, sequence in reordered(sequences):
                findings.add("reordered", f"{TOPIC}/{partition} of {where}: {sequence} after {before}")
    return acknowledged


def logs(in_base: Keys, in_lane: Keys) -> tuple[tuple[str, Keys], tuple[str, Keys]]:
    return ("the base", in_base), ("the lane", in_lane)
