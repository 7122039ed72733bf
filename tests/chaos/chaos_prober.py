"""Asks for the ends of partitions all the time, through one proxy after the other, in a process of its own, until its
standard input ends.

An answer that is below what was acknowledged before it was asked for comes from a broker that was replaced and has not
noticed.
"""

import argparse
import random
import sys
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import BinaryIO

from chaos_history import LATEST
from confluent_kafka import Consumer, KafkaException, TopicPartition

ASKING_AT_ONCE = 4
"""Through each proxy. An answer waits until the owner has made sure that it still is one."""
ANSWER_S = 5.0
PAUSE_S = 0.01


class Prober:
    """Asks one question after the other, through one proxy."""

    def __init__(
        self,
        server: str,
        topic: str,
        partitions: int,
        *,
        client_id: str,
        seed: str,
        out: BinaryIO,
        lock: Lock,
        stopping: Event,
    ) -> None:
        self._consumer = Consumer({"bootstrap.servers": server, "client.id": client_id, "group.id": "prober"})
        self._topic = topic
        self._partitions = partitions
        self._chance = random.Random(seed)
        self._out = out
        self._lock = lock
        self._stopping = stopping
        self.thread = Thread(target=self._run, name=f"prober {seed}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            partition = self._chance.randrange(self._partitions)
            asked_s = monotonic()
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=ANSWER_S)
                status = 0
            except KafkaException as error:
                status, end = error.args[0].code(), -1
            row = LATEST.pack(partition, status, end, asked_s, monotonic())
            with self._lock:
                self._out.write(row)
        self._consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "topic", "client-id"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("partitions", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    stopping, lock = Event(), Lock()
    with given.out.open("wb") as out:
        probers = [
            Prober(
                server,
                given.topic,
                given.partitions,
                client_id=given.client_id,
                seed=f"{given.seed} {server} {number}",
                out=out,
                lock=lock,
                stopping=stopping,
            )
            for server in given.servers.split(",")
            for number in range(ASKING_AT_ONCE)
        ]
        sys.stdin.read(1)
        stopping.set()
        for prober in probers:
            prober.thread.join()


if __name__ == "__main__":
    main()
