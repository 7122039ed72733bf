"""Topics whose records name their lane by a header (`bmq.lane.header`), with batches that have gaps of every kind."""

import itertools
from collections.abc import Mapping
from typing import Final

from compat_server import Bmq
from confluent_kafka.admin import AdminClient, NewTopic
from test_odd_records import produce_raw

from bmq.wire.batches import Record, build_batch

LANE: Final = "chosen"
WRITTEN: Final = ("LLb", "bLLx", "bLL", "LLX", "bb", "LL")
"""Batches, each of another codec: b is a record of the base, L one of the lane, x and X are such that are no text."""
OFFSETS: Final = {"": [2, 3, 6, 7, 13, 14], LANE: [0, 1, 4, 5, 8, 9, 10, 11, 12, 13, 14]}
"""Those of the records in the two logs. The lane has nothing of the fifth batch."""
NO_TEXT: Final = {"": 6, LANE: 12}
ENDS: Final = {"": 17, LANE: 15}
TO_LANE: Final = [("x-lane", LANE.encode())]
TIME_MS: Final = 1_763_870_000_000
_names = itertools.count(1)


def parted_topic(bmq: Bmq, configs: Mapping[str, str] | None = None) -> str:
    """A topic of one partition with all of WRITTEN; LANE, which is there, has its own part."""
    name = f"parted-{next(_names)}"
    create(bmq, name, {"bmq.lane.header": "x-lane", "retention.ms": "-1", **(configs or {})})
    write(bmq, name)
    return name


def create(bmq: Bmq, topic: str, configs: Mapping[str, str], *, client_id: str = "test") -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bmq.servers, "client.id": client_id})
    admin.create_topics([NewTopic(topic, 1, config=dict(configs))])[topic].result(30)


def write(bmq: Bmq, topic: str) -> None:
    """All of WRITTEN. The records of a batch have one key."""
    for number, kinds in enumerate(WRITTEN):
        records = [
            Record(
                0,
                TIME_MS + number,
                b"%d" % number,
                b"\xff" if kind in "xX" else b"%d.%d" % (number, place),
                TO_LANE if kind in "LX" else [],
            )
            for place, kind in enumerate(kinds)
        ]
        produce_raw(bmq.servers, topic, build_batch(records, codec=number % 5))
