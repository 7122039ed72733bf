"""A consumer of librdkafka in a process of its own. What it does until its standard input says `{"ends": {partition:
offset}}`:

follow: reads all partitions from their beginning, as records come; then up to the ends. `whole`: the same, but waits
for the ends first. member: reads as a member of a group, which has committed offsets already, and commits what it has
read; goes on until its standard input ends, for the group has to come to the ends.

librdkafka 2.16 can lock itself up where a broker leaves Metadata while an epoch is validated (its issue 5476): two of
its threads wait for each other's lock, and nothing comes any more. A client that cannot be closed is taken for that,
another goes on in its place, and the report counts them; one that is silent and can be closed is a failure.
"""

import argparse
import json
import os
import select
import sys
import threading
from pathlib import Path
from time import monotonic

from chaos_history import ASSIGNED, COMMITTED, READ, of_value
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

BATCH = 2_000
POLL_S = 0.05
COMMIT_S = 0.5
END_S = 120.0
SILENCE_S = 30.0
"""After which a follower that is not at its end has stopped, with the cluster well."""
CLOSE_S = 20.0
GROUP = "chaos-members"


class Reader:
    """Owns the consumer, its rows, and what it was told that should not be."""

    def __init__(self, *, servers: str, topic: str, partitions: int, out: Path, client_id: str) -> None:
        self.topic = topic
        self.partitions = partitions
        self.settings: dict[str, str | int | bool] = {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "group.id": f"unused-{client_id}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        self.positions = dict.fromkeys(range(partitions), 0)
        self.failures: list[str] = []
        self.hung = 0
        """Clients that locked themselves up."""
        self._out = out.open("wb", buffering=1 << 20)

    def take(self, messages: list[Message]) -> None:
        """Writes down what came; an offset that is out of range is a failure, what passes is not."""
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) or error.fatal():
                    self.failures.append(f"{message.partition()}: {error}")
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            producer, sequence = of_value(message.value())
            self._out.write(READ.pack(partition, producer, offset, sequence, monotonic()))
            self.positions[partition] = offset + 1

    def mark_assigned(self, partition: int) -> None:
        self._out.write(READ.pack(partition, 0, ASSIGNED, 0, monotonic()))

    def end(self, consumer: Consumer) -> bool:
        """Closes it; whether it could be closed."""
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        self.hung += closing.is_alive()
        return not closing.is_alive()

    def close(self) -> None:
        self._out.close()


def follow(reader: Reader, *, whole: bool) -> None:
    ends = _ends(wait=whole)
    consumer = _following(reader)
    while ends is None:
        reader.take(consumer.consume(BATCH, POLL_S))
        ends = _ends(wait=False)
    began_s = heard_s = monotonic()
    while any(reader.positions[partition] < end for partition, end in ends.items()) and monotonic() < began_s + END_S:
        messages = consumer.consume(BATCH, POLL_S)
        reader.take(messages)
        if messages:
            heard_s = monotonic()
        elif monotonic() > heard_s + SILENCE_S:
            if reader.end(consumer):
                reader.failures.append(
                    f"nothing came for {SILENCE_S:.0f} s before the ends were reached: {reader.positions} of {ends}"
                )
                return
            consumer = _following(reader)
            heard_s = monotonic()
    reader.end(consumer)


def _following(reader: Reader) -> Consumer:
    """From where the reader is."""
    consumer = Consumer(reader.settings)
    consumer.assign(
        [TopicPartition(reader.topic, partition, reader.positions[partition]) for partition in range(reader.partitions)]
    )
    return consumer


def be_member(reader: Reader, commits: Path) -> None:
    settings = {**reader.settings, "group.id": GROUP}
    consumer = Consumer(settings)
    with commits.open("wb") as out:

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                reader.mark_assigned(one.partition)
                reader.positions.pop(one.partition, None)

        def commit(_: object = None, __: object = None) -> None:
            ends = [
                TopicPartition(reader.topic, partition, end) for partition, end in reader.positions.items() if end > 0
            ]
            asked_s = monotonic()
            try:
                done = consumer.commit(offsets=ends, asynchronous=False) or [] if ends else []
            except KafkaException as error:  # nothing was promised
                done = [TopicPartition(reader.topic, one.partition, one.offset) for one in ends]
                code = error.args[0].code()
            else:
                code = 0
            for one in done:
                status = code or (one.error.code() if one.error is not None else 0)
                out.write(COMMITTED.pack(one.partition, status, one.offset, asked_s, monotonic()))

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            commit()
            for one in partitions:
                reader.positions.pop(one.partition, None)

        def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                reader.positions.pop(one.partition, None)

        reader.positions.clear()
        consumer.subscribe([reader.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        due_s = monotonic() + COMMIT_S
        while not _has_input():
            reader.take(consumer.consume(BATCH, POLL_S))
            if monotonic() >= due_s:
                commit()
                due_s = monotonic() + COMMIT_S
        reader.end(consumer)


def _has_input() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _ends(*, wait: bool) -> dict[int, int] | None:
    """What standard input says; None: nothing yet. An end without a line is an end where nothing is asked for."""
    if not wait and not _has_input():
        return None
    line = sys.stdin.readline()
    return {int(partition): int(end) for partition, end in json.loads(line)["ends"].items()} if line else {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("follow", "whole", "member"))
    for name in ("servers", "topic", "client-id"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commits", type=Path)
    given = parser.parse_args()
    reader = Reader(
        servers=given.servers, topic=given.topic, partitions=given.partitions, out=given.out, client_id=given.client_id
    )
    if given.mode == "member":
        be_member(reader, given.commits)
    else:
        follow(reader, whole=given.mode == "whole")
    reader.close()
    print(json.dumps({"failures": reader.failures, "hung": reader.hung}), flush=True)
    if reader.hung:
        os._exit(0)  # its threads never end


if __name__ == "__main__":
    main()
