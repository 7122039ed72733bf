"""Fetch sessions: what a request of a few bytes makes a proxy do, and what it keeps of clients, is bounded by what they
named before.
"""

import gc
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from tests.bare_client import BareClient

from bmq.config.limits import Limits
from bmq.runtime.loop import settle
from bmq.wire.error_codes import ErrorCode

TURN_S_MAX: Final = 0.1
GROWS_BY: Final = 5_000
UNKNOWN: Final = 10_000
UNOPENED: Final = ("unopened-1", "unopened-2")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("sessions")) as running:
        thresholds = gc.get_threshold()
        settle()  # as a process of bmq does
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def fetch(client: BareClient, session_id: int, epoch: int, names: Sequence[str], *, partitions: int = 1) -> Any:
    """The answer of a session's next request, which adds so many topics with so many partitions each."""
    partition = {"fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    each = [{**partition, "partition": index} for index in range(partitions)]
    asked = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": session_id, "session_epoch": epoch}
    return client.ask(1, 11, {**asked, "topics": [{"topic": name, "partitions": each} for name in names]})


@pytest.mark.measures
def test_a_session_that_grows_by_steps_makes_no_small_request_hold_everybody_up(node: AbusedNode) -> None:
    most = Limits().fetch_partitions_max
    names = [f"grown-{n}" for n in range(most // GROWS_BY)]
    node.have_topics(dict.fromkeys(names, GROWS_BY))
    with BareClient(node.kafka) as client:
        for name in names:  # which opens their partitions
            while any(
                one.error_code
                for topic in fetch(client, 0, -1, [name], partitions=GROWS_BY).responses
                for one in topic.partitions
            ):
                pass
        session_id = fetch(client, 0, 0, names[:1], partitions=GROWS_BY).session_id
        assert session_id
        for epoch, name in enumerate(names[1:], 1):
            assert fetch(client, session_id, epoch, [name], partitions=GROWS_BY).error_code == 0
        assert node.ask(lambda: node.node.proxy.proxy.sessions.partitions) == most
        node.longest_turn_s()
        answer = fetch(client, session_id, len(names), [])
        assert (answer.error_code, answer.responses) == (0, [])
        assert node.longest_turn_s() < may_hold_s(TURN_S_MAX)
        refused = fetch(client, session_id, len(names) + 1, ["one more"])
        assert (refused.error_code, refused.responses) == (ErrorCode.fetch_session_id_not_found, [])
    assert node.ask(lambda: node.node.proxy.proxy.sessions.partitions) == 0


def test_a_session_of_names_that_are_not_there_does_not_repeat_all_of_them_for_a_request_of_a_few_bytes(
    node: AbusedNode,
) -> None:
    with BareClient(node.kafka) as client:
        answer = fetch(client, 0, 0, [f"none-{n}" for n in range(UNKNOWN)])
        assert (answer.error_code, len(answer.responses)) == (0, UNKNOWN)
        again = fetch(client, answer.session_id, 1, [])
        assert (again.error_code, again.responses) == (ErrorCode.fetch_session_id_not_found, [])


def test_no_session_remembers_names_that_no_topic_can_have(node: AbusedNode) -> None:
    with BareClient(node.kafka) as client:
        for number in range(3):
            answer = fetch(client, 0, 0, [f"{number}-{n}-" + "x" * 30_000 for n in range(60)])
            assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, 0, 60)
    assert node.ask(lambda: len(node.node.proxy.proxy.sessions)) == 0


@pytest.mark.measures
def test_a_fetch_of_many_partitions_that_are_not_open_yet_holds_nobody_up(node: AbusedNode) -> None:
    most = Limits().fetch_partitions_max
    node.have_topics(dict.fromkeys(UNOPENED, most // len(UNOPENED)))
    with BareClient(node.kafka) as client:
        node.longest_turn_s()
        answer = fetch(client, 0, 0, UNOPENED, partitions=most // len(UNOPENED))
        assert node.longest_turn_s() < may_hold_s(TURN_S_MAX)
    assert {one.error_code for topic in answer.responses for one in topic.partitions} <= {
        0,
        ErrorCode.not_leader_or_follower,
    }
