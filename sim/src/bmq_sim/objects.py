"""The last invariant: every object in the store is reachable or collected. Reads the store itself, past every
service.
"""

import re
from collections.abc import Iterator

from bmq.metadata.image import Image
from bmq.storage.flatlog import decode_entry
from bmq.storage.keys import (
    SHARED_PREFIX,
    TOPICS_PREFIX,
    coordinator_snapshot_prefix,
    manifest_page_prefix,
    manifest_prefix,
    segment_prefix,
)
from bmq.storage.manifest import Manifest
from bmq.storage.manifest_format import check_page, decode_manifest
from bmq.storage.segment import decode_segment
from bmq.storage.wal import WalHeader, decode_head
from bmq.values import StreamId, TopicPartition
from bmq_sim.store import SimStore

_TOPIC_KEY = re.compile(r"topics/([0-9a-f-]{36})/")
MANIFEST_VERSIONS_MAX = 24
"""Besides claims, which stay: a few behind the newest, for readers, and what one commit is yet to delete."""


def newest_manifest(store: SimStore, tp: TopicPartition) -> Manifest | None:
    """As the store has it."""
    keys = store.keys(manifest_prefix(tp))
    if not keys:
        return None
    return decode_manifest(decode_entry(store.objects[keys[-1]].data, what=keys[-1]).payload)


def unreachable(store: SimStore, image: Image) -> Iterator[str]:
    """One line for each object that nothing names. In the end there are none, also of those that landed when their
    sender was long dead.
    """
    for _, line in _unnamed(store, image):
        yield line


def _unnamed(store: SimStore, image: Image) -> Iterator[tuple[str, str]]:
    for topic in image.topics.values():
        for index in range(len(topic.partitions)):
            yield from _of_partition(store, TopicPartition(topic.topic_id, index), name=f"{topic.name}-{index}")
    yield from _of_streams(store, image)
    yield from _shared(store, image)
    known = {str(topic_id) for topic_id in (*image.topics, *image.deleted)}
    for key in store.keys(TOPICS_PREFIX):
        found = _TOPIC_KEY.match(key)
        if found is None or found[1] not in known:
            yield key, f"{key}: no topic has this id"


def missing(store: SimStore, image: Image) -> Iterator[str]:
    """One line for each object that a newest manifest names and that is not there."""
    for topic in image.topics.values():
        for index in range(len(topic.partitions)):
            for key in _named(store, TopicPartition(topic.topic_id, index)):
                if key not in store.objects:
                    yield f"{topic.name}-{index}: the manifest names {key}, which is not there"


def _named(store: SimStore, tp: TopicPartition) -> set[str]:
    manifest = newest_manifest(store, tp)
    return set() if manifest is None else named_by(store, tp, manifest)


def named_by(store: SimStore, tp: TopicPartition, manifest: Manifest) -> set[str]:
    """Every object that this version names, itself and on those of its pages that are there."""
    named = set(manifest.keys())
    for page in manifest.pages:
        named.add(page.key)
        if page.key in store.objects:
            named |= {entry.key for entry in check_page(page, tp, store.objects[page.key].data)}
    if manifest.coordinator_snapshot is not None:
        named.add(manifest.coordinator_snapshot.key)
    return named


def _of_partition(store: SimStore, tp: TopicPartition, *, name: str) -> Iterator[tuple[str, str]]:
    named = _named(store, tp)
    for prefix in (segment_prefix(tp), manifest_page_prefix(tp), coordinator_snapshot_prefix(tp)):
        for key in store.keys(prefix):
            if key not in named:
                yield key, f"{name}: {key} is named by nothing"
    versions = [
        key for key in store.keys(manifest_prefix(tp)) if not decode_entry(store.objects[key].data, what=key).claim
    ]
    if len(versions) > MANIFEST_VERSIONS_MAX:
        yield versions[0], f"{name}: {len(versions)} manifest versions are kept"


def _shared(store: SimStore, image: Image) -> Iterator[tuple[str, str]]:
    for key in store.keys(SHARED_PREFIX):
        runs = decode_segment(store.objects[key].data).runs
        tps = [run.entry.tp for run in runs if image.partition(run.entry.tp) is not None]
        if not any(key in _named(store, tp) for tp in tps):
            yield key, f"{key}: none of {len(runs)} partitions names it"


def _of_streams(store: SimStore, image: Image) -> Iterator[tuple[str, str]]:
    needed = (
        {StreamId(node.node_id, node.broker_epoch) for node in image.nodes.values()}
        | set(image.sealed)
        | set(image.dropped)
    )
    for key in store.keys("wal/"):
        head = decode_head(store.objects[key].data)
        if isinstance(head, WalHeader) and head.stream not in needed:
            yield key, f"{key}: its stream was dropped"
