"""Requests of a few bytes are not counted one by one: of any API, however much they ask for, and however many
connections send one at the same time, each holds about what any request does while it waits.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import pytest
from abuse_process import BmqProcess, bmq_process
from abuse_requests import API_KEYS, MANY_TOPICS, Abuse, small_ones
from tests.bare_client import BareClient, framed

from bmq.wire.apis import SERVED, ApiKey
from bmq_proxy.bulk import SMALL_BYTES

KIB: Final = 1 << 10
MIB: Final = 1 << 20
CONNECTIONS: Final = 800
HEADER_BYTES: Final = 32
ANSWERS_BYTES: Final = 8 * MIB
TOPICS: Final = {"wide": 12, "one": 1, **{f"many-{n:04}": 1 for n in range(MANY_TOPICS)}}
HELD_BYTES: Final = 16 * KIB
"""By each request, beyond what one holds that asks for nothing."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BmqProcess]:
    folder = tmp_path_factory.mktemp("small")
    with bmq_process(folder, "--limit", f"answer_memory_bytes={ANSWERS_BYTES}", topics=TOPICS) as running:
        yield running


def held_bytes(process: BmqProcess, frame: bytes) -> int:
    """By how much it grows while each of many connections has sent that, and until all have their answers."""
    process.until_quiet()
    with contextlib.ExitStack() as open_ones:
        strangers = [open_ones.enter_context(BareClient(process.kafka)) for _ in range(CONNECTIONS)]
        with process.growth() as grown:
            for one in strangers:
                one.send_some(frame, within_s=10)
            for one in strangers:
                with contextlib.suppress(ConnectionError, socket.timeout):
                    one.receive_frame()
    return grown.size_bytes


@pytest.fixture(scope="module")
def nothing_asked_bytes(process: BmqProcess) -> int:
    """What it grows by for that many connections, when each asks for nothing."""
    frame = framed(ApiKey.API_VERSIONS, 3, {"client_software_name": "small", "client_software_version": "1"})
    held_bytes(process, frame)  # what it grows by once
    return held_bytes(process, frame)


SMALL: Final[list[Abuse]] = [
    abuse
    for key in API_KEYS
    for abuse in small_ones(key, SERVED[key].version_max, size_bytes=SMALL_BYTES + HEADER_BYTES)
]


@pytest.mark.measures
@pytest.mark.memory
@pytest.mark.parametrize("abuse", SMALL, ids=lambda abuse: f"{SERVED[abuse.api_key].name} {abuse.what}")
def test_a_small_request_holds_little_while_hundreds_of_others_ask_for_the_same(
    process: BmqProcess, nothing_asked_bytes: int, abuse: Abuse
) -> None:
    process.have_topics(TOPICS)
    held = held_bytes(process, abuse.frame)
    assert held < max(nothing_asked_bytes, 0) + CONNECTIONS * HELD_BYTES + 2 * ANSWERS_BYTES + 8 * MIB
