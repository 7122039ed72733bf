"""Groups that somebody made large or many: who asks about them gets what there is in parts, and holds neither memory
nor the loop.
"""

import contextlib
import gc
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest
from abuse_node import MIB, AbusedNode, abused_node, may_hold_s
from tests.bare_client import BareClient, framed
from tests.waiting import let_pass, until

from bmq.config.limits import Limits
from bmq.naming.group_partition import partition_of_group
from bmq.runtime.loop import settle
from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.records import OffsetKey, OffsetValue

KIB: Final = 1 << 10
LARGE_GROUPS: Final = 16
METADATA_BYTES: Final = 900 * KIB
DESCRIBED_BYTES: Final = 2 * MIB
ANSWERS_BYTES: Final = 8 * MIB
MANY: Final = 40_000
ASKED: Final = 39_000
TURN_S_MAX: Final = 0.1
TRIES: Final = 3
LOOKS: Final = 200
NOT_READING: Final = 12
WORDY: Final = 1_000
WAITING: Final = 5


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    limits = Limits(answer_memory_bytes=ANSWERS_BYTES, described_groups_bytes_max=DESCRIBED_BYTES)
    with abused_node(tmp_path_factory.mktemp("groups"), limits) as running:
        running.have_topics({"t": 1})
        with BareClient(running.kafka) as client:
            for number in range(LARGE_GROUPS):
                make_large(client, f"large-{number}")
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def make_large(client: BareClient, group_id: str) -> None:
    """A stable group whose one member says much."""
    metadata = bytes(METADATA_BYTES)
    joined = client.ask(11, 3, join(group_id, [{"name": "p", "metadata": metadata}]))
    assert joined.error_code == 0
    assignments = [{"member_id": joined.member_id, "assignment": b""}]
    sync = {"group_id": group_id, "generation_id": 1, "member_id": joined.member_id, "assignments": assignments}
    assert client.ask(14, 3, sync).error_code == 0


def join(group_id: str, protocols: list[dict[str, Any]]) -> dict[str, Any]:
    times = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 60_000}
    return {"group_id": group_id, **times, "member_id": "", "protocol_type": "x", "protocols": protocols}


def states(node: AbusedNode) -> list[DurableState]:
    """What the coordinators have, by partition: all are loaded."""
    with BareClient(node.kafka) as client:
        client.ask(16, 4, {"states_filter": []})
    shards = node.node.broker._coordinators._shards.values()
    return [shard._machine.durable for shard in sorted(shards, key=lambda shard: shard.partition)]


def shortest_turn_s(node: AbusedNode, frame: bytes) -> float:
    """Of some tries: a look of the garbage collector or a neighbour is no property of a request."""
    turns_s = []
    for _ in range(TRIES):
        node.longest_turn_s()
        with BareClient(node.kafka) as client:
            assert client.exchange(frame)
        turns_s.append(node.longest_turn_s())
        if turns_s[-1] < TURN_S_MAX:
            break
    return min(turns_s)


def test_descriptions_of_large_groups_come_in_parts_and_all_of_them_to_who_asks_again(node: AbusedNode) -> None:
    left, answers = [f"large-{number}" for number in range(LARGE_GROUPS)], 0
    with BareClient(node.kafka) as client:
        while left:
            described = client.ask(15, 5, {"groups": left}).groups
            assert [group.group_id for group in described] == left
            whole = [group for group in described if not group.error_code]
            assert whole, "who asks again comes to an end"
            assert sum(len(member.member_metadata) for group in whole for member in group.members) <= DESCRIBED_BYTES
            assert all(len(group.members[0].member_metadata) == METADATA_BYTES for group in whole)
            rest = [group for group in described if group.error_code]
            assert {group.error_code for group in rest} <= {ErrorCode.coordinator_load_in_progress}
            left, answers = [group.group_id for group in rest], answers + 1
    assert answers == LARGE_GROUPS // 2


def most_held_bytes(node: AbusedNode) -> int:
    """Of answers, from when there are many for as long as they could become more."""
    answers = node.node.proxy.proxy.bulk.answers
    found = [until(lambda: node.ask(lambda: answers.held_bytes), "answers", holds=lambda held: held > MIB, every_s=0)]
    for _ in range(LOOKS):
        found.append(node.ask(lambda: answers.held_bytes))
        let_pass(0.01, "they could become more")
    return max(found)


def test_those_who_do_not_read_descriptions_hold_no_more_than_answers_may_and_others_are_answered(
    node: AbusedNode,
) -> None:
    frame = framed(15, 5, {"groups": [f"large-{number}" for number in range(LARGE_GROUPS)]})
    with contextlib.ExitStack() as open_ones:
        for _ in range(NOT_READING):
            stranger = open_ones.enter_context(BareClient(node.kafka))
            stranger.send_some(frame * 4, within_s=0.1)
        assert MIB < most_held_bytes(node) < ANSWERS_BYTES + DESCRIBED_BYTES + MIB
        with BareClient(node.kafka, own_host="127.0.0.2") as other:
            [group] = other.ask(15, 5, {"groups": ["large-0"]}).groups
            assert group.error_code == 0


def test_all_offsets_of_a_group_with_much_metadata_are_held_for_few_who_do_not_read_them(node: AbusedNode) -> None:
    found = states(node)[partition_of_group("wordy", 16)]
    topic_id = node.node.image.topic_ids["t"]

    def have(metadata: str | None) -> None:
        for number in range(WORDY):
            found.replay(
                OffsetKey("wordy", "t", number),
                None if metadata is None else OffsetValue(7, metadata=metadata, topic_id=topic_id),
            )

    node.ask(lambda: have("x" * 4_000))
    frame = framed(9, 7, {"group_id": "wordy", "topics": None})
    with contextlib.ExitStack() as open_ones:
        for _ in range(NOT_READING):
            stranger = open_ones.enter_context(BareClient(node.kafka))
            stranger.send_some(frame * 4, within_s=0.1)
        assert MIB < most_held_bytes(node) < ANSWERS_BYTES + 2 * WORDY * 4_000
    node.ask(lambda: have(None))


def test_who_waits_for_others_of_its_group_keeps_no_memory_for_its_request(node: AbusedNode) -> None:
    """A rebalance timeout has no bound, in Kafka neither."""
    memory = node.node.proxy.server.endpoint.request_memory
    with contextlib.ExitStack() as open_ones:
        for number in range(WAITING):
            stranger = open_ones.enter_context(BareClient(node.kafka))
            stranger.send_some(
                framed(11, 3, join(f"large-{number}", [{"name": "p", "metadata": bytes(METADATA_BYTES)}])), within_s=5
            )
        until(
            lambda: (_waiting(node), node.ask(lambda: memory.held_bytes)),
            f"{WAITING} members to wait, and hold next to nothing",
            holds=lambda seen: seen[0] >= WAITING and seen[1] <= 64 * KIB,
        )
    until(lambda: _waiting(node), "nobody to wait any more", holds=lambda waiting: not waiting)


def _waiting(node: AbusedNode) -> int:
    """JoinGroups that wait for others."""
    shards = node.node.broker._coordinators._shards.values()
    return node.ask(lambda: sum(len(group.joins) for shard in shards for group in shard._machine.groups.values()))


@pytest.fixture
def many(node: AbusedNode) -> Iterator[None]:
    """Tens of thousands of groups that only have offsets; not in the log, which nobody here asks for."""
    found = states(node)

    def make() -> None:
        for number in range(MANY):
            value = OffsetValue(7, topic_id=node.node.image.topic_ids["t"])
            found[number % len(found)].replay(OffsetKey(f"g{number}", "t", 0), value)

    def unmake() -> None:
        for number in range(MANY):
            found[number % len(found)].replay(OffsetKey(f"g{number}", "t", 0), None)

    node.ask(make)
    yield
    node.ask(unmake)


@pytest.mark.measures
@pytest.mark.usefixtures("many")
def test_a_list_of_all_groups_does_not_hold_the_loop(node: AbusedNode) -> None:
    frame = framed(16, 4, {"states_filter": []})
    with BareClient(node.kafka) as client:
        assert len(client.ask(16, 4, {"states_filter": []}).groups) == MANY + LARGE_GROUPS
    assert shortest_turn_s(node, frame) < may_hold_s(TURN_S_MAX)


@pytest.mark.measures
@pytest.mark.parametrize("prefix", ["no-", "long-" * 7, ":dev#1:"], ids=["unknown", "long", "a lane's"])
@pytest.mark.parametrize("api", ["offsets", "all offsets", "descriptions"])
def test_a_request_about_very_many_groups_does_not_hold_the_loop(node: AbusedNode, api: str, prefix: str) -> None:
    ids = [f"{prefix}{number}" for number in range(ASKED if api != "offsets" else ASKED // 2)]
    topics = [{"name": "t", "partition_indexes": []}] if api == "offsets" else None
    request: dict[str, Any] = (
        {"groups": ids} if api == "descriptions" else {"groups": [{"group_id": one, "topics": topics} for one in ids]}
    )
    key, version = (15, 5) if api == "descriptions" else (9, 8)
    frame = framed(key, version, request)
    assert struct.unpack_from(">i", frame)[0] < 2 * MIB
    assert shortest_turn_s(node, frame) < may_hold_s(TURN_S_MAX)
