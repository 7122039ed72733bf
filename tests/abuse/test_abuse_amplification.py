"""No request of n bytes may cost much more than n: not in bytes answered, not in memory kept, not in time that all
others wait.

Walks every API that is served, from its schema; ABUSE=large makes it every version, with arrays as long as they may be.
"""

import gc
from collections.abc import Iterator

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from abuse_requests import API_KEYS, LARGE, TOPIC_IDS, TOPICS, Abuse, abuses, versions
from tests.bare_client import BareClient, PeerClosed, framed

from bmq.runtime.loop import settle
from bmq.wire.apis import SERVED
from bmq_proxy import metrics

TURN_S_MAX = 0.1
TRIES = 3
"""How long one client may hold the loop, and so everybody else."""
ANSWER_WITHIN_S = 30
A_LIE = "a count that lies"
LIE_ANSWERED_WITHIN_S = 0.3 if LARGE else 3
"""What waits longer waits for others: of hundreds of lies some become a Fetch or a JoinGroup."""
KIB = 1 << 10


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("abused")) as running:
        running.have_topics(TOPICS)
        thresholds = gc.get_threshold()
        settle()  # as a process of bmq does: what lives now is not looked at again while somebody waits
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def answered_bytes(node: AbusedNode, abuse: Abuse) -> int:
    """How many bytes come back, until the answer is whole or the connection ends."""
    with BareClient(node.kafka, timeout_s=ANSWER_WITHIN_S) as client:
        try:
            client.send_bytes(abuse.frame)
            if not abuse.ends:
                return 0
            if abuse.what == A_LIE:
                client.socket.settimeout(LIE_ANSWERED_WITHIN_S)
            return 4 + len(client.receive_frame())
        except PeerClosed:
            return 0  # a frame that is too long
        except TimeoutError:
            assert abuse.what == A_LIE, (
                f"v{abuse.version} {abuse.what}: only a lie that became a Fetch or a JoinGroup that waits for "
                "others may wait"
            )
            return 0


@pytest.mark.measures
@pytest.mark.timeout(3_600 if LARGE else 300)
@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: SERVED[key].name)
def test_no_request_costs_much_more_than_it_is_long(node: AbusedNode, api_key: int) -> None:
    TOPIC_IDS.update(node.have_topics(TOPICS))
    failures = metrics.HANDLER_FAILURES._value.get()
    whole = answered_bytes(node, Abuse(3, 1, "everything", framed(3, 1, {"topics": None})))
    node.longest_turn_s()
    found = []
    for version in versions(api_key):
        for abuse in abuses(api_key, version):
            size = answered_bytes(node, abuse)
            turn_s = node.longest_turn_s()
            for _ in range(TRIES - 1):  # a neighbour may have had the processor's caches meanwhile
                if turn_s <= TURN_S_MAX:
                    break
                answered_bytes(node, abuse)
                turn_s = min(turn_s, node.longest_turn_s())
            count = len(abuse.frame)
            may = 64 * count + 64 * KIB + (whole if abuse.what.endswith(("known", "lies")) else 0)
            if size > may:
                found.append(f"v{version} {abuse.what}: {count} bytes are answered with {size}, more than {may}")
            if turn_s > TURN_S_MAX and turn_s > may_hold_s(TURN_S_MAX):
                found.append(f"v{version} {abuse.what}: {count} bytes hold the loop for {turn_s * 1000:.0f} ms")
    assert not found, "\n" + "\n".join(found)
    assert metrics.HANDLER_FAILURES._value.get() == failures, "a handler failed by a bug: see the log"
