"""What comes over the wire harms nobody but its sender: no crash, bounded memory, one log line, and a neighbour that
notices nothing.

All of it meets one running bmq, each abuse from a loopback address of its own. `BMQ_SEED` chooses other mutations,
`BMQ_MUTATIONS` more.
"""

import itertools
import json
import os
import random
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic

import pytest
from survival_frames import HTTP_REQUEST, TOPIC, good_requests, lies, mutated, tls_hello
from survival_neighbour import Neighbour, assert_undisturbed
from survival_process import MIB, RSS_MIB_MAX, Survivor
from survival_wire import batch_of, create_topic, fetch, fetch_fields, produce, with_max_timestamp
from tests.bare_client import BareClient, PeerClosed, framed
from tests.waiting import let_pass, until

from bmq.wire.apis import ApiKey
from bmq.wire.compression import Codec
from bmq.wire.error_codes import ErrorCode
from bmq.wire.limits import BATCH_RECORDS_MAX

SEED = int(os.environ.get("BMQ_SEED", "20260"))
MUTATIONS = int(os.environ.get("BMQ_MUTATIONS", "2000"))
IDLE_CONNECTIONS = 5_000
CLOSED = "connection closed"
_addresses = itertools.count(2)

pytestmark = pytest.mark.measures


class Abuse:
    """One kind of it, from one address."""

    def __init__(self, bmq: Survivor) -> None:
        self.source = f"127.0.1.{next(_addresses)}"
        self._bmq = bmq
        self._log_at = bmq.log_size()

    def peer(self, **options: int) -> BareClient:
        return BareClient(self._bmq.servers, own_host=self.source, **options)

    def complaints(self) -> list[str]:
        """The reasons that the log gives for closing this peer's connections."""
        return [
            line["reason"]
            for line in self._bmq.lines(after=self._log_at)
            if line.get("event") == CLOSED and line["peer"] == self.source
        ]

    def unexpected(self) -> list[str]:
        """Lines that say more than that a connection was closed."""
        lines = self._bmq.lines(after=self._log_at)
        return [
            json.dumps(line) for line in lines if "text" in line or line.get("level") == "error" or "exception" in line
        ]


@contextmanager
def abusing(what: str, bmq: Survivor, neighbour: Neighbour) -> Iterator[Abuse]:
    """Measures the neighbour before and while the block runs, and the memory; afterwards bmq must be as it was."""
    before = neighbour.measure(1.5)
    bmq.forget_peak()
    abuse = Abuse(bmq)
    began = monotonic()
    yield abuse
    let_pass(began + 1.5 - monotonic(), "the neighbour is measured as long as before")
    beside = neighbour.between(began, monotonic())
    peak_mib = bmq.peak_mib()
    print(f"{what}: {monotonic() - began:.1f} s, RSS at most {peak_mib:.0f} MiB, now {bmq.rss_mib():.0f} MiB")
    assert bmq.is_alive(), f"{what} ended bmq:\n{bmq.tail_of_log()}"
    assert peak_mib <= RSS_MIB_MAX
    assert not (unexpected := abuse.unexpected()), unexpected
    assert_undisturbed(what, before, beside)


@pytest.fixture(scope="module", autouse=True)
def topics(bmq: Survivor) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with BareClient(bmq.servers) as peer:
        create_topic(peer, TOPIC)
        create_topic(peer, "large", configs=[("max.message.bytes", str(16 * MIB))])
        create_topic(peer, "bombs", partitions=8)
        create_topic(peer, "unopened", partitions=8, configs=[("bmq.validation", "header")])
        create_topic(
            peer, "tiny", partitions=4, configs=[("max.message.bytes", str(16 * MIB)), ("bmq.validation", "header")]
        )


def test_mutated_and_random_frames_are_answered_or_end_their_connection(bmq: Survivor, neighbour: Neighbour) -> None:
    rng = random.Random(SEED)
    print(f"BMQ_SEED={SEED}")
    good = good_requests()
    with abusing("mutated frames", bmq, neighbour) as abuse:
        sent = 0
        while sent < MUTATIONS:
            with abuse.peer(timeout_s=0.02) as peer, suppress(PeerClosed, TimeoutError):
                for _ in range(rng.randrange(1, 4)):
                    sent += 1
                    peer.send_bytes(mutated(good, rng))
                peer.receive_frame()
        assert len(abuse.complaints()) <= 1 + MUTATIONS // 200, "more than one line in ten seconds"
        assert abuse.complaints()


def test_frames_cut_anywhere_end_with_their_connection(bmq: Survivor, neighbour: Neighbour) -> None:
    with abusing("truncated frames", bmq, neighbour) as abuse:
        for frame in good_requests():
            for size in range(1, len(frame), 7):
                with abuse.peer() as peer:
                    peer.send_bytes(frame[:size])
                    if size % 2:
                        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert len(abuse.complaints()) <= 2


@pytest.mark.parametrize(("what", "lie"), list(lies()))
def test_a_length_or_count_that_lies_costs_nothing(bmq: Survivor, neighbour: Neighbour, what: str, lie: bytes) -> None:
    bmq.forget_peak()
    before_mib = bmq.rss_mib()
    abuse = Abuse(bmq)
    peers = [abuse.peer() for _ in range(10)]
    for peer in peers:
        with suppress(PeerClosed):
            peer.send_bytes(lie)
    for peer in peers:
        assert peer.closed(within_s=10), f"{what}: the connection is still open"
        peer.close()
    assert bmq.peak_mib() < before_mib + 64, what
    assert len(abuse.complaints()) == 1, (what, abuse.complaints())
    assert not abuse.unexpected()
    assert neighbour.measure(0.2).failures == 0


@pytest.mark.parametrize(("hello", "words"), [(tls_hello(), "TLS"), (HTTP_REQUEST, "HTTP")], ids=["TLS", "HTTP"])
def test_another_protocol_is_named_in_the_one_line_of_the_log(
    bmq: Survivor, neighbour: Neighbour, hello: bytes, words: str
) -> None:
    with abusing(f"{words} hellos", bmq, neighbour) as abuse:
        for _ in range(100):
            with abuse.peer() as peer:
                peer.send_bytes(hello)
                assert peer.closed()
        (reason,) = abuse.complaints()
        assert words in reason


def test_a_decompression_bomb_costs_at_most_its_cap(bmq: Survivor, neighbour: Neighbour) -> None:
    """Where batches are opened before they are taken, and where each is found by its timestamp, which bmq can only do
    by opening it; many at once.
    """
    # snappy reaches no more than 21 : 1
    sizes_mib = {Codec.GZIP: (15, 60), Codec.SNAPPY: (15, 19), Codec.LZ4: (15, 60), Codec.ZSTD: (60, 100)}
    bombs = [
        batch_of(bytes(size_mib * MIB), codec=codec, timestamp_ms=1_000)
        for codec, sizes in sizes_mib.items()
        for size_mib in sizes
    ]
    too_large = bombs[-1]
    with abusing("decompression bombs", bmq, neighbour) as abuse, ExitStack() as stack:
        with abuse.peer(timeout_s=60) as peer:
            for partition, bomb in enumerate(bombs):
                assert produce(peer, "unopened", partition, bomb)[0] == ErrorCode.none
                assert produce(peer, "bombs", partition, bomb)[0] == (
                    ErrorCode.message_too_large if bomb is too_large else ErrorCode.none
                )
        peers = [stack.enter_context(abuse.peer(timeout_s=60)) for _ in range(8)]
        for peer in peers:
            peer.send(ApiKey.LIST_OFFSETS, 5, _times("unopened", range(8), at_ms=1_000))
        for peer in peers:
            peer.receive_frame()


def test_batches_of_as_many_tiny_records_as_there_may_be_do_not_stop_the_others(
    bmq: Survivor, neighbour: Neighbour
) -> None:
    """Each record has to be looked at: the header promises a timestamp that none of them has."""
    honest = batch_of(*([b""] * BATCH_RECORDS_MAX), codec=Codec.ZSTD, timestamp_ms=1_000)
    lying = with_max_timestamp(honest, 5_000)
    one_more = batch_of(*([b""] * (BATCH_RECORDS_MAX + 1)), codec=Codec.ZSTD, timestamp_ms=1_000)
    with abusing(f"batches of {BATCH_RECORDS_MAX} records", bmq, neighbour) as abuse:
        with abuse.peer(timeout_s=60) as peer:
            assert produce(peer, "tiny", 0, one_more)[0] == ErrorCode.invalid_record
            for partition in range(4):
                for _ in range(4):
                    assert produce(peer, "tiny", partition, lying)[0] == ErrorCode.none
        with abuse.peer(timeout_s=60) as peer:
            peer.ask(ApiKey.LIST_OFFSETS, 5, _times("tiny", range(4), at_ms=4_000))


def test_five_thousand_idle_connections_are_only_file_descriptors(bmq: Survivor, neighbour: Neighbour) -> None:
    with abusing(f"{IDLE_CONNECTIONS} idle connections", bmq, neighbour) as abuse, ExitStack() as stack:
        first = framed(ApiKey.API_VERSIONS, 0, {})
        peers = [stack.enter_context(abuse.peer()) for _ in range(IDLE_CONNECTIONS)]
        for peer in peers[::2]:
            peer.send_bytes(first)
        for peer in peers[::2]:
            peer.receive_frame()
        let_pass(1.5, "nothing is said of them")
        assert abuse.complaints() == []


def test_frames_that_arrive_a_byte_at_a_time_hold_up_nobody(bmq: Survivor, neighbour: Neighbour) -> None:
    good = good_requests()
    with abusing("500 slow peers", bmq, neighbour) as abuse, ExitStack() as stack:
        peers = [stack.enter_context(abuse.peer()) for _ in range(500)]
        for at in range(8):
            for number, peer in enumerate(peers):
                frame = good[number % len(good)]
                with suppress(PeerClosed):
                    peer.send_bytes(frame[at : at + 1])
            let_pass(0.2, "a byte at a time")


@pytest.mark.parametrize(("peers", "first_bytes"), [(200, 100), (400, 120_000)])
def test_requests_of_100_mib_that_never_arrive_hold_up_nobody(
    bmq: Survivor, neighbour: Neighbour, peers: int, first_bytes: int
) -> None:
    """The second time more of them comes than there is memory for: then those who stopped are cut off for who sends
    large ones from elsewhere.
    """
    start = framed(ApiKey.PRODUCE, 8, {"acks": -1, "timeout_ms": 1000, "topic_data": []})[4:14]
    with (
        abusing(f"{peers} half requests of 100 MiB, {first_bytes} bytes of each", bmq, neighbour) as abuse,
        ExitStack() as stack,
    ):
        for _ in range(peers):
            peer = stack.enter_context(abuse.peer())
            peer.socket.settimeout(0.05)
            with suppress(PeerClosed, TimeoutError):
                peer.send_bytes(struct.pack(">i", 100 * MIB) + start + bytes(first_bytes))
        if first_bytes < 1_000:
            let_pass(3, "nothing is said of them")
            assert not abuse.complaints(), "they are in nobody's way"
            return
        began = monotonic()
        with BareClient(bmq.servers) as peer:
            for _ in range(3):
                assert produce(peer, "large", 0, batch_of(random.Random(SEED).randbytes(2 * MIB)))[0] == ErrorCode.none
        print(f"three requests of 2 MiB took {monotonic() - began:.1f} s beside them")
        assert monotonic() - began < 15
        (reason,) = abuse.complaints()
        assert "which others wait for" in reason


def test_readers_that_stop_reading_hold_up_nobody(bmq: Survivor, neighbour: Neighbour) -> None:
    with BareClient(bmq.servers) as peer:
        for _ in range(80):
            error, _ = produce(peer, "large", 0, batch_of(random.Random(SEED).randbytes(MIB)))
            assert error == ErrorCode.none
    with abusing("40 readers that do not read", bmq, neighbour) as abuse, ExitStack() as stack:
        for _ in range(40):
            peer = stack.enter_context(abuse.peer(receive_buffer_bytes=4096))
            for _ in range(3):
                peer.send(ApiKey.FETCH, 11, fetch_fields("large", 0, 0, max_bytes=60 * MIB))
        let_pass(2, "as much as they may have is kept for them")
        with BareClient(bmq.servers) as peer:  # who reads much waits for memory until those who do not read are cut off

            def fetched() -> bytes:
                error, _, batches = fetch(peer, "large", 0, 3, max_bytes=8 * MIB)
                assert error == ErrorCode.none
                return batches

            until(fetched, "memory of answers that readers who do not read keep", 15, every_s=0)
        assert 1 <= len(abuse.complaints()) <= 2


def _times(topic: str, partitions: range, *, at_ms: int) -> dict[str, object]:
    asked = [{"partition_index": partition, "current_leader_epoch": -1, "timestamp": at_ms} for partition in partitions]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": asked}]}
