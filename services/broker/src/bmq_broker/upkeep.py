"""A broker's segments put together: what rolls, retains, merges and collects them. Decides nothing itself."""

from bmq.clocks.clock_guard import ClockGuard
from bmq.ports import ObjectStore, Rng
from bmq.roles.controller import Metadata
from bmq.values import StreamId
from bmq_broker.cluster_values import ClusterValues
from bmq_broker.coordinators.snapshots import CoordinatorSnapshots
from bmq_broker.maintenance import Maintenance
from bmq_broker.ownership.life import Lives
from bmq_broker.ownership.ownership import Ownership
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


class Upkeep:
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
        values: ClusterValues,
        metadata: Metadata,
        ownership: Ownership,
        lives: Lives,
        manifests: Manifests,
        commit: GroupCommit,
        total: TailTotal,
        garbage: Garbage,
    ) -> None:
        writer = RollWriter(
            store=store, cluster_id=cluster_id, stream=stream, rng=rng, clock=clock, manifests=manifests
        )
        self.roller = Roller(
            writer=writer,
            carrier=Carrier(commit, settings),
            settings=settings,
            partitions=ownership.partitions,
            manifests=manifests,
            commit=commit,
            total=total,
        )
        self.segments = Segments(store)
        self.retention = Retention(manifests=manifests, segments=self.segments, roller=self.roller, clock=clock)
        self.snapshots = CoordinatorSnapshots(store=store, rng=rng, manifests=manifests)
        shared = SharedGarbage(
            store=store,
            stream=stream,
            rng=rng,
            metadata=metadata,
            partitions=ownership.partitions,
            manifests=manifests,
            segments=self.segments,
            garbage=garbage,
            writing=writer.writing,
            settings=settings,
        )
        merger = Merger(
            store=store, cluster_id=cluster_id, rng=rng, manifests=manifests, segments=self.segments, settings=settings
        )
        self.maintenance = Maintenance(
            store=store,
            metadata=metadata,
            lives=lives,
            ownership=ownership,
            manifests=manifests,
            commit=commit,
            roller=self.roller,
            retention=self.retention,
            merger=merger,
            segments=self.segments,
            garbage=garbage,
            shared=shared,
            clock=clock,
            settings=settings,
            values=values,
        )
