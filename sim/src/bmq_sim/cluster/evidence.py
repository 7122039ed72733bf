"""What the store and the metadata tell of a cluster, past every service: who wrote which partition under which epoch,
where streams ended, who was taken for dead.
"""

from bmq.metadata.image import Image
from bmq.metadata.invariants import broken
from bmq.storage.wal import SEAL_SIZE_BYTES, decode_wal
from bmq.values import NodeId, StreamId, TopicPartition
from bmq_sim.checkers import InvariantViolated
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.history import History, OwnerAppend, Place
from bmq_sim.objects import missing, unreachable
from bmq_sim.store import Request
from bmq_sim.world import World


class Evidence:
    """What the store and the metadata tell of one run. `watch` hears of every create that is sent."""

    def __init__(self, world: World, cluster: SimCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._ends: dict[StreamId, int] = {}
        self._writers: dict[tuple[TopicPartition, int], dict[StreamId, int]] = {}
        """By partition and leader epoch: the streams that hold batches of it, and the lowest number of each that
        does."""
        self._names: dict[TopicPartition, Place] = {}
        self._wrong: list[str] = []
        self.fenced: list[tuple[float, NodeId]] = []
        """When, and whom leaders took for dead."""
        cluster.operator.subscribe(self._image_changed)

    def watch(self, request: Request) -> None:
        """A create is sent."""
        if not request.key.startswith("wal/") or len(request.data) == SEAL_SIZE_BYTES:
            return
        wal = decode_wal(request.data)
        for entry in wal.entries:
            streams = self._writers.setdefault((entry.tp, entry.leader_epoch), {})
            streams[wal.header.stream] = min(wal.header.number, streams.get(wal.header.stream, wal.header.number))

    def take(self, history: History) -> None:
        """What was acknowledged by whom: only what lies below the end of a stream was."""
        for (tp, leader_epoch), streams in self._writers.items():
            place = self._names.get(tp)
            if place is None:
                continue
            for stream, number in streams.items():
                if number < self._ends.get(stream, number + 1):
                    history.owner_appends.append(
                        OwnerAppend(place=place, leader_epoch=leader_epoch, owner=stream.prefix)
                    )

    def check_metadata(self) -> None:
        """Raises InvariantViolated."""
        if self._wrong:
            raise InvariantViolated("the metadata keep their invariants: " + "\n  ".join(self._wrong[:5]))

    def check_objects(self) -> None:
        """That nothing is missing which a manifest names. Raises InvariantViolated."""
        if wrong := [*missing(self._world.store, self._cluster.image())]:
            raise InvariantViolated("nothing reachable is deleted: " + "\n  ".join(wrong[:5]))

    def uncollected(self) -> list[str]:
        """What is named by nothing and still there."""
        return [
            line for line in unreachable(self._world.store, self._cluster.image()) if not _is_of_a_coordinator(line)
        ]

    def check_collected(self) -> None:
        """Where all owners had time to: that everything that nothing names is gone. Raises InvariantViolated."""
        if wrong := self.uncollected():
            raise InvariantViolated("every object is reachable or collected: " + "\n  ".join(wrong[:5]))

    def _image_changed(self, old: Image, new: Image) -> None:
        if old.position:
            self._wrong += [f"at {new.position}: {line}" for line in broken(old, new)]
        for stream, end in (*new.sealed.items(), *new.dropped.items()):
            before = self._ends.setdefault(stream, end)
            if before != end:
                self._wrong.append(f"at {new.position}: {stream.prefix} ends at {end}, it ended at {before}")
        for topic in new.topics.values():
            for index in range(len(topic.partitions)):
                self._names.setdefault(
                    TopicPartition(topic.topic_id, index), Place(f"{topic.name}#{topic.topic_id}", index)
                )
        now_s = self._world.loop.time()
        self.fenced += [(now_s, node_id) for node_id, epoch in new.fencing.items() if old.fencing.get(node_id) != epoch]


def _is_of_a_coordinator(line: str) -> bool:
    """A coordinator claims and collects when groups commit, and nobody has to: what its predecessors left may be there
    yet.
    """
    return "coordinator" in line or line.startswith("__")
