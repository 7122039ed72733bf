"""A producer of librdkafka at its default settings, in a process of its own: sends numbered records until its standard
input ends.

Then it waits for what is not answered yet, and prints one line. Each record's row is written when it is answered.
"""

import argparse
import json
import select
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

from chaos_history import NEVER_ANSWERED, SENT, is_for_lane, value_of
from confluent_kafka import KafkaError, Message, Producer

TICK_S = 0.01
FLUSH_S = 330
"""More than librdkafka's own message.timeout.ms, 300 s: by then each record has its report."""


class Writer:
    """Sends record `n` to partition `n mod partitions`."""

    def __init__(
        self,
        *,
        servers: str,
        topic: str,
        partitions: int,
        producer: int,
        client_id: str,
        idempotent: bool,
        out: Path,
        lane: str = "",
    ) -> None:
        """`lane`: what records name that are for it."""
        self._lane = lane
        self._topic = topic
        self._partitions = partitions
        self._producer_number = producer
        self._out = out.open("wb", buffering=1 << 20)
        self._waiting: dict[int, float] = {}
        settings: dict[str, str | int | bool] = {"bootstrap.servers": servers, "client.id": client_id}
        if idempotent:
            settings["enable.idempotence"] = True
        self._producer = Producer(settings)
        self.sent = 0
        self.first_error = ""

    def run(self, *, per_second: float) -> None:
        """Until standard input ends. Where the client's queue is full, sending waits."""
        due, last_s = 0.0, monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            self._producer.poll(TICK_S)
            now_s = monotonic()
            due = min(due + (now_s - last_s) * per_second, per_second)
            last_s = now_s
            with suppress(BufferError):
                while due >= 1:
                    self._send()
                    due -= 1
        self._producer.flush(FLUSH_S)
        for sequence, sent_s in self._waiting.items():
            self._out.write(SENT.pack(sequence, sequence % self._partitions, NEVER_ANSWERED, -1, sent_s, monotonic()))
        self._out.close()

    def _send(self) -> None:
        sequence, sent_s = self.sent, monotonic()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None and not self.first_error:
                self.first_error = f"{sequence}: {error}"
            status = 0 if error is None else error.code() or 1
            offset = message.offset()
            self._waiting.pop(sequence, None)
            self._out.write(
                SENT.pack(
                    sequence,
                    sequence % self._partitions,
                    status,
                    -1 if error is not None or offset is None else offset,
                    sent_s,
                    monotonic(),
                )
            )

        value = value_of(self._producer_number, sequence)
        names_lane = bool(self._lane) and is_for_lane(sequence)
        self._producer.produce(
            self._topic,
            value,
            partition=sequence % self._partitions,
            on_delivery=on_delivery,
            headers=[("x-lane", self._lane.encode())] if names_lane else [],
        )
        self._waiting[sequence] = sent_s
        self.sent += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "topic", "client-id"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("partitions", "producer", "per-second"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--lane", default="", help="some records name it by the header x-lane")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    writer = Writer(
        servers=given.servers,
        topic=given.topic,
        partitions=given.partitions,
        producer=given.producer,
        client_id=given.client_id,
        idempotent=given.idempotent,
        out=given.out,
        lane=given.lane,
    )
    writer.run(per_second=given.per_second)
    print(json.dumps({"sent": writer.sent, "first_error": writer.first_error}), flush=True)


if __name__ == "__main__":
    main()
