"""Which of bmq's kinds of objects a key belongs to. Pure; a key of no kind is somebody else's."""

import re
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from bmq.storage.keys import is_scratch
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition


class PlaceKind(StrEnum):
    """What lies under a key; the names are those of `bmq store cost`."""

    METADATA_ENTRY = "metadata-entry"
    METADATA_SNAPSHOT = "metadata-snapshot"
    WAL = "wal"
    SEGMENT = "segment"
    SHARED_SEGMENT = "shared-segment"
    MANIFEST = "manifest"
    MANIFEST_PAGE = "manifest-page"
    COORDINATOR_SNAPSHOT = "coordinator-snapshot"
    SCRATCH = "scratch"


class Place(NamedTuple):
    """A key taken apart. `tp` is set for what lies below a partition, `stream` for WAL and for shared segments (who
    wrote it).

    `number` is that of a log's or a stream's object, and the leader epoch of a segment or a coordinator snapshot; else
    -1.
    """

    kind: PlaceKind
    tp: TopicPartition | None = None
    stream: StreamId | None = None
    number: int = -1


_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OF_PARTITION: Final = re.compile(rf"topics/({_UUID})/([0-9]{{10}})/(.+)")
_BELOW_PARTITION: Final = (
    (PlaceKind.MANIFEST, re.compile(r"manifest/([0-9]{20})")),
    (PlaceKind.SEGMENT, re.compile(r"segment/([0-9]{10})/[0-9]{20}-[0-9a-f]{8}")),
    (PlaceKind.MANIFEST_PAGE, re.compile(r"manifest-page/[0-9a-f]{32}")),
    (PlaceKind.COORDINATOR_SNAPSHOT, re.compile(r"coordinator-snapshot/([0-9]{10})/[0-9]{20}-[0-9a-f]{8}")),
)
_OF_STREAM: Final = (
    (PlaceKind.WAL, re.compile(r"wal/([0-9]{10})/([0-9]{20})/([0-9]{20})")),
    (PlaceKind.SHARED_SEGMENT, re.compile(r"shared/([0-9]{10})/([0-9]{20})/[0-9a-f]{32}")),
)
_OF_METADATA: Final = (
    (PlaceKind.METADATA_ENTRY, re.compile(r"meta/log/([0-9]{20})")),
    (PlaceKind.METADATA_SNAPSHOT, re.compile(r"meta/snapshot/([0-9]{20})")),
)


def place_of(key: str) -> Place | None:
    """What bmq keeps under such a key; None where bmq makes no such key."""
    found = _OF_PARTITION.fullmatch(key)
    if found is not None:
        tp = TopicPartition(TopicId(UUID(found[1])), int(found[2]))
        for kind, form in _BELOW_PARTITION:
            if (below := form.fullmatch(found[3])) is not None:
                return Place(kind, tp=tp, number=int(below[1]) if below.groups() else -1)
        return None
    for kind, form in _OF_STREAM:
        if (found := form.fullmatch(key)) is not None:
            stream = StreamId(NodeId(int(found[1])), BrokerEpoch(int(found[2])))
            return Place(kind, stream=stream, number=int(found[3]) if len(found.groups()) > 2 else -1)
    for kind, form in _OF_METADATA:
        if (found := form.fullmatch(key)) is not None:
            return Place(kind, number=int(found[1]))
    return Place(PlaceKind.SCRATCH) if is_scratch(key) else None
