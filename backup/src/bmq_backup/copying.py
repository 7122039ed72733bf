"""Copies a store while a cluster works on it. What starts over the copy finds all that was acknowledged before, as
after a crash.

Objects never change, so a copy is wrong only by what it lacks. The order makes it whole:

1. The image, at an entry of the metadata log.
2. The WAL, until two listings in a row agree (`wal.py`). Whatever the owners roll and delete afterwards is in manifests
   that come later. Right behind it the coordinators' partitions, and both again where one names a snapshot of what may
   lie above its copied log (`_wal_and_coordinators`).
3. Of each partition the manifest, then what it names. What a newer version released meanwhile lives on for ten minutes;
   is it gone, again. What is gone while the same version is the newest is lost (`partitions.py`): no copy is made, or
   one without it. Where that is a shared segment that was made meanwhile, the other partitions in it follow as far as
   to the version that names their part of it (`Partitions.even`).
4. The metadata log, to its end at that time, provided that nothing since 1 changed who owns what or which stream ends
   where; else again from 1, which copies only what is new. It is copied last, entries from the newest down and then the
   snapshots: what was interrupted is no store. Above all of them stands one entry of the copy's own, which says that it
   is a copy and which one: its nodes know the addresses of those that the store was copied from, and would register
   there, in the place of theirs, with the same ids, the same cluster id and the same secret.

Everything acknowledged before 1 is in the copy, of what came later a part: of each partition a beginning, not all of
them up to one moment. A group's offset that was committed meanwhile may be there without the records below it
(docs/backup.md says what to do).
"""

from collections.abc import Callable, Iterable
from typing import Final

from bmq.metadata.image import Image
from bmq.naming.names import is_internal
from bmq.ports import ObjectStore, Rng
from bmq.values import TopicId, TopicPartition
from bmq_audit.findings import Report
from bmq_audit.metadata import Metadata, NoMetadata, audit_metadata
from bmq_audit.reading import Reader
from bmq_backup.changes import is_harmless
from bmq_backup.copied import Copied, NotCopied
from bmq_backup.metadata import clear_interrupted, copy_metadata, records_between
from bmq_backup.partitions import Partitions
from bmq_backup.transfer import Transfer
from bmq_backup.wal import copy_wal

PASSES_MAX: Final = 30
COORDINATOR_ROUNDS_MAX: Final = 4
OFFSET_MAX: Final = 2**63 - 1


class Copier:
    """One copy, from a store that others write to into one that nobody else writes to."""

    def __init__(
        self,
        source: Reader,
        target: ObjectStore,
        *,
        rng: Rng,
        without_lost: bool = False,
        told: Callable[[Copied], None] = lambda _: None,
    ) -> None:
        """`source.at_once` objects are on their way at a time. `without_lost`: what the source has lost is no reason to
        copy nothing.

        `told` hears of progress.
        """
        self._transfer = Transfer(source, target, rng=rng, told=told)
        self._partitions = Partitions(self._transfer, without_lost=without_lost)

    async def run(self) -> Copied:
        """Raises NotCopied, NoMetadata (the source is no store), StoreLost, StoreError (the target)."""
        start = await audit_metadata(self._transfer.source, Report())
        await self._check(start)
        for _ in range(PASSES_MAX):
            self._transfer.done.passes += 1
            await self._partitions.begin_pass()
            whole = await self._wal_and_coordinators(start.image)
            others = [topic_id for topic_id, topic in start.image.topics.items() if not is_internal(topic.name)]
            whole = await self._topics(start.image, others) and whole
            whole = whole and await self._partitions.even()
            end = await self._settled(start)
            if end is not None and whole and await copy_metadata(self._transfer, end):
                self._transfer.done.cluster_id, self._transfer.done.position = end.image.cluster_id, end.position + 1
                return self._transfer.done
            start = await audit_metadata(self._transfer.source, Report())
            self._transfer.done.lost.clear()
        raise NotCopied(
            f"partitions changed hands, or objects went, in each of {PASSES_MAX} passes: try again when no node "
            "restarts and with the balancer off (balance_interval_ms: 0); what is copied already is not copied "
            "again"
        )

    async def _check(self, start: Metadata) -> None:
        if not start.whole:
            raise NotCopied("the source's metadata is damaged: bmq store check says where; repair it first")
        try:
            earlier = await audit_metadata(self._transfer.there, Report())
        except NoMetadata:
            return
        if not earlier.whole and await clear_interrupted(self._transfer, start.image.cluster_id):
            return
        other = earlier.image.cluster_id
        of_whom = (
            "an older copy of the same cluster"
            if other == start.image.cluster_id
            else f"the store of cluster {other!r}"
        )
        raise NotCopied(
            f"the target is {of_whom} already: a copy goes where there is none, name an empty folder, bucket or prefix"
        )

    async def _settled(self, start: Metadata) -> Metadata | None:
        """The image as it is now, or was a moment ago; None where something changed that the copy must follow.

        What is new is copied, too: topics, and manifests of which the metadata says by now that there are newer
        versions. Owners go on writing those meanwhile: the image is then the one that named what was copied last, and
        not the next one.
        """
        known, position = dict(start.image.topics), start.position
        whole: Metadata | None = None
        while True:
            now = await audit_metadata(self._transfer.source, Report())
            records = await records_between(self._transfer.source, position, now.position)
            if records is None or not is_harmless(records, start.image):
                return None
            topics = now.image.topics
            grown = {
                each
                for each in topics
                if each not in known or len(topics[each].partitions) != len(known[each].partitions)
            }
            if whole is not None and not grown:
                return whole
            grown.update(topic_id for topic_id, topic in topics.items() if self._partitions.is_behind(topic))
            if not grown:
                return now
            if not await self._topics(now.image, grown) or not await self._partitions.even():
                return None
            known, position, whole = {**known, **{each: topics[each] for each in grown}}, now.position, now

    async def _wal_and_coordinators(self, image: Image) -> bool:
        """Whether both are there, and no coordinator's snapshot is newer than its log, if that can be had in a few
        rounds.

        What a snapshot holds that was named before the WAL was looked at is in the copy: it was acknowledged. Where
        groups commit so much that there is always a newer one, a coordinator finds one above the end of its log: it
        goes on from there, with groups' offsets beyond the logs' ends.
        """
        internal = [topic_id for topic_id, topic in image.topics.items() if is_internal(topic.name)]
        tps = _partitions(image, internal)
        for left in reversed(range(COORDINATOR_ROUNDS_MAX)):
            self._partitions.covered = {
                tp: await self._partitions.snapshot_offset(tp) if left else OFFSET_MAX for tp in tps
            }
            if not await copy_wal(self._transfer):
                return False
            if await self._topics(image, internal):
                return True
        return False

    async def _topics(self, image: Image, topics: Iterable[TopicId]) -> bool:
        """Whether everything that the manifests name is there."""
        return await self._partitions.copy(_partitions(image, topics))


def _partitions(image: Image, topics: Iterable[TopicId]) -> list[TopicPartition]:
    return [
        TopicPartition(topic_id, index)
        for topic_id in topics
        for index in range(len(image.topics[topic_id].partitions))
    ]
