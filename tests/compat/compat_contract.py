"""What every driven client has to offer the compatibility tests, and the values that go in and come out. No client's
own types appear here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

T = TypeVar("T")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""In the order of their numbers in a batch's attributes."""

ADMIN = frozenset(
    {
        "create_topic",
        "describe_topic",
        "list_topics",
        "describe_configs",
        "alter_configs",
        "create_partitions",
        "delete_records",
        "list_groups",
        "describe_group",
        "group_offsets",
        "delete_group",
        "delete_topic",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as a client sends it, and as a client shows it: then with its offset."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


class Member(Protocol):
    """A running member of a consumer group, which polls by itself and commits every second and whenever it gives
    partitions away.
    """

    def assignment(self) -> frozenset[int]: ...

    def consumed(self) -> list[tuple[int, int]]:
        """(partition, offset) of every record it was given so far, in order."""

    def rebalances(self) -> int:
        """How many assignments it was given so far; −1 where the client does not tell."""

    def leave(self) -> None:
        """Commits, closes, and returns when the client has closed. A static member does not leave the group by this."""


class Client(Protocol):
    """One client library. Every call makes its own connections and closes them. Raises whatever its library raises."""

    name: str
    codecs: tuple[str, ...]
    idempotent: bool
    assigns: bool
    """Whether it can read given partitions without a group."""
    compresses_every_batch: bool
    """Whether it keeps a batch compressed that became no smaller by it, such as one of a single short record."""
    null_headers: bool
    """Whether it can send a header without a value."""
    null_records: bool
    """Whether it can send a record with neither key nor value."""
    assignors: tuple[str, ...]
    static_members: bool
    keeps_membership: bool
    """Whether its members stay in their group when the connection is lost, rather than join anew."""
    admin_calls: frozenset[str]

    def produce(
        self, servers: str, topic: str, records: Sequence[Record], *, codec: str, idempotent: bool
    ) -> list[int]:
        """The acknowledged offset of each record, in the order given."""

    def read(self, servers: str, topic: str, *, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Record]:
        """The records of each partition from its start offset to before its end offset, by assignment."""

    def offsets_at(self, servers: str, topic: str, *, partitions: int, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a timestamp by partition; −1 where there is none."""

    def read_group(self, servers: str, topic: str, group: str, *, count: int) -> list[Record]:
        """Subscribes, reads exactly `count` records, commits their offsets, leaves. A group without offsets starts at
        the earliest.
        """

    def join(
        self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None = None
    ) -> Member: ...

    def create_topic(self, servers: str, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None: ...

    def describe_topic(self, servers: str, topic: str) -> int:
        """How many partitions it has; each has a leader, a replica and an in-sync replica."""

    def list_topics(self, servers: str) -> list[str]: ...

    def describe_configs(self, servers: str, topic: str) -> dict[str, str]: ...

    def alter_configs(self, servers: str, topic: str, configs: Mapping[str, str]) -> None: ...

    def create_partitions(self, servers: str, topic: str, *, total: int) -> None: ...

    def delete_records(self, servers: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """The log start offset that each partition has afterwards."""

    def list_groups(self, servers: str) -> list[str]: ...

    def describe_group(self, servers: str, group: str) -> tuple[str, int]:
        """Its state, and how many members it has."""

    def group_offsets(self, servers: str, group: str, topic: str) -> dict[int, int]:
        """The committed offset of each partition that has one."""

    def delete_group(self, servers: str, group: str) -> None: ...

    def delete_topic(self, servers: str, topic: str) -> None: ...


def sample_records(*, partitions: int, per_partition: int, base_ms: int, sender: Client) -> list[Record]:
    """Records of every shape that the sender can send: absent, empty, small and large keys and values; none, one and
    repeated headers; timestamps 1 s apart."""
    keys: list[bytes | None] = [None, b"", b"k", b"\x00\xff" * 20]
    values: list[bytes | None] = [b"v", None, b"", b"\x80" + b"text " * 300, bytes(range(256)) * 4, b"z" * 90_000]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("trace", b"1"),),
        (
            ("a", b""),
            ("repeated", b"1"),
            ("repeated", b"\x00\x01"),
            ("z-nothing", None if sender.null_headers else b""),
        ),
    ]
    records: list[Record] = []
    for index in range(per_partition):
        for partition in range(partitions):
            key, value = keys[(index + partition) % len(keys)], values[index % len(values)]
            if key is None and value is None and not sender.null_records:
                value = b""
            timestamp_ms = base_ms + index * 1000
            records.append(
                Record(
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    key=key,
                    value=value,
                    headers=headers[index % len(headers)],
                )
            )
    return records


def acknowledged(records: Sequence[Record], offsets: Sequence[int]) -> list[Record]:
    """The records with the offsets they were acknowledged at, ordered by partition and offset."""
    assert len(records) == len(offsets)
    return in_order([replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)])


def in_order(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def starts_and_ends(records: Sequence[Record]) -> tuple[dict[int, int], dict[int, int]]:
    """For each partition the lowest offset, and the one after the highest."""
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    for record in records:
        starts[record.partition] = min(record.offset, starts.get(record.partition, record.offset))
        ends[record.partition] = max(record.offset + 1, ends.get(record.partition, 0))
    return starts, ends
