"""Every client reads a topic of the base of which records went to lanes by a header: its batches have gaps, or no
record at all, also at its end.
"""

import itertools
import json
from dataclasses import replace
from urllib.request import Request, urlopen

import pytest
from compat_clients.librdkafka import Librdkafka
from compat_contract import Client, Record
from compat_server import Bmq
from compat_wire import stored_counts
from test_clients_groups import places, wait_consumed
from tests.waiting import until

BASE_MS = 1_700_000_000_000
BATCHES = ("lbb", "l", "bll", "lll", "b", "ll", "lbl", "lb")
"""Which records of each batch are for a lane, and which for the base."""
COUNTS = [(2, 3), (0, 1), (1, 3), (0, 3), (1, 1), (0, 2), (1, 3), (1, 2)]
STARTS = (0, 5, 8, 13)
"""A batch's first offset, and within gaps: behind a record, in a batch without any, before a record."""
COMMITTED_S = 30.0
_lanes = itertools.count(1)
over_a_folder = pytest.mark.parametrize("bmq", ["folder"], indirect=True)


def made(bmq: Bmq, reference: Librdkafka, topic: str) -> str:
    """The topic, and a lane."""
    lane = f"gaps-{next(_lanes)}"
    asked = Request(
        f"http://127.0.0.1:{bmq.admin_port}/v1/lanes",
        data=json.dumps({"name": lane}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(asked, timeout=20) as answer:
        assert answer.status == 201
    reference.create_topic(
        bmq.servers, topic, partitions=1, configs={"retention.ms": "-1", "bmq.lane.header": "x-lane"}
    )
    return lane


def written(bmq: Bmq, reference: Librdkafka, topic: str, lane: str, *batches: str) -> list[Record]:
    """Those of the base, with their offsets, of batches that are so."""
    kept = []
    for number, batch in enumerate(batches):
        records = [
            Record(
                partition=0,
                timestamp_ms=BASE_MS + at,
                key=b"k",
                value=f"{number}-{at}".encode(),
                headers=(("x-lane", lane.encode()),) if whose == "l" else (("other", b"1"),),
            )
            for at, whose in enumerate(batch)
        ]
        codec = ("none", "gzip", "lz4")[number % 3]
        offsets = reference.produce(bmq.servers, topic, records, codec=codec, idempotent=number % 2 == 0)
        kept += [
            replace(record, offset=offset)
            for record, offset, whose in zip(records, offsets, batch, strict=True)
            if whose == "b"
        ]
    return kept


def wait_committed(bmq: Bmq, reference: Librdkafka, topic: str, record: Record) -> None:
    until(
        lambda: reference.group_offsets(bmq.servers, f"{topic}-group", topic).get(0, 0),
        f"offset {record.offset} to be committed",
        COMMITTED_S,
        holds=lambda offset: offset > record.offset,
    )


@over_a_folder
def test_client_reads_batches_with_gaps_and_without_records_and_commits(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    kept = written(bmq, reference, topic, made(bmq, reference, topic), *BATCHES)
    end = sum(map(len, BATCHES))
    assert stored_counts(bmq.servers, topic, 0, 0) == COUNTS
    assert kept[-1].offset == end - 1
    if client.assigns:
        for start in STARTS:
            wanted = [record for record in kept if record.offset >= start]
            assert client.read(bmq.servers, topic, starts={0: start}, ends={0: start + len(wanted)}) == wanted
    assert client.read_group(bmq.servers, topic, f"{topic}-group", count=len(kept)) == kept
    assert reference.group_offsets(bmq.servers, f"{topic}-group", topic) == {0: end}


@over_a_folder
def test_a_member_goes_on_over_batches_without_records_at_the_end(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    group, lane = f"{topic}-group", made(bmq, reference, topic)
    kept = written(bmq, reference, topic, lane, "b", "ll")
    for _ in range(2):
        member = client.join(bmq.servers, topic, group, assignor=client.assignors[0])
        wait_consumed(places(kept[-1:]), member)
        for batches in (("ll", "l"), ("lbl", "ll"), ("b",)):
            kept += written(bmq, reference, topic, lane, *batches)
            wait_consumed(places(kept[-1:]), member)
        kept += written(bmq, reference, topic, lane, "b", "ll")
        wait_consumed(places(kept[-1:]), member)
        wait_committed(bmq, reference, topic, kept[-1])
        assert member.consumed() == sorted(places(kept) & set(member.consumed())), "a record came twice"
        member.leave()
        kept += written(bmq, reference, topic, lane, "l", "b", "ll")
