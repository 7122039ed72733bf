"""Clients of very many lanes: what each lane sees is made of the names of all topics, and is not made for all lanes in
one turn.
"""

import contextlib
import gc
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from tests.bare_client import BareClient, framed

from bmq.runtime.loop import settle
from bmq_controller.machine.lanes import LaneWanted

TURN_S_MAX: Final = 0.1
LANES: Final = 60
TOPICS: Final = 3_000
TRIES: Final = 3
"""A look of the garbage collector is no property of the requests."""
ANSWERED_WITHIN_S: Final = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("lanes")) as running:
        running.have_topics({f"t{n}": 1 for n in range(TOPICS)})
        leading = running.node.leading
        assert leading is not None
        for number in range(LANES):
            running.run(leading.create_lane(LaneWanted(name=f"l{number}")))
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def by_id(lane: int, number: int) -> bytes:
    """Of an id that no proxy told."""
    asked = {"topics": [{"topic_id": UUID(int=number), "name": None}], "allow_auto_topic_creation": False}
    return framed(3, 12, asked, correlation_id=lane, client_id=f"lane=l{lane}")


@pytest.mark.measures
def test_clients_of_sixty_lanes_that_ask_at_once_after_a_topic_was_made_do_not_hold_the_loop(node: AbusedNode) -> None:
    turns_s = []
    for attempt in range(TRIES):
        node.have_topics({f"more-{attempt}": 1})
        node.longest_turn_s()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(BareClient(node.kafka)) for _ in range(LANES)]
            for lane, client in enumerate(clients):
                client.send_bytes(by_id(lane, 1 + attempt))
            for client in clients:
                client.receive_frame()
        turns_s.append(node.longest_turn_s())
        if turns_s[-1] < may_hold_s(TURN_S_MAX):
            return
    raise AssertionError(f"{LANES} requests held the loop for {turns_s}")
