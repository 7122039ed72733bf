"""Which partitions this broker owns, from the image, and opening them: at once what earlier owners' streams hold, the
others at their first request.

What the image says may change at any step of an opening: each one ends with a look at the newest image, in the same
turn of the loop in which the partition begins to take batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.config.topic_config import begins_at
from bmq.errors import BmqError, Fenced, NotOwner, NotReady, PartitionStopped, StoreError, UnknownTopic
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.turns import NOBODY, Party
from bmq.fairness.waiters import Waiters
from bmq.metadata.image import Image, PartitionMeta
from bmq.metadata.records import Range
from bmq.metadata.shared_map import differences
from bmq.metadata.topic_configs import TopicConfigs
from bmq.roles.controller import Metadata
from bmq.storage.durable import cancelled
from bmq.values import NO_MANIFEST, NO_NODE, BrokerEpoch, LeaderEpoch, NodeId, TopicPartition
from bmq_broker.ended import Ended
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.leaving import Leaving
from bmq_broker.ownership.life import Lives, Ranges
from bmq_broker.ownership.opening_turns import ITSELF, OpeningTurns, Wanted, reading, writing
from bmq_broker.ownership.passes import RETRY_S, Passes
from bmq_broker.ownership.reconfiguring import Reconfiguring
from bmq_broker.ownership.waiting import Then, Waiting
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import Run, TailTotal
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.rolling import Roller
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()

LOG_INTERVAL_S = 10.0


class Ownership:
    """The open partitions of one broker incarnation."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        epoch: BrokerEpoch,
        metadata: Metadata,
        manifests: Manifests,
        clock: ClockGuard,
        settings: BrokerSettings,
        total: TailTotal,
        cluster_configs: Mapping[str, str],
        ended: Ended,
        lives: Lives,
        commit: GroupCommit,
        roller: Roller,
        waiters: Waiters,
        read_ranges: Callable[[Ranges], Awaitable[dict[TopicPartition, Inheritance]]],
        report_soon: Callable[[], None],
        report_shortly: Callable[[], None],
        gone: Callable[[Partition], None],
        forgotten: Callable[[TopicPartition], None],
        fenced: Callable[[BmqError], None],
    ) -> None:
        """`report_soon` is called when a partition is closed, `report_shortly` when ranges held nothing.

        `gone` is called when an open partition takes no more batches: it leaves by plan, was deleted or taken away;
        `forgotten` when one is not this broker's any more, open or not; `fenced` where the store shows that this broker
        was replaced.
        """
        self._node_id = node_id
        self._epoch = epoch
        self._metadata = metadata
        self._manifests = manifests
        self._clock = clock
        self._total = total
        self._ended = ended
        self._lives = lives
        self._commit = commit
        self._roller = roller
        self._waiters = waiters
        self._report_soon = report_soon
        self._gone = gone
        self._forgotten = forgotten
        self._fenced = fenced
        self._passes = Passes(
            read_ranges,
            ended=ended,
            lives=lives,
            again_s=settings.stopped_retry_ms / 1000,
            found=self._open_found,
            still_named=self._still_named,
            held_nothing=report_shortly,
        )
        self.leaving = Leaving(roller.roll_to, roll_bytes=settings.stop_roll_bytes, rolled=self._rolled)
        """Which rolls partitions before they leave by plan."""
        self._configs = TopicConfigs(cluster_configs)
        self._reconfiguring = Reconfiguring(self._configs, lives.appending, image=lambda: metadata.image)
        self._opening: dict[TopicPartition, asyncio.Task[Partition]] = {}
        self._given_up: set[asyncio.Task[Partition]] = set()
        """Openings of partitions that left meanwhile, until they have ended."""
        self._waiting = Waiting(bytes_max=settings.pending_bytes_max)
        self._wanted: dict[TopicPartition, Wanted] = {}
        """What is being opened, until it is."""
        self._turns = OpeningTurns(settings.open_concurrency)
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)
        self._empty: dict[TopicPartition, LeaderEpoch] = {}
        """Unopened partitions that were found to have nothing in the store, and under which leader epoch."""
        self.partitions: Mapping[TopicPartition, Partition] = lives.appending
        """Those that may append."""
        self._taken: list[Partition] = []
        """Partitions that the image just took away or deleted: whoever waits for what they wrote has yet to be told."""
        self.found_count = 0
        """Partitions of which the streams of earlier owners held something."""

    async def recover(self) -> int:
        """Reads what earlier owners left in the WAL and opens every partition that it held something of; returns how
        many.

        One that cannot be opened is stopped or tried again later; the others go on. Raises NotReady where streams
        cannot be read.
        """
        self.image_changed(Image(), self._metadata.image)
        await self._passes.read_all()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        return self.found_count

    def appending(self, tp: TopicPartition) -> Partition | None:
        """The partition if it is open, None where it has to be opened first. Raises UnknownTopic, NotOwner, Fenced."""
        self.check_alive()
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition
        self._check_owned(tp)
        return None

    @property
    def stopped_count(self) -> int:
        """Partitions that cannot be opened, because something that they need is missing or damaged: looked at again and
        again.
        """
        return self._lives.stopped_count

    @property
    def alive(self) -> bool:
        """Whether this broker may still write."""
        return self._ended.refusal is None

    def check_alive(self) -> None:
        """Raises Fenced once another incarnation has taken over, NotOwner and NotReady where this one stops."""
        if self._ended.refusal is not None:
            raise self._ended.refusal.with_traceback(None)

    def when_open(self, tp: TopicPartition, size_bytes: int, then: Then, *, party: Party = NOBODY) -> None:
        """Calls `then` with the partition, in the order of these calls, once it is open. Raises NotReady where too much
        waits already: it is opened all the same, so that who tries again finds it open.

        What `then` returns is told to those behind it instead: what is to be sent again first must not be overtaken.
        """
        self._open_task(tp, writing(party))
        self._waiting.add(tp, size_bytes, then, address=party[0])

    async def open(self, tp: TopicPartition, *, party: Party = ITSELF) -> Partition:
        """The open partition. Raises UnknownTopic, NotOwner, NotReady, PartitionStopped, Fenced."""
        partition = self.appending(tp)
        if partition is not None:
            return partition
        task = self._open_task(tp, party)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if not task.cancelled() or (me is not None and me.cancelling()):  # where the broker ends, it may be both
                raise
            raise self._not_opened(tp) from None  # it was the opening that was cancelled, not who waits for it

    def begin_to_open(self, tp: TopicPartition, *, party: Party = NOBODY) -> "asyncio.Task[Partition] | None":
        """Its opening, which is not the caller's to cancel; None where the partition is open. Raises UnknownTopic,
        NotOwner, NotReady, Fenced.
        """
        return None if self.appending(tp) is not None else self._open_task(tp, reading(party))

    def why_not_open(self, tp: TopicPartition, opening: "asyncio.Task[Partition]") -> BmqError:
        """Why a partition is not open although its opening has ended. Raises what is a bug."""
        error = self._not_opened(tp) if opening.cancelled() else opening.exception() or self._not_opened(tp)
        if not isinstance(error, BmqError):
            raise error
        return error

    def unopened(self) -> list[TopicPartition]:
        """This broker's partitions that nobody has asked for since it began to own them, but for those that are known
        to have nothing.
        """
        found = []
        empty: dict[TopicPartition, LeaderEpoch] = {}
        for topic in self._metadata.image.topics.values():
            for index, meta in enumerate(topic.partitions):
                if not self._stays(meta) or (tp := TopicPartition(topic.topic_id, index)) in self.partitions:
                    continue
                if self._empty.get(tp) == meta.leader_epoch:
                    empty[tp] = meta.leader_epoch
                else:
                    found.append(tp)
        self._empty = empty
        return found

    async def open_for_upkeep(self, tp: TopicPartition) -> None:
        """Opens a partition that nobody has asked for, unless it has nothing that could grow old: then it stays as it
        is, and takes no memory.

        Without a manifest all that was ever made durable of it is in the WAL, and would have been inherited: nothing
        can come to be there but by this broker, once somebody asks for the partition. Raises as `open`, and StoreError.
        """
        meta = self._check_owned(tp)
        may_have_something = (
            meta.manifest_version != NO_MANIFEST or self._lives.holds(tp) or not self._lives.has_read(tp, meta.ranges)
        )
        if not may_have_something and await self._manifests.has_nothing(tp, leader_epoch=meta.leader_epoch):
            self._empty[tp] = meta.leader_epoch
        else:
            await self.open(tp)

    def image_changed(self, old: Image, new: Image) -> None:
        """Takes up changed configurations, begins to adopt what is this broker's now, and lets go of what no longer
        is.
        """
        let_go = self._lives.image_changed(old, new)
        self._commit.unpin(let_go.slots)
        for partition in let_go.cut_short:  # deleted before it was closed
            self._taken_away(partition, [], deleted=True)
        self._tell_taken()
        all_are_others = self._configs.image_changed(old, new)
        if old.topics is new.topics and not all_are_others:
            return
        found = differences(old.topics, new.topics)
        for topic_id, topic in found.gone:
            for index in range(len(topic.partitions)):
                self._deleted(TopicPartition(topic_id, index))
        for topic_id, before, topic in found.changed:
            known = () if before is None else before.partitions
            same_config = before is not None and before.configs is topic.configs
            for index, meta in enumerate(topic.partitions):
                if not same_config or index >= len(known) or known[index] is not meta:
                    self._meta_changed(new, TopicPartition(topic_id, index), meta)
        if all_are_others:
            self._reconfiguring.begin()
        self._tell_taken()
        self.look()
        self._passes.start()

    def look(self) -> None:
        """Something became durable: which partitions that left are closed by it?"""
        if self._lives.close():
            self._report_soon()

    def end(self) -> None:
        """The broker is fenced or stops: whoever waits is told."""
        refusal = self._ended.refusal
        assert refusal is not None
        self._passes.end()
        self._reconfiguring.end()
        for task in self._opening.values():
            task.cancel()
        self._waiting.end(refusal)

    async def close(self) -> None:
        """Ends what is being opened."""
        await self._passes.close()
        await cancelled([*self._opening.values(), *self._given_up])

    def drop(self) -> None:
        """Forgets everything: this broker has ended."""
        self._lives.drop()

    def _meta_changed(self, image: Image, tp: TopicPartition, meta: PartitionMeta) -> None:
        partition = self.partitions.get(tp)
        if not self._is_owned(meta):
            if partition is not None:
                self._take_away(partition, deleted=False)
            elif tp not in self._opening and not self._lives.knows(tp):
                return  # as nearly all are that change anywhere in the cluster
            self._forget(tp)
        elif meta.moving_to != NO_NODE:
            if (
                partition is None
                or partition.leader_epoch != meta.leader_epoch
                or not self.leaving.rolls_first(partition)
            ):
                self._leave(tp, meta)
                self._forget(tp)
        elif partition is None:
            if not self._lives.has_left(tp, meta.leader_epoch):
                self._passes.want(tp, meta.ranges)
        elif partition.leader_epoch != meta.leader_epoch:
            self._take_away(partition, deleted=False)
            self._forget(tp)
            self._passes.want(tp, meta.ranges)
        else:
            partition.config = self._configs.after_a_change(image, tp.topic_id, partition.config)
            if partition.ranges:
                partition.ranges = meta.ranges

    def _deleted(self, tp: TopicPartition) -> None:
        partition = self.partitions.get(tp)
        if partition is not None:
            self._take_away(partition, deleted=True)
        self._forget(tp)

    def _rolled(self, tp: TopicPartition) -> None:
        """What is to leave may leave, if it still is to."""
        meta = self._metadata.image.partition(tp)
        if (
            meta is not None
            and self._is_owned(meta)
            and meta.moving_to != NO_NODE
            and self.alive
            and tp in self.partitions
        ):
            self._leave(tp, meta)
            self.look()
            self._forget(tp)

    def _leave(self, tp: TopicPartition, meta: PartitionMeta) -> None:
        """By plan: the partition takes no more batches, and once everything of it is durable the controller is told:
        `look` follows.
        """
        partition = self.partitions.get(tp)
        if partition is None:
            if self._lives.leave_unopened(tp, meta.leader_epoch):
                self._report_soon()
            return
        self._lives.leave(partition)
        self._partition_gone(partition)

    def _take_away(self, partition: Partition, *, deleted: bool) -> None:
        """Lets go of a partition that was deleted, or that the image gives to another without having asked; `_forget`
        and `_tell_taken` follow.
        """
        self._taken_away(partition, self._lives.take_away(partition), deleted=deleted)

    def _taken_away(self, partition: Partition, runs: list[Run], *, deleted: bool) -> None:
        self._taken.append(partition)
        if deleted:
            self._commit.covered(runs)
        # Otherwise an heir reads them from this broker's stream, whatever its manifest does not cover: they keep
        # pinning it.
        self._partition_gone(partition)

    def _tell_taken(self) -> None:
        if self._taken:
            self._commit.abandoned(self._taken)
            self._taken = []

    def _partition_gone(self, partition: Partition) -> None:
        """Whoever waits for it here asks its heir."""
        self._waiters.wake(partition.tp)
        self._gone(partition)

    def _forget(self, tp: TopicPartition) -> None:
        """Nothing of what is known, read or begun for the partition is of any use here any more."""
        self._passes.forget(tp)
        self._manifests.forget(tp)
        self._empty.pop(tp, None)
        task = self._opening.pop(tp, None)
        self._wanted.pop(tp, None)
        if task is not None:
            task.cancel()
            self._given_up.add(task)
            self._waiting.serve(tp, self._not_opened(tp))
        self._forgotten(tp)

    def _open_found(self, tps: Sequence[TopicPartition]) -> None:
        """The streams of earlier owners held something of these: they open at once."""
        self.found_count += len(tps)
        for tp in tps:
            if self.alive and tp not in self.partitions:
                self._open_task(tp)

    def _still_named(self, tp: TopicPartition, ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        meta = self._metadata.image.partition(tp)
        return tuple(found for found in ranges if meta is not None and found in meta.ranges)

    def _open_again(self, tp: TopicPartition) -> None:
        """Nobody may ever ask for it, and what was inherited pins WAL objects until it is rolled."""
        if self.alive and tp not in self.partitions and self._lives.holds(tp):
            self._open_task(tp)

    def _check_owned(self, tp: TopicPartition) -> PartitionMeta:
        self.check_alive()
        meta = self._metadata.image.partition(tp)
        if meta is None:
            raise UnknownTopic(f"partition {tp} does not exist")
        if not self._is_owned(meta):
            raise NotOwner(
                f"partition {tp} belongs to node {meta.node_id} epoch {meta.broker_epoch}, this is node "
                f"{self._node_id} epoch {self._epoch}"
            )
        if meta.moving_to not in (NO_NODE, self._node_id):
            raise NotOwner(f"partition {tp} moves to node {meta.moving_to}")
        if meta.moving_to == self._node_id or self._lives.has_left(tp, meta.leader_epoch):
            raise NotReady(f"partition {tp} was closed for a move, and the controller has yet to say whose it is now")
        return meta

    def _is_owned(self, meta: PartitionMeta | None) -> bool:
        return meta is not None and meta.node_id == self._node_id and meta.broker_epoch == self._epoch

    def _stays(self, meta: PartitionMeta) -> bool:
        return self._is_owned(meta) and meta.moving_to == NO_NODE

    def _open_task(self, tp: TopicPartition, party: Party = ITSELF) -> "asyncio.Task[Partition]":
        task = self._opening.get(tp)
        if task is not None:
            self._turns.want(self._wanted[tp], party)
        else:
            wanted = self._wanted[tp] = Wanted(party)
            task = asyncio.get_running_loop().create_task(self._open(tp, wanted), name=f"open {tp}")
            self._opening[tp] = task
            task.add_done_callback(lambda done: self._opened(tp, done))
        return task

    def _opened(self, tp: TopicPartition, task: "asyncio.Task[Partition]") -> None:
        self._waiters.wake(tp)
        if self._opening.get(tp) is not task:  # the partition left meanwhile: who waited was told
            self._given_up.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, BmqError):
                raise error
            return
        del self._opening[tp], self._wanted[tp]
        if task.cancelled():
            self._waiting.serve(tp, self._not_opened(tp))
            return
        error = task.exception()
        if error is None:
            self._waiting.serve(tp, task.result())
        elif isinstance(error, BmqError):
            if (left_out := self._limit.due(tp, now=asyncio.get_running_loop().time())) is not None:
                log.warning("partition is not open", partition=str(tp), error=str(error), left_out=left_out)
            if isinstance(error, StoreError) and self._lives.holds(tp):
                asyncio.get_running_loop().call_later(RETRY_S, self._open_again, tp)
            self._waiting.serve(
                tp,
                error
                if not isinstance(error, StoreError)
                else NotReady(f"partition {tp} cannot be opened now: {error}"),
            )
        else:
            self._waiting.serve(tp, NotReady(f"partition {tp} was not opened: {error!r}"))
            raise error

    def _not_opened(self, tp: TopicPartition) -> BmqError:
        try:
            self._check_owned(tp)
        except BmqError as error:
            return error
        return NotReady(f"partition {tp} was not opened")

    async def _open(self, tp: TopicPartition, wanted: Wanted) -> Partition:
        meta = self._check_owned(tp)
        self._passes.want(tp, meta.ranges)
        await self._passes.when_read(tp)
        async with self._turns.holding(wanted):
            meta = self._check_owned(tp)
            if not self._lives.has_read(tp, meta.ranges):
                raise NotReady(f"partition {tp} changed while it was being opened")
            partition = Partition(
                tp,
                leader_epoch=meta.leader_epoch,
                config=self._configs.of(self._metadata.image, tp.topic_id),
                ranges=meta.ranges,
                total=self._total,
            )
            try:
                await self._load(partition)
            except BaseException:
                partition.tail.drop()
                raise
            self._lives.open(partition)
            self._empty.pop(tp, None)
            if not partition.covers_recovered():
                self._roller.inherited(partition)
            self._waiting.serve(tp, partition)  # now: who comes next must not overtake them
            return partition

    async def _load(self, partition: Partition) -> None:
        """From the manifest and what was inherited to a partition that may append."""
        tp = partition.tp
        inheritance = self._lives.found(tp)
        if inheritance.stopped is not None:
            raise inheritance.stopped
        partition.start()
        at_least = max(inheritance.manifest_version, self._check_owned(tp).manifest_version)
        first_offset = begins_at(partition.config.first_offset, (run.base_offset for run, _ in inheritance.runs))
        try:
            loaded = await self._manifests.load(
                tp, leader_epoch=partition.leader_epoch, at_least=at_least, first_offset=first_offset
            )
        except PartitionStopped as stopped:
            self._passes.stop(tp, stopped)
            raise
        entry = loaded.entry
        if entry is not None and entry.epoch > partition.leader_epoch:
            error = Fenced(
                f"manifest {entry.number} of {tp} is of epoch {entry.epoch}, this broker owned it under "
                f"{partition.leader_epoch}"
            )
            self._fenced(error)
            raise error
        meta = self._check_owned(tp)
        if meta.leader_epoch != partition.leader_epoch:
            raise NotReady(f"partition {tp} changed while it was being opened")
        try:
            partition.opened(loaded.manifest, entry, loaded.producers, inheritance.runs, now_ms=self._clock.now_ms())
            partition.check_end(loaded.beyond)
            if inheritance.left is not None:
                partition.check_left(inheritance.left.end, inheritance.left.key)
        except PartitionStopped as stopped:
            self._passes.stop(tp, stopped)
            raise
        partition.config = self._configs.after_a_change(self._metadata.image, tp.topic_id, partition.config)
        partition.ranges = meta.ranges
        partition.recovered()

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether it may append."""
        partition = self.partitions.get(tp)
        return self.alive and partition is not None and partition.state is PartitionState.APPENDING
