"""A broker's segments put together: what rolls, retains, merges and collects them. Decides nothing itself, nor when
(bmq_broker.upkeep).
"""

from collections.abc import Callable, Mapping

from bmq.clocks.clock_guard import ClockGuard
from bmq.ports import ObjectStore, Rng
from bmq.roles.controller import Metadata
from bmq.values import StreamId, TopicPartition
from bmq_broker.coordinators.snapshots import CoordinatorSnapshots
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.tail import TailTotal
from bmq_broker.segments.garbage import Garbage
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.merging import Merger
from bmq_broker.segments.reading import Segments
from bmq_broker.segments.retention import Retention
from bmq_broker.segments.roll_writing import RollWriter
from bmq_broker.segments.rolling import Roller
from bmq_broker.segments.shared_garbage import SharedGarbage
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.carrying import Carrier
from bmq_broker.wal.commit import GroupCommit


class SegmentParts:
    """Builds and holds what rolls, retains, merges and collects the segments of one broker incarnation."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster_id: str,
        stream: StreamId,
        rng: Rng,
        clock: ClockGuard,
        settings: BrokerSettings,
        metadata: Metadata,
        partitions: Mapping[TopicPartition, Partition],
        manifests: Manifests,
        commit: GroupCommit,
        total: TailTotal,
        garbage: Garbage,
        covered: Callable[[], None],
    ) -> None:
        """`partitions`: those that take batches. `covered` is called when something that was inherited is."""
        writer = RollWriter(
            store=store, cluster_id=cluster_id, stream=stream, rng=rng, clock=clock, manifests=manifests
        )
        self.roller = Roller(
            writer=writer,
            carrier=Carrier(commit, settings),
            settings=settings,
            partitions=partitions,
            manifests=manifests,
            commit=commit,
            total=total,
            covered=covered,
        )
        self.segments = Segments(store)
        self.retention = Retention(manifests=manifests, segments=self.segments, roller=self.roller, clock=clock)
        self.snapshots = CoordinatorSnapshots(store=store, rng=rng, manifests=manifests)
        self.shared = SharedGarbage(
            store=store,
            stream=stream,
            rng=rng,
            metadata=metadata,
            partitions=partitions,
            manifests=manifests,
            segments=self.segments,
            garbage=garbage,
            writing=writer.writing,
            settings=settings,
        )
        self.merger = Merger(
            store=store, cluster_id=cluster_id, rng=rng, manifests=manifests, segments=self.segments, settings=settings
        )
