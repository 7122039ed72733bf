"""Snapshots of coordinators: objects that the partition's manifest names."""

from bmq.errors import Corrupt
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import create_once
from bmq.storage.keys import coordinator_snapshot_key
from bmq.storage.snapshot import CoordinatorSnapshot, decode_snapshot, encode_snapshot
from bmq.values import Offset
from bmq_broker.partitions.partition import Partition
from bmq_broker.segments.manifests import Manifests


class CoordinatorSnapshots:
    """Loads and stores the coordinator snapshots of one broker's partitions."""

    def __init__(self, *, store: ObjectStore, rng: Rng, manifests: Manifests) -> None:
        self._store = store
        self._rng = rng
        self._manifests = manifests

    async def load(self, partition: Partition) -> tuple[Offset, bytes] | None:
        """What the manifest names. Raises StoreError, FormatError."""
        named = partition.manifest.coordinator_snapshot
        if named is None:
            return None
        snapshot = decode_snapshot(await self._store.get(named.key))
        if snapshot.tp != partition.tp or snapshot.offset != named.offset:
            raise Corrupt(f"coordinator snapshot {named.key}: it is of {snapshot.tp} at {snapshot.offset}")
        return snapshot.offset, bytes(snapshot.state)

    async def save(self, partition: Partition, offset: Offset, state: bytes, *, ends_there: bool = False) -> None:
        """Durable and named when it returns; the one before goes. `ends_there`: the log ends at `offset`, the one
        before was above it.

        Raises BmqError.
        """
        assert offset <= partition.high_watermark
        nonce = self._rng.nonce()
        key = coordinator_snapshot_key(partition.tp, partition.leader_epoch, offset, nonce)
        snapshot = CoordinatorSnapshot(nonce=nonce, tp=partition.tp, offset=offset, state=state)
        async with self._manifests.lock(partition.tp):
            await create_once(self._store, key, encode_snapshot(snapshot), nonce=nonce, rng=self._rng)
            log_end = offset if ends_there else None
            await self._manifests.commit(
                partition, lambda manifest: manifest.name_coordinator_snapshot(key, offset, log_end=log_end)
            )
