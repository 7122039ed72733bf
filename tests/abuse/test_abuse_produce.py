"""Produce requests that name as many partitions as they may: begun in turns, so that others are served meanwhile, and
in the order of arrival.
"""

import gc
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from tests.bare_client import BareClient, framed, parsed

from bmq.runtime.loop import settle
from bmq.wire.limits import PRODUCE_PARTITIONS_MAX
from bmq.wire.records import Record, build_batch

TURN_S_MAX: Final = 0.15
TRIES: Final = 6
"""The garbage collector looks at what twenty thousand newly opened partitions left in one turn."""
ANSWERED_WITHIN_S: Final = 120
WIDE: Final = PRODUCE_PARTITIONS_MAX // 2
TOPICS: Final = 2_000
TINY: Final = build_batch([Record(0, 1_000, None, b"one")])
LARGER: Final = build_batch([Record(0, 1_000, None, bytes(2_000))])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("produce")) as running:
        running.have_topics({"wide": WIDE, "wider": WIDE, **{f"t{n}": 1 for n in range(TOPICS)}})
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def produce(data: Sequence[dict[str, Any]], *, number: int = 1) -> bytes:
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 60_000, "topic_data": data}
    return framed(0, 9, asked, correlation_id=number)


def to_all(names: Sequence[str], count: int, batch: bytes) -> list[dict[str, Any]]:
    return [
        {"name": name, "partition_data": [{"index": index, "records": batch} for index in range(count)]}
        for name in names
    ]


CASES: Final = {
    "tiny batches": to_all(["wide", "wider"], WIDE, TINY),
    "larger batches": to_all(["wide", "wider"], WIDE, LARGER),
    "topics": to_all([f"t{n}" for n in range(TOPICS)], 1, TINY),
    "topics that are not there": to_all([f"no-{n}" for n in range(PRODUCE_PARTITIONS_MAX)], 1, TINY),
    "nothing in it": to_all(["wide", "wider"], WIDE, b""),
}


@pytest.mark.measures
@pytest.mark.parametrize("case", list(CASES))
def test_one_request_for_as_many_partitions_as_there_may_be_does_not_hold_the_loop(node: AbusedNode, case: str) -> None:
    frame = produce(CASES[case])
    turns_s = []
    # a look of the garbage collector, or a neighbour that empties the caches, is no property of the request
    for _ in range(TRIES):
        node.longest_turn_s()
        with BareClient(node.kafka) as client:
            client.send_bytes(frame)
            _, answer = parsed(0, 9, client.receive_frame())
        assert sum(len(topic.partition_responses) for topic in answer.responses) == sum(
            len(topic["partition_data"]) for topic in CASES[case]
        )
        turns_s.append(node.longest_turn_s())
        if turns_s[-1] < may_hold_s(TURN_S_MAX):
            return
    raise AssertionError(f"{len(frame)} bytes held the loop for {turns_s}")


def test_requests_of_one_connection_reach_a_partition_in_their_order_though_the_first_is_begun_in_turns(
    node: AbusedNode,
) -> None:
    last = WIDE - 1
    sizes = (WIDE, 1, 1, 500, 1)
    requests = [
        produce(
            [
                {
                    "name": "wide",
                    "partition_data": [{"index": index, "records": TINY} for index in range(WIDE - count, WIDE)],
                }
            ],
            number=number,
        )
        for number, count in enumerate(sizes)
    ]
    with BareClient(node.kafka) as client:
        client.send_bytes(b"".join(requests))
        offsets = []
        for number in range(len(sizes)):
            got, answer = parsed(0, 9, client.receive_frame())
            assert got == number
            offsets += [
                one.base_offset for topic in answer.responses for one in topic.partition_responses if one.index == last
            ]
    assert offsets == list(range(offsets[0], offsets[0] + len(sizes)))
