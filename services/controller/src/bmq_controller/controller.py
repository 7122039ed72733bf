"""The controller as the other roles see it: each method is one decision of the machine, committed by the leader."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final, Protocol, TypeVar

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, ControllerUnavailable, Fenced, StoreError
from bmq.metadata.image import Image
from bmq.ports import ObjectStore, Rng
from bmq.roles.controller import (
    ConfigChange,
    ConfigResource,
    Heartbeat,
    HeartbeatReply,
    NewTopic,
    Reassignment,
    Registration,
    TopicResult,
)
from bmq.roles.lane_turns import LaneLease, NextTurn, Unconsumed
from bmq.storage.stream import seal_stream
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition
from bmq_controller import metrics
from bmq_controller.balancer import Balancer
from bmq_controller.expiry import LaneExpiry
from bmq_controller.fencer import Fencer
from bmq_controller.leader import Beside, ControllerLeader
from bmq_controller.machine import channels as channel_machine
from bmq_controller.machine import configs as config_machine
from bmq_controller.machine import lanes as lane_machine
from bmq_controller.machine import moves as move_machine
from bmq_controller.machine import nodes as node_machine
from bmq_controller.machine import topics as topic_machine
from bmq_controller.machine import turns as turn_machine
from bmq_controller.machine.asked_moves import AskedMoves
from bmq_controller.machine.balance_loads import KnownLoads, merged
from bmq_controller.machine.balance_model import BalanceSettings
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.presence import Presence, Seen
from bmq_controller.machine.producer_ids import allocate_producer_ids
from bmq_controller.operations import ELEMENT_WORK, LIST_WORK, TOPIC_WORK, text_work
from bmq_controller.sign_of_life import SignOfLife

REGISTRATION_TRIES_MAX = 10
LEASES_OF_A_GRACE: Final = 3
"""Who has one is taken for present for that much longer than the lease lasts."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class _Operate(Protocol):
    """ControllerLeader.operate."""

    async def __call__(
        self, name: str, decide: Callable[[Image], Decision[T]], *, work: int = 0, gives_away: NodeId | None = None
    ) -> T: ...


class LeadingController:
    """`bmq.roles.controller.Controller`, `BrokerControl`, `ClusterControl` and `MetadataSource`, for as long as its
    leader leads.
    """

    def __init__(
        self,
        leader: ControllerLeader,
        *,
        node_id: NodeId,
        store: ObjectStore,
        guard: ClockGuard,
        rng: Rng,
        silent_s: Mapping[NodeId, float],
    ) -> None:
        """`silent_s`: how long each node was silent when an earlier leader was last heard itself. `guard` is this
        leader's own: it compares the clock where something is to be decided by it, and notices jumps from now on.
        """
        self._leader = leader
        self._operate: _Operate = leader.operate
        self._store = store
        self._guard = guard
        self._rng = rng
        self._limits = leader.settings.limits
        self._asked_moves = AskedMoves(self._limits)
        self._registering: defaultdict[NodeId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fencer = Fencer(
            leader, node_id=node_id, store=store, rng=rng, silent_s=silent_s, avoid=lambda: self.avoided
        )
        self._sign_of_life = SignOfLife(leader, node_id=node_id, interval_s=leader.settings.sign_of_life_s)
        self._stopping: dict[NodeId, BrokerEpoch] = {}
        """Incarnations that said that they stop soon."""
        self._draining: dict[NodeId, BrokerEpoch] = {}
        self._off_time: dict[NodeId, BrokerEpoch] = {}
        """Incarnations whose clock and the store's are too far apart."""
        self._troubles: dict[NodeId, tuple[BrokerEpoch, str]] = {}
        """What incarnations said that keeps them from writing."""
        self._loads = KnownLoads()
        self.balancer = Balancer(
            leader,
            loads=self._loads,
            draining=lambda: self._living(self._draining),
            stopping=lambda: self._living(self._stopping) | self._living(self._off_time),
            silent=lambda: self._fencer.silent,
            interval_s=leader.settings.balance_interval_s,
            settings=BalanceSettings(rest_ms=int(leader.settings.balance_rest_s * 1000)),
        )
        leader.tell(self.balancer.committed)
        self._presence = Presence(leader.image.controller_epoch, grace_s=leader.settings.lane_grace_s)
        self._expiry = LaneExpiry(
            guard=guard, image=lambda: leader.image, delete=lambda: leader.operate("expire_lanes", self._expire_lanes)
        )

    @property
    def beside(self) -> tuple[Beside, ...]:
        """What has to run as long as the leader leads."""
        return (
            ("fence", self._fencer.run),
            ("alive", self._sign_of_life.run),
            ("balance", self.balancer.run),
            ("lanes", self._expiry.run),
        )

    @property
    def draining(self) -> frozenset[NodeId]:
        """Nodes whose partitions are being moved away: they are drained, or stop, as far as this leader has heard."""
        return self._living(self._stopping) | self._living(self._draining)

    @property
    def avoided(self) -> frozenset[NodeId]:
        """Nodes that are to get no partitions: those, and those whose clock is wrong, which keep what they have."""
        return self.draining | self._living(self._off_time)

    @property
    def troubles(self) -> dict[NodeId, str]:
        """What ails brokers that live, as they said last."""
        off_time = dict.fromkeys(
            self._living(self._off_time),
            "has another time than its store: it gets no partitions until its clock is right",
        )
        living = self._living({node_id: epoch for node_id, (epoch, _) in self._troubles.items()})
        return off_time | {node_id: self._troubles[node_id][1] for node_id in living}

    @property
    def loads(self) -> dict[TopicPartition, float]:
        """Bytes written per second, as the owners said last."""
        return self.loads_later()()

    def loads_later(self) -> Callable[[], dict[TopicPartition, float]]:
        """What gives `loads` as they are now, in any thread: it takes a look at every partition."""
        return partial(merged, self._loads.snapshot(_now_ms()))

    @property
    def silent_s(self) -> dict[NodeId, float]:
        """How long ago each node that is watched was heard, in seconds."""
        return self._fencer.silent_s

    @property
    def lease_s(self) -> float:
        """How long a node may be silent."""
        return self._leader.settings.lease_s

    def when(self, holds: Callable[[Image], None]) -> "LeadingController":
        """This controller, for decisions that are made only on an image for which `holds` raises nothing."""

        async def operate(
            name: str, decide: Callable[[Image], Decision[T]], *, work: int = 0, gives_away: NodeId | None = None
        ) -> T:
            def decided(image: Image) -> Decision[T]:
                holds(image)
                return decide(image)

            return await self._leader.operate(name, decided, work=work, gives_away=gives_away)

        conditional = copy(self)
        conditional._operate = operate
        return conditional

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        """Creates topics; with `validate_only` says what would come of it. One result for each."""
        return await self._operate(
            "create_topics",
            lambda image: topic_machine.create_topics(
                image,
                self._guard.now_ms(),
                topics,
                new_id=self._rng.uuid,
                cluster=self._cluster(image),
                limits=self._limits,
                avoid=self.avoided,
                validate_only=validate_only,
            ),
            work=TOPIC_WORK * len(topics),
        )

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        """Deletes topics; one result for each, in order."""
        return await self._operate(
            "delete_topics",
            lambda image: topic_machine.delete_topics(image, topics, cluster=self._cluster(image)),
            work=ELEMENT_WORK * len(topics),
        )

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        """Grows a topic to `total` partitions; with `validate_only` says what would come of it. Raises RequestError."""
        return await self._operate(
            "create_partitions",
            lambda image: topic_machine.create_partitions(
                image,
                topic,
                total,
                limits=self._limits,
                avoid=self.avoided,
                assignments=assignments,
                validate_only=validate_only,
            ),
        )

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Changes keys of a resource's configuration; the others stay as they are. Raises RequestError."""
        await self._operate(
            "alter_configs",
            lambda image: config_machine.alter_configs(
                image,
                resource,
                changes,
                cluster=self._cluster(image),
                static=self._leader.settings.cluster_configs,
                limits=self._limits,
                validate_only=validate_only,
            ),
            work=sum(
                (LIST_WORK if change.operation in ("append", "subtract") else 0) + text_work(change.value)
                for change in changes
            ),
        )

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replaces a resource's configuration: every key that is not named goes back to its default. Raises
        RequestError.
        """
        await self._operate(
            "replace_configs",
            lambda image: config_machine.replace_configs(
                image,
                resource,
                configs,
                static=self._leader.settings.cluster_configs,
                limits=self._limits,
                validate_only=validate_only,
            ),
            work=sum(map(text_work, configs.values())),
        )

    async def create_lane(self, wanted: lane_machine.LaneWanted) -> None:
        """Returns when it is there. Raises RequestError; ControllerUnavailable also where it is to end by itself and
        nobody knows the time.
        """
        if wanted.ttl_s:
            await self._guard.check()

        def create(image: Image) -> Decision[str]:
            now_ms = self._guard.trusted_now_ms() if wanted.ttl_s else self._guard.now_ms()
            if now_ms is None:
                raise ControllerUnavailable(
                    "the clock of the leading controller is not trusted, so it cannot be said when the lane ends: "
                    "set the machine's clock (NTP)"
                )
            return lane_machine.create_lane(image, now_ms, wanted, limits=self._limits)

        await self._operate("create_lane", create)

    async def change_lane(self, wanted: lane_machine.LaneWanted) -> None:
        """Raises RequestError."""
        await self._operate(
            "change_lane",
            lambda image: lane_machine.change_lane(image, self._guard.now_ms(), wanted, limits=self._limits),
        )

    async def delete_lane(self, name: str) -> None:
        """With its topics; its groups are deleted by their coordinators soon after. Raises RequestError."""
        await self._operate("delete_lane", lambda image: lane_machine.delete_lanes(image, [name]))

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        """Somebody in a lane consumes these topics of its. What it may be let consume under begins when this one
        certainly led: one that leads after it waits until that is over.
        """
        loop, lease_s = asyncio.get_running_loop(), self._leader.settings.lane_grace_s / LEASES_OF_A_GRACE

        def consumed(image: Image) -> Decision[None]:
            # Told when it is decided: the lease counts from then on, and that may be long after it was asked for.
            self._presence.tell(topic_ids, loop.time())
            return turn_machine.consumed(image, topic_ids)

        self._presence.forget(self._leader.image)
        await self._operate("consumed", consumed, work=ELEMENT_WORK * len(topic_ids))
        left_s = self._leader.led_at_s + lease_s - loop.time()
        if left_s <= 0:
            raise ControllerUnavailable("the object store does not say whether this controller still leads")
        return LaneLease(lease_ms=int(left_s * 1000), position=self._leader.image.position)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        """What is to be said of each topic when its next turn is proposed; None: somebody consumes it."""
        self._leader.check_leading()
        now_s = asyncio.get_running_loop().time()
        self._presence.forget(self._leader.image)
        return [
            self._presence.unconsumed(topic_id, now_s) if topic_id in self._leader.image.topics else None
            for topic_id in topic_ids
        ]

    def seen_consumers(self, topic_ids: Sequence[TopicId]) -> list[Seen]:
        """What is known of consumers of each topic of lanes that fall back, besides groups' members."""
        now_s = asyncio.get_running_loop().time()
        return [self._presence.seen(topic_id, now_s) for topic_id in topic_ids]

    @property
    def lane_grace_s(self) -> float:
        """For how long a topic of a lane waits for consumers before its messages go on."""
        return self._leader.settings.lane_grace_s

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        """Begins turns of lanes' messages. For each in order: None, or why it does not begin."""

        def is_absent(topic_id: TopicId, since: Unconsumed) -> bool:
            return self._presence.is_absent(topic_id, since, asyncio.get_running_loop().time())

        return await self._operate(
            "turned",
            lambda image: turn_machine.turned(image, turns, is_absent=is_absent),
            work=ELEMENT_WORK * len(turns),
        )

    async def create_channel(self, name: str, spec: str, *, validate_only: bool = False) -> None:
        """Returns when it is there; with `validate_only`, when it could be. `spec` is JSON that was checked. Raises
        RequestError.
        """
        await self._operate(
            "create_channel",
            lambda image: channel_machine.create_channel(
                image, self._guard.now_ms(), name, spec, limits=self._limits, validate_only=validate_only
            ),
        )

    async def change_channel(self, name: str, spec: str, *, validate_only: bool = False) -> None:
        """What the channel is to be; with `validate_only` nothing changes. Raises RequestError."""
        await self._operate(
            "change_channel",
            lambda image: channel_machine.change_channel(
                image, name, spec, limits=self._limits, validate_only=validate_only
            ),
        )

    async def delete_channel(self, name: str) -> None:
        """Its topic stays. Raises RequestError."""
        await self._operate("delete_channel", lambda image: channel_machine.delete_channel(image, name))

    async def allocate_producer_ids(self, count: int) -> range:
        """Takes `count` producer ids that were never given before."""
        return await self._operate("allocate_producer_ids", lambda image: allocate_producer_ids(image, count))

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        """Begins planned moves, or takes them back. For each in order: None, or why it is refused."""
        decide = partial(move_machine.reassign, changes=changes, take=self._moved)
        return [*await self._operate("reassign", decide, work=ELEMENT_WORK * len(changes))]

    async def register(self, registration: Registration) -> BrokerEpoch:
        """Seals the stream of the node's earlier incarnation, then registers the new one under an epoch of its own.
        Raises Fenced for a process that lost its node id to another one.
        """
        async with self._registering[registration.node_id]:
            for _ in range(REGISTRATION_TRIES_MAX):
                stream = node_machine.stream_to_seal(self._leader.image, registration)
                end = 0 if stream is None else await self._seal(stream)
                decide = partial(
                    node_machine.register, registration=registration, sealed=stream, end=end, avoid=self.avoided
                )
                epoch = await self._leader.operate("register", decide, first=True, gives_away=registration.node_id)
                if epoch is not None:
                    _log.info(
                        "node registered",
                        node_id=registration.node_id,
                        broker_epoch=epoch,
                        roles=registration.roles,
                        sealed_end=end,
                    )
                    return epoch
        raise ControllerUnavailable(
            f"node {registration.node_id} is registered again and again from elsewhere: give each node its own id"
        )

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        """Commits that the node sealed its own stream at `end` and is gone."""
        avoid = self.avoided
        await self._leader.operate(
            "report_stopped",
            lambda image: node_machine.report_stopped(image, node_id, broker_epoch, end=end, avoid=avoid),
            first=True,
            gives_away=node_id,
        )
        _log.info("node stopped", node_id=node_id, broker_epoch=broker_epoch, sealed_end=end)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renews the node's lease, and commits what it reports. One that says nothing new costs no request to the
        store.
        """
        self._leader.check_leading()
        if beat.draining:
            self._stopping[beat.node_id] = beat.broker_epoch
        if beat.clock_differs:
            self._off_time[beat.node_id] = beat.broker_epoch
        was_off_time = None if beat.clock_differs else self._off_time.get(beat.node_id)
        takes_again = was_off_time == beat.broker_epoch and not beat.draining
        if not takes_again and was_off_time is not None:
            del self._off_time[beat.node_id]
        self._troubles.pop(beat.node_id, None)
        if beat.trouble:
            self._troubles[beat.node_id] = beat.broker_epoch, beat.trouble
        is_drained = self._draining.get(beat.node_id) == beat.broker_epoch
        avoid = self.avoided - {beat.node_id} if takes_again else self.avoided
        decide = partial(node_machine.heartbeat, beat=beat, is_drained=is_drained, takes_again=takes_again, avoid=avoid)
        try:
            says_nothing = not decide(self._leader.image).records
        except Fenced:
            says_nothing = False  # said only by who certainly leads: `operate` makes sure
        else:
            self._fencer.heard((beat.node_id, beat.broker_epoch))
            self._sign_of_life.heard(beat.node_id)
            if "broker" in self._leader.image.nodes[beat.node_id].roles:
                self._loads.reported((beat.node_id, beat.broker_epoch), beat.loads, _now_ms())
        try:
            if takes_again:  # what is on its way into the log may have nobody: it is decided about behind that
                with _taken_out(self._off_time, beat.node_id) as taken_out:
                    await self._leader.operate("heartbeat", taken_out(decide), first=True)
            elif not says_nothing:
                await self._leader.operate("heartbeat", decide, first=True)
        except Fenced:
            metrics.HEARTBEATS.labels("fenced").inc()
            raise
        metrics.HEARTBEATS.labels("ok").inc()
        return HeartbeatReply(lease_ms=int(self._leader.settings.lease_s * 1000), position=self._leader.image.position)

    async def move(self, tp: TopicPartition, to: NodeId) -> None:
        """Begins to move a partition to the broker `to`."""
        await self._operate("move", lambda image: move_machine.move(image, tp, to, take=self._moved))

    async def drain(self, node_id: NodeId) -> None:
        """Cordons a node and begins to move all its partitions away."""
        decide = partial(move_machine.drain, node_id=node_id, avoid=self.avoided)
        await self._operate("drain", decide, gives_away=node_id)
        node = self._leader.image.nodes.get(node_id)
        if node is not None:
            self._draining[node_id] = node.broker_epoch
        _log.info("node is being drained", node_id=node_id, partitions=self._leader.image.owned_counts.get(node_id, 0))

    async def cordon(self, node_id: NodeId, cordoned: bool) -> None:
        """Gives the node no new partitions, or does so again. Who may have partitions again is no longer drained."""
        decide = partial(node_machine.cordon, node_id=node_id, cordoned=cordoned)
        if cordoned:
            await self._operate("cordon", decide)
            return
        with _taken_out(self._draining, node_id) as taken_out:
            await self._operate("cordon", taken_out(decide))

    async def metadata_poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        """The log's entries above `after_position`, from memory; waits for one, not longer than `wait_ms`."""
        return await self._leader.recent.poll(after_position, wait_ms)

    async def stop(self) -> None:
        """Commits what is under way, lets standbys know that one of them may lead, and ends. Only the latter where it
        leads no more.
        """
        await self._leader.stop(farewell=self._sign_of_life.farewell())

    async def clock(self) -> tuple[int, bool]:
        """Wall time in ms since 1970, and whether lanes are deleted by it now."""
        if self._guard.skew_ms is None:
            with contextlib.suppress(StoreError):
                await self._guard.check()
        trusted_ms = self._guard.trusted_now_ms()
        return (self._guard.now_ms(), False) if trusted_ms is None else (trusted_ms, True)

    def _moved(self, tp: TopicPartition) -> None:
        """Somebody has a partition moved. Raises QuotaExceeded."""
        now_s = asyncio.get_running_loop().time()
        self._asked_moves.forget(self._leader.image, now_s)
        self._asked_moves.take(tp, now_s)

    def _living(self, incarnations: Mapping[NodeId, BrokerEpoch]) -> frozenset[NodeId]:
        """Those of the incarnations that are registered."""
        nodes = self._leader.image.nodes
        return frozenset(
            node_id
            for node_id, epoch in incarnations.items()
            if node_id in nodes and nodes[node_id].broker_epoch == epoch
        )

    def _expire_lanes(self, image: Image) -> Decision[list[str]]:
        now_ms = self._guard.trusted_now_ms()
        return Decision([], ()) if now_ms is None else lane_machine.delete_expired(image, now_ms)

    async def _seal(self, stream: StreamId) -> int:
        timeout_s = self._leader.settings.operation_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await seal_stream(self._store, stream, cluster_id=self._leader.image.cluster_id, rng=self._rng)
        except TimeoutError:
            raise ControllerUnavailable(
                f"the stream {stream.prefix} could not be sealed within {timeout_s:g} s: the object store is slow "
                "or down; look, and try again"
            ) from None

    def _cluster(self, image: Image) -> dict[str, str]:
        """The cluster's configuration that was set: while it runs before the command line's."""
        return {**self._leader.settings.cluster_configs, **image.configs.get(("broker", ""), {})}


@contextlib.contextmanager
def _taken_out(
    avoided: dict[NodeId, BrokerEpoch], node_id: NodeId
) -> Iterator[Callable[[Callable[[Image], Decision[T]]], Callable[[Image], Decision[T]]]]:
    """Makes a decision one by which the node is avoided no more: what is decided behind it may give it partitions, and
    what was before it finds those that nobody got. It is avoided again where that does not become durable.
    """
    was = avoided.get(node_id)

    def taken_out(decide: Callable[[Image], Decision[T]]) -> Callable[[Image], Decision[T]]:
        def decided(image: Image) -> Decision[T]:
            avoided.pop(node_id, None)
            return decide(image)

        return decided

    try:
        yield taken_out
    except BaseException:
        if was is not None:
            avoided.setdefault(node_id, was)
        raise


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
