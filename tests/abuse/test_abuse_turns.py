"""Requests just small enough to be decoded at once, on many connections at the same time: the loop is held by one or
two of them, not by all.
"""

import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Final

import abuse_requests
import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from abuse_requests import TOPIC_IDS, TOPICS, Abuse, abuses
from tests.bare_client import BareClient, PeerClosed

from bmq.config.limits import Limits
from bmq.runtime.loop import settle
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.error_codes import ErrorCode

TURN_S_MAX: Final = 0.1
CONNECTIONS: Final = 100
ADDRESSES: Final = 4
TRIES: Final = 2
ANSWERED_WITHIN_S: Final = 120
INLINE_BYTES_MAX: Final = Limits().request_inline_bytes_max
DENSE: Final = (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)
"""Whose elements cost most."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("turns")) as running:
        TOPIC_IDS.update(running.have_topics(TOPICS))
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def densest(api_key: int, monkeypatch: pytest.MonkeyPatch) -> Abuse:
    """Of the requests that are decoded at once the one that names most."""
    for elements in (5_000, 2_500, 1_200, 600):
        monkeypatch.setattr(abuse_requests, "ELEMENTS", elements)
        found = [
            one
            for one in abuses(api_key, SERVED[api_key].version_max)
            if "×" in one.what and len(one.frame) <= INLINE_BYTES_MAX
        ]
        if found and len(found[0].frame) > INLINE_BYTES_MAX // 2:
            return next((one for one in found if one.what.endswith("unknown")), found[0])
    raise AssertionError("none is nearly as large as may be")


def all_at_once(node: AbusedNode, frame: bytes) -> float:
    """The longest turn of the loop."""
    held = [
        BareClient(node.kafka, own_host=f"127.0.0.{2 + n % ADDRESSES}", timeout_s=ANSWERED_WITHIN_S)
        for n in range(CONNECTIONS)
    ]
    node.longest_turn_s()
    for one in held:
        one.send_bytes(frame)
    for one in held:
        with contextlib.suppress(PeerClosed):
            one.receive_frame()
        one.close()
    return node.longest_turn_s()


@pytest.mark.measures
@pytest.mark.parametrize("api_key", DENSE, ids=lambda key: SERVED[key].name)
def test_a_hundred_requests_that_are_decoded_at_once_hold_the_loop_for_a_moment(
    node: AbusedNode, api_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    abuse = densest(api_key, monkeypatch)
    longest_s = [all_at_once(node, abuse.frame)]
    while longest_s[-1] >= may_hold_s(TURN_S_MAX) and len(longest_s) < TRIES:
        longest_s.append(all_at_once(node, abuse.frame))
    assert longest_s[-1] < may_hold_s(TURN_S_MAX), longest_s


@pytest.mark.measures
def test_ten_thousand_refused_configurations_cost_little_whatever_they_are_called(node: AbusedNode) -> None:
    """Each with its hint: where that compared letters in their order, such a name took half a ms."""

    def spent_s(name: str) -> float:
        configs = [{"name": name, "value": "1"}]
        topics = [
            {"name": f"odd-{n}", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
            for n in range(9_900)
        ]
        before_s = node.ask(time.thread_time)
        with BareClient(node.kafka, timeout_s=ANSWERED_WITHIN_S) as client:
            made = client.ask(19, 5, {"topics": topics, "timeout_ms": 60_000, "validate_only": True})
        assert {topic.error_code for topic in made.topics} == {ErrorCode.invalid_config}
        return node.ask(time.thread_time) - before_s

    alike, unlike = (
        min(spent_s(name) for _ in range(TRIES)) for name in ("tereaoal...naeisnltcl.cmiyetid.", "0123456789")
    )
    assert alike < 2 * unlike
