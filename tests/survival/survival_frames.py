"""Frames that no client sends: mutations of good ones, and by hand the lies that servers of this protocol believed."""

import random
import ssl
import struct
from collections.abc import Iterator

from survival_wire import batch_of, create_topics_fields, fetch_fields, produce_fields, with_length
from tests.bare_client import framed

from bmq.wire.apis import SERVED, ApiKey

TOPIC = "abused"
HUGE = 0x7FFFFFFF
INTERESTING = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
)


def good_requests() -> list[bytes]:
    """One or more of most APIs, in old and new encodings. None of them changes what another test looks at."""
    group = {"group_id": "abused-group", "generation_id": 1, "member_id": "m"}
    asked_time = {
        "name": TOPIC,
        "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1_700_000_000_000}],
    }
    join = {
        "group_id": "abused-group",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"}],
    }
    committed = {
        "name": TOPIC,
        "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x"}],
    }
    dry_run = create_topics_fields(["abused-never"], partitions=3, configs=[("retention.ms", "1000")]) | {
        "validate_only": True
    }
    cases = [
        (ApiKey.API_VERSIONS, (0, 3), {"client_software_name": "abuse", "client_software_version": "1"}),
        (ApiKey.METADATA, (1, 12), {"topics": [{"topic_id": None, "name": TOPIC}], "allow_auto_topic_creation": False}),
        (ApiKey.PRODUCE, (3, 8, 9), produce_fields(TOPIC, 0, batch_of(b"one", b"two", codec=1))),
        (ApiKey.FETCH, (4, 11, 12), fetch_fields(TOPIC, 0, 0, max_wait_ms=10)),
        (ApiKey.LIST_OFFSETS, (1, 7), {"replica_id": -1, "isolation_level": 0, "topics": [asked_time]}),
        (ApiKey.CREATE_TOPICS, (2, 5), dry_run),
        (ApiKey.FIND_COORDINATOR, (1, 4), {"key": "abused-group", "key_type": 0, "coordinator_keys": ["abused-group"]}),
        (ApiKey.JOIN_GROUP, (2, 6), join),
        (ApiKey.SYNC_GROUP, (1, 5), {**group, "assignments": [{"member_id": "m", "assignment": b"12345"}]}),
        (ApiKey.HEARTBEAT, (1, 4), group),
        (
            ApiKey.OFFSET_COMMIT,
            (2, 8),
            {"group_id": "abused-group", "generation_id_or_member_epoch": -1, "member_id": "", "topics": [committed]},
        ),
        (
            ApiKey.DESCRIBE_CONFIGS,
            (1, 4),
            {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}]},
        ),
        (ApiKey.DESCRIBE_GROUPS, (0, 5), {"groups": ["abused-group"]}),
        (ApiKey.INIT_PRODUCER_ID, (0, 2), {"transactional_id": None, "transaction_timeout_ms": 1000}),
    ]
    return [framed(key, version, fields) for key, versions, fields in cases for version in versions]


def mutated(good: list[bytes], rng: random.Random) -> bytes:
    """A frame whose length is right for what it has become; now and then pure noise."""
    if rng.random() < 0.1:
        return with_length(rng.randbytes(rng.choice((8, 14, 40, 300, 4000))))
    body = bytearray(rng.choice(good)[4:])
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        at = rng.randrange(len(body))
        match rng.randrange(6):
            case 0:
                body[at] ^= 1 << rng.randrange(8)
            case 1:
                body[at] = rng.randrange(256)
            case 2:
                value = rng.choice(INTERESTING)
                body[at : at + len(value)] = value
            case 3:
                body[at:at] = rng.choice(INTERESTING)
            case 4:
                del body[max(at, 8) :]
            case _:
                source = rng.randrange(len(body))
                body[at:at] = body[source : source + rng.randrange(1, 20)]
    body[:4] = struct.pack(">hh", *_served(rng, body))
    return with_length(bytes(body))


def lies() -> Iterator[tuple[str, bytes]]:
    """(what, bytes): lengths and counts that would allocate, loop, or overflow if they were believed."""
    yield "a frame of 2 GiB", struct.pack(">ihh", HUGE, ApiKey.METADATA, 12)
    yield "a frame of negative length", struct.pack(">ihh", -5, ApiKey.METADATA, 12)
    yield "a frame of no bytes", struct.pack(">i", 0) + b"\x00" * 8
    yield "a Metadata request of 100 MiB", struct.pack(">ihh", 100 << 20, ApiKey.METADATA, 12) + b"\x00" * 100
    yield "a Produce request of 200 MiB", struct.pack(">ihh", 200 << 20, ApiKey.PRODUCE, 9) + b"\x00" * 100
    yield (
        "20 million tagged fields in the header",
        with_length(_head(ApiKey.METADATA, 12) + _uvarint(20_000_000) + b"\x00" * 500),
    )
    yield (
        "a tagged field of 2 GiB in the header",
        with_length(_head(ApiKey.METADATA, 12) + b"\x01\x00" + _uvarint(HUGE) + b"\x00" * 50),
    )
    yield "a varint without an end in the header", with_length(_head(ApiKey.METADATA, 12) + b"\xff" * 500)
    yield "a client id of negative length", with_length(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -2) + b"\x00" * 50)
    yield (
        "a client id beyond the frame",
        with_length(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 32_767) + b"\x00" * 50),
    )
    yield "two billion topics in Metadata", with_length(_head(ApiKey.METADATA, 1) + struct.pack(">i", HUGE))
    yield (
        "four billion topics in a compact array",
        with_length(_head(ApiKey.METADATA, 12) + b"\x00" + _uvarint(0xFFFFFFFF) + b"\x00" * 50),
    )
    yield (
        "two billion topics in Produce",
        with_length(_head(ApiKey.PRODUCE, 8) + struct.pack(">hhii", -1, -1, 1000, HUGE)),
    )
    yield (
        "records of 2 GiB in Produce",
        with_length(
            _head(ApiKey.PRODUCE, 8)
            + struct.pack(">hhiih", -1, -1, 1000, 1, 1)
            + b"t"
            + struct.pack(">iii", 1, 0, HUGE)
            + b"\x00" * 50
        ),
    )
    yield (
        "two billion partitions in Fetch",
        with_length(
            _head(ApiKey.FETCH, 11)
            + struct.pack(">iiiibiiih", -1, 10, 1, HUGE, 0, 0, -1, 1, 1)
            + b"t"
            + struct.pack(">i", HUGE)
            + b"\x00" * 50
        ),
    )
    yield (
        "as many topics as fit a frame",
        with_length(_head(ApiKey.METADATA, 1) + struct.pack(">i", 1_000_000) + struct.pack(">h", 0) * 1_000_000),
    )
    yield (
        "tagged fields as many as fit a frame",
        with_length(_head(ApiKey.METADATA, 12) + b"\x00\x01\x01\x00" + _uvarint(500_000) + b"\x00\x00" * 500_000),
    )


def tls_hello() -> bytes:
    """What a client with security.protocol=SSL sends first."""
    out = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="kafka.example")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise AssertionError("a handshake with nobody")


HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: kafka.example\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n"


def _head(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 4) + b"liar"


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _served(rng: random.Random, body: bytearray) -> tuple[int, int]:
    """Mostly the API that it was, so that mutations are looked into instead of being refused by their key."""
    key, version = struct.unpack_from(">hh", bytes(body[:4]) + b"\x00" * 4)
    if key in SERVED and rng.random() < 0.9:
        return key, version
    if rng.random() < 0.5:
        return rng.randrange(-1, 100), rng.randrange(-1, 20)
    api = SERVED[rng.choice(sorted(SERVED))]
    return int(api.key), rng.randint(api.version_min, api.version_max)
