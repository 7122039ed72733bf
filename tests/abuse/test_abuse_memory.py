"""What a request makes of a process's memory: of a `bmq up` as it is shipped, in its own process.

What is named in a request becomes objects of Python while it is worked on, up to ELEMENT_BYTES for each with its part
of the answer, however few bytes it takes on the wire. So a request is bounded by its bytes and by what it names; and
all of them together by what is worked on at a time.
"""

import gc
from collections.abc import Iterator
from typing import Final

import pytest
from abuse_node import AbusedNode, abused_node
from abuse_process import BmqProcess
from abuse_requests import API_KEYS, TOPIC_IDS, TOPICS, Abuse
from tests.bare_client import BareClient
from wide_requests import ELEMENT_BYTES, elements_in, wide

from bmq.runtime.loop import settle
from bmq.wire.apis import SERVED, ApiKey

KIB: Final = 1 << 10
MIB: Final = 1 << 20
FETCHED_BYTES: Final = 3 * KIB
"""The same of a partition in a Fetch, which is looked up in its session, its owner's tail and its manifest."""
UNREACHABLE_MAX: Final = 1_000
"""Objects of a request that only the garbage collector frees: a few, however much it names."""
TRIES: Final = 3


def may_grow_bytes(abuse: Abuse, answer_bytes: int) -> int:
    """By its bytes and elements, and by those of what it is told: the groups that there are, for one."""
    each = FETCHED_BYTES if abuse.api_key == ApiKey.FETCH else ELEMENT_BYTES
    return 8 * (len(abuse.frame) + answer_bytes) + MIB + each * elements_in(abuse)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("cycles")) as running:
        running.have_topics(TOPICS)
        thresholds = gc.get_threshold()
        settle()
        gc.disable()
        yield running
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: SERVED[key].name)
def test_what_a_request_took_is_free_when_it_is_answered_and_waits_for_no_garbage_collector(
    node: AbusedNode, api_key: int
) -> None:
    """An error that is kept has the frames that it came through, and those have the error: forty requests of 234 KB
    held 2.5 GB so.
    """
    TOPIC_IDS.update(node.have_topics(TOPICS))
    found = []
    for abuse in wide(api_key):
        if abuse.what.endswith("same"):
            continue  # of which one is left
        node.ask(gc.collect)
        with BareClient(node.kafka) as client:
            client.exchange(abuse.frame)
        unreachable = node.ask(gc.collect)
        if unreachable > UNREACHABLE_MAX:
            found.append(f"{abuse.what}: {unreachable} objects of it are only found by the garbage collector")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.measures
@pytest.mark.memory
@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: SERVED[key].name)
def test_one_request_takes_no_more_memory_than_its_bytes_and_what_it_names_come_to(
    process: BmqProcess, api_key: int
) -> None:
    process.have_topics(TOPICS)
    found = []
    for abuse in wide(api_key):
        grown_bytes, may_be_bytes = [1], 0
        while grown_bytes[-1] > may_be_bytes and len(grown_bytes) <= TRIES:
            grown, answer_bytes = _grown_bytes(process, abuse)
            grown_bytes.append(grown)
            may_be_bytes = may_grow_bytes(abuse, answer_bytes)
        if grown_bytes[-1] > may_be_bytes:
            found.append(f"{abuse.what}: {len(abuse.frame)} bytes take {grown_bytes[1:]}, more than {may_be_bytes}")
    assert not found, "\n" + "\n".join(found)


def _grown_bytes(process: BmqProcess, abuse: Abuse) -> tuple[int, int]:
    """(by how much more was in memory, the size of the answer)"""
    process.until_quiet()
    with process.growth() as grown, BareClient(process.kafka) as client:
        answer = client.exchange(abuse.frame)
    return grown.size_bytes, len(answer or b"")
