"""Asks for the ends of partitions all the time, through one proxy after the other, in a process of its own, until its standard input ends.

An answer that is below what was acknowledged before it was asked for comes from a broker that was replaced and has not noticed.
"""

import argparse
import random
import select
import sys
from pathlib import Path
from time import monotonic

from chaos_history import LATEST
from confluent_kafka import Consumer, KafkaException, TopicPartition

ANSWER_S = 5.0
PAUSE_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("partitions", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    consumers = [Consumer({"bootstrap.servers": server, "group.id": "prober"}) for server in given.servers.split(",")]
    with given.out.open("wb") as out:
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            partition = chance.randrange(given.partitions)
            consumer = chance.choice(consumers)
            asked_s = monotonic()
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(given.topic, partition), timeout=ANSWER_S)
                status = 0
            except KafkaException as error:
                status, end = error.args[0].code(), -1
            out.write(LATEST.pack(partition, status, end, asked_s, monotonic()))
    for consumer in consumers:
        consumer.close()


if __name__ == "__main__":
    main()
