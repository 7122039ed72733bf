"""Every single object of many small stores is lost or damaged: a repair gives up nothing that is whole, and no log gets
shorter by it.

The stores have segments of one and of several partitions, pages, merges and risen log starts; what is named no more
lingers or was collected.
"""

import random

import pytest
from audit_world import BOOT, CLUSTER, ORDERS, World, flipped, tp
from test_audit_repair import entries, newest, repaired

from bmq.errors import FormatError
from bmq.metadata.records import ClusterCreated, LeaderElected, NodeRegistered, PartitionChange, TopicCreated
from bmq.storage.manifest import Manifest, page_ref
from bmq.storage.manifest_format import check_page
from bmq.storage.segment import SegmentEntry
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicPartition
from bmq_audit.findings import Kind, Level

ONE, OTHER = tp(ORDERS, 0), tp(ORDERS, 1)
REPAIRS_MAX = 3


class Story:
    """What two partitions went through."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(seed)
        self.manifests = {ONE: Manifest(), OTHER: Manifest()}
        world = self.world
        world.commit(ClusterCreated(cluster_id=CLUSTER), LeaderElected(controller_epoch=1, node_id=1), claim=True)
        world.commit(
            NodeRegistered(
                node_id=1, broker_epoch=1, boot=BOOT, roles=("controller", "broker", "proxy"), host="h", port=1
            )
        )
        world.commit(TopicCreated(topic_id=ORDERS, name="orders", partitions=2, leader_epoch=0))
        world.commit(
            *(PartitionChange(topic_id=ORDERS, partition=n, node_id=1, broker_epoch=1, leader_epoch=1) for n in (0, 1))
        )
        for _ in range(self.random.randrange(2, 9)):
            self.random.choice((self.own, self.shared, self.retain, self.page, self.merge))()
        if self.random.random() < 0.6:
            self.collect()
        end = self.manifests[ONE].next_offset
        if self.random.random() < 0.5 and end:
            world.wal(StreamId(NodeId(1), BrokerEpoch(1)), 0, [(ONE, end, 1)])

    def commit(self, part: TopicPartition, manifest: Manifest) -> None:
        self.manifests[part] = manifest
        self.world.manifest(part, manifest)

    def add(self, part: TopicPartition, entry: SegmentEntry) -> None:
        manifest = self.manifests[part].note_leader_epoch(1, 0)
        self.commit(part, manifest.add_segment(entry, last_stable_offset=entry.last_offset + 1))

    def own(self) -> None:
        self.add(ONE, self.world.segment(ONE, self.manifests[ONE].next_offset, self.random.randrange(1, 4)))

    def shared(self) -> None:
        count = self.random.randrange(1, 4)
        one, other = self.world.shared(
            [(ONE, self.manifests[ONE].next_offset, count), (OTHER, self.manifests[OTHER].next_offset, 1)]
        )
        self.add(OTHER, other)
        self.add(ONE, one)

    def retain(self) -> None:
        before = self.manifests[ONE]
        raised = before.raise_log_start(self.random.randrange(before.log_start, before.next_offset + 1))
        cut = raised.cut_page()
        if cut is not None:
            named = check_page(cut, ONE, self.world.objects[cut.key])
            kept = raised.kept_of_page(named)
            if len(kept) < len(named):
                raised = raised.replace_page(named, page_ref(self.world.page(ONE, kept), kept))
        if raised != before:
            self.commit(ONE, raised)

    def page(self) -> None:
        manifest = self.manifests[ONE]
        if len(manifest.entries) > 2:
            moved = manifest.entries[: len(manifest.entries) // 2]
            self.commit(ONE, manifest.move_to_page(page_ref(self.world.page(ONE, moved), moved)))

    def merge(self) -> None:
        manifest = self.manifests[ONE]
        if len(manifest.entries) > 2:
            at = self.random.randrange(len(manifest.entries) - 1)
            old = manifest.entries[at : at + 2]
            merged = self.world.segment(ONE, old[0].base_offset, sum(entry.record_count for entry in old) // 3)
            self.commit(ONE, manifest.replace(old, merged))

    def collect(self) -> None:
        named: set[str] = set().union(*(manifest.keys() for manifest in self.manifests.values()))
        named |= {entry.key for part in self.manifests for entry in self.named(part)}
        for key in [
            key
            for key in self.world.objects
            if "/segment/" in key or "/manifest-page/" in key or key.startswith("shared/")
        ]:
            if key not in named:
                del self.world.objects[key]

    def named(self, part: TopicPartition) -> list[SegmentEntry]:
        manifest = self.manifests[part]
        pages = [entry for page in manifest.pages for entry in check_page(page, part, self.world.objects[page.key])]
        return [*pages, *manifest.entries]


@pytest.mark.parametrize("seed", [*range(25), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(25, 120))])
def test_a_repair_after_the_loss_of_any_one_object_gives_up_nothing_that_is_whole(seed: int) -> None:
    story = Story(seed)
    assert story.world.faults() == []
    before = {part: story.named(part) for part in (ONE, OTHER)}
    objects = dict(story.world.objects)
    for key in sorted(key for key in objects if key.startswith(("topics/", "shared/"))):
        for how in ("lost", "damaged"):
            story.world.store.objects = dict(objects)
            if how == "lost":
                del story.world.objects[key]
            else:
                data = objects[key]
                story.world.objects[key] = flipped(
                    data, story.random.randrange(len(data)), 1 << story.random.randrange(8)
                )
            repaired_whole(story, key, before, f"seed {seed}, {how}: {key}")


def repaired_whole(story: Story, key: str, before: dict[TopicPartition, list[SegmentEntry]], what: str) -> None:
    for _ in range(REPAIRS_MAX):
        report, done = repaired(story.world)
        assert done.failed == [], what
        if any(fault.kind is Kind.UNREADABLE for fault in report.findings[Level.FAULT]):
            assert report.repairs == [], f"{what}: as if a newer bmq had written it, and nothing is done"
            return
        if not report.repairs:
            break
    for part, named in before.items():
        whole = [entry for entry in named if entry.key != key and entry.last_offset >= story.manifests[part].log_start]
        there = {offset for entry in now_named(story.world, part) if entry.record_count for offset in _offsets(entry)}
        gone = [entry for entry in whole if not there.issuperset(_offsets(entry))]
        assert gone == [], f"{what}: {part}"
        if whole and whole[-1] == named[-1]:
            assert newest(story.world, part).next_offset >= story.manifests[part].next_offset, (
                f"{what}: {part} got shorter"
            )


def _offsets(entry: SegmentEntry) -> range:
    return range(entry.base_offset, entry.last_offset + 1)


def now_named(world: World, part: TopicPartition) -> list[SegmentEntry]:
    try:
        return entries(world, part)
    except (FormatError, KeyError, ValueError):  # no manifest, or none that can be read
        return []
