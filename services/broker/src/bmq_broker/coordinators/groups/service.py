"""The shell around the group machine: time, the log, and who waits. One shard is one partition of `__consumer_offsets`
that this broker owns.

What it may not do: decide anything about groups (the machine does), or let a reply out before what it rests on is
durable.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from bmq.clocks.clock_guard import ClockGuard
from bmq.clocks.in_time import in_time
from bmq.errors import NotOwner, NotReady
from bmq.fairness.fair_room import FairRoom
from bmq.fairness.grouping import in_groups, in_weighed_groups
from bmq.fairness.log_limit import RateLimited
from bmq.ports import Rng
from bmq.roles.log import CoordinatorLog
from bmq.values import TopicId
from bmq_broker.coordinators.groups import offsets, timeouts
from bmq_broker.coordinators.groups.appending import Appending, failure_of
from bmq_broker.coordinators.groups.asked import STORED_WITHIN_S, Asked
from bmq_broker.coordinators.groups.deadlines import Deadlines
from bmq_broker.coordinators.groups.lane_commits import LaneCommits
from bmq_broker.coordinators.groups.loading import load
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine, Memory
from bmq_broker.coordinators.groups.requests import Now, Reply, Ticket
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.coordinators.groups.snapshotting import Snapshotting
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.taking_back import take_back
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.turns import TURN_BYTES, Turns
from bmq_broker.coordinators.groups.walks import Walks, in_parts, weighed_slices, work_bytes

_log = logging.getLogger(__name__)
T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R", bound=Reply)
Operation = Callable[[GroupMachine, Now, Ticket], Effects]

_LOOKS_PER_TURN: Final = 200
_COMPLAIN_EVERY_S: Final = 10.0
_HELD_TIMES: Final = 4
"""Those at one address who wait for others of their groups have at most so many times the places that they leave to
others: a group that is larger than that would never be complete."""


class TopicNames(Protocol):
    """The node's image, at or past the record that made this broker the partition's owner: a topic that is not in it is
    deleted.
    """

    def id_of(self, name: str) -> TopicId | None: ...

    def name_of(self, topic_id: TopicId) -> str | None: ...

    def partitions_of(self, topic_id: TopicId) -> int:
        """0 where there is no such topic."""


class GroupCoordinatorShard:
    """`load` once, then ask; `close` in the end. After `failure` is set nothing works any more: make a new one and load
    it.

    `fence_check` makes sure that this broker has not been replaced; raises Fenced. `expiry_allowed` says whether the
    wall clock can be trusted; `is_abandoned`, whether the image says that a group's lane is gone. `failed` is called
    once, with what ended the shard, unless `close` did.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        partition: int,
        *,
        clock: ClockGuard,
        rng: Rng,
        settings: GroupSettings,
        topics: TopicNames,
        fence_check: Callable[[], Awaitable[None]] | None = None,
        expiry_allowed: Callable[[], bool] = lambda: True,
        is_abandoned: Callable[[str], bool] = lambda _: False,
        failed: Callable[[BaseException], None] = lambda _: None,
        memory: Memory | None = None,
        turns: Turns | None = None,
        lane_commits: LaneCommits | None = None,
    ) -> None:
        """`memory`: what the groups of all coordinators of this broker take; `turns`: when they are written anew;
        `lane_commits`: which offsets may be committed in lanes, None: all.
        """
        self.partition = partition
        self.rng = rng
        self.settings = settings
        self.topics = topics
        self.lane_commits = lane_commits
        self.failure: BaseException | None = None
        self.unknown_records = 0
        self._is_loaded = False
        self._deleted_meanwhile: list[tuple[TopicId, str]] = []
        self._log = log
        self._clock = clock
        self._fence_check = fence_check
        self._expiry_allowed = expiry_allowed
        self._is_abandoned = is_abandoned
        self._failed = failed
        self._memory = memory
        self._turns = Turns() if turns is None else turns
        self._machine: GroupMachine | None = None
        self._asked = Asked(partition, self._turns)
        self._for_others = FairRoom(self.settings.waiting_max, times=_HELD_TIMES)
        self._deadlines = Deadlines(self._next_deadline_ms, self._fire_next, self._turns)
        self._walks = Walks(lambda: self._machine, self._run_by_itself, self._now, self._turns)
        self._housekeeper: asyncio.Task[None] | None = None
        self._complaints = RateLimited(interval_s=_COMPLAIN_EVERY_S)
        self._snapshots = Snapshotting(log, settings, self._fail)
        self._appending = Appending(log, settings, fail=self._fail, grown=self._snapshots.count)

    def configure(self, settings: GroupSettings) -> None:
        """What holds from now on; members and waits that are there already keep what they were given."""
        self.settings = settings
        if self._machine is not None:
            self._machine.settings = settings

    async def load(self) -> None:
        """Reads the log, then serves. Raises Corrupt, FormatTooNew, StoreError, Fenced; NotOwner where it was closed
        meanwhile.
        """
        loaded = await load(self._log)
        if self.failure is not None:
            raise NotOwner(f"group coordinator {self.partition} was closed while it was loading") from self.failure
        self.unknown_records = loaded.unknown
        if loaded.unknown:
            _log.warning(
                "partition %d of __consumer_offsets holds %d records of kinds that this bmq does not know; it "
                "takes no snapshots of it",
                self.partition,
                loaded.unknown,
            )
            self._snapshots.disable()
        self._snapshots.count(loaded.records, 0)
        self._machine = machine = GroupMachine(self.settings, loaded.state, memory=self._memory)
        # Nothing is served yet, so both walks may let the loop have its turns.
        for parts in in_parts(machine, list(loaded.state.offsets)):
            await self._turns.take(work_bytes(parts))
            self._run(partial(offsets.drop_topics, machine, self._is_gone, parts), self._carry_out)
        for group_ids in weighed_slices(list(loaded.state.groups), loaded.state.generation_bytes):
            size_bytes = sum(map(loaded.state.generation_bytes, group_ids))
            await self._turns.take(max(size_bytes, ELEMENT_WORK_BYTES * len(group_ids)))
            self._run(partial(timeouts.start, machine, self._now(), group_ids), self._carry_out)
        if self.failure is not None:
            raise NotOwner(f"group coordinator {self.partition} has ended: {self.failure}") from self.failure
        self._is_loaded = True
        self.topics_deleted(self._deleted_meanwhile)
        self.drop_abandoned()
        self._snapshots.take_if_due(loaded.state)
        self._housekeeper = asyncio.get_running_loop().create_task(self._keep_house())

    async def close(self) -> None:
        """Answers what is held (NotOwner), stops timers and tasks. May be called in any state, more than once."""
        if self.failure is None:
            self._end(NotOwner(f"partition {self.partition} of __consumer_offsets moved away"))
        housekeeper, self._housekeeper = self._housekeeper, None
        if housekeeper is not None:
            await asyncio.gather(housekeeper, return_exceptions=True)
        await self._snapshots.close()

    @property
    def is_active(self) -> bool:
        """Whether it is loaded and has not failed."""
        return self._is_loaded and self.failure is None

    async def ask_others(self, operation: Operation, expected: type[R], *, party: str, given_up: Operation) -> R:
        """Like `ask`, for what waits for others of its group, as long as they like: those at one address (`party`)
        leave places to others. Raises NotReady where they have no more themselves.
        """
        if not self._for_others.has(1, address=party):
            raise NotReady(
                f"too many at {party.lstrip('/')} wait for others of their groups in partition {self.partition} of "
                "__consumer_offsets"
            )
        with self._for_others.holding(1, address=party):
            return await self.ask(operation, expected, given_up=given_up)

    async def ask(self, operation: Operation, expected: type[R], *, given_up: Operation | None = None) -> R:
        """Runs an operation that answers its ticket with an `expected`, now or later. `given_up`: what is done where
        the asker went before that.

        Raises NotReady while loading or while too much waits for the store, NotOwner after a failure or when the shard
        ends before the answer.
        """
        self._check_room()
        reply = await self._submit(operation, self._carry_out, given_up)
        assert isinstance(reply, expected)
        return reply

    async def turn(self, group_id: str, *, party: str, member_id: str = "", instance_id: str | None = None) -> None:
        """Before a request of a member that may be much work: to write the group's whole generation, for one that comes
        back or by its leader, or to begin the next one, for the last that was waited for. `party` is its address.
        """
        group = None if self._machine is None else self._machine.groups.get(group_id)
        if group is None:
            return
        if group.state is GroupState.STABLE and not member_id and instance_id in group.static:
            await self._turns.take(group.rewriting_bytes, party=party)
            return
        known_id = member_id or group.static.get(instance_id or "", "")
        leads = group.state is GroupState.COMPLETING_REBALANCE and member_id and group.leader == member_id
        if leads or (group.state is GroupState.PREPARING_REBALANCE and group.waits_for_none_but(known_id)):
            await self._turns.take(group.completing_bytes, party=party)

    async def ask_session(self, group_id: str, operation: Operation, expected: type[R]) -> R:
        """Like `ask`, for an operation that has no records and whose answer rests on the group's stored generation
        alone (Heartbeat).

        It waits for that generation's record, but not for offsets that others commit: a slow store must not end
        sessions.
        """

        def carry_out(effects: Effects) -> None:
            assert not effects.records
            stored = self._appending.stored(group_id)
            if stored is None:
                self._asked.answer(effects.replies)
            else:
                self._after(stored, effects)
            self._deadlines.arm()

        reply = await self._submit(operation, carry_out)
        assert isinstance(reply, expected)
        return reply

    async def look(self, query: Callable[[GroupMachine, Now], tuple[Effects, T]], *, fence_check: bool = False) -> T:
        """Runs an operation that answers at once; returns when what it rests on is durable (and this broker still the
        owner).
        """
        results: list[T] = []

        def operation(machine: GroupMachine, now: Now, ticket: Ticket) -> Effects:
            effects, result = query(machine, now)
            results.append(result)
            effects.reply(ticket, None)
            return effects

        self._check_room()
        await self._submit(operation, self._carry_out)
        if fence_check and self._fence_check is not None:
            why = (
                f"the store did not show within {STORED_WITHIN_S:g} s that group coordinator {self.partition} is "
                "still this broker's"
            )
            await in_time(asyncio.get_running_loop().time() + STORED_WITHIN_S, self._fence_check, lambda: NotReady(why))
            self._active()
        return results[0]

    async def look_each(
        self,
        items: Iterable[Q],
        query: Callable[[GroupMachine, Q], T],
        *,
        party: str,
        work_bytes: Callable[[GroupMachine, Q], int] = lambda _machine, _item: ELEMENT_WORK_BYTES,
        fence_check: bool = False,
    ) -> list[T]:
        """What `query` finds of each, in order; it changes nothing. `work_bytes`: how much of a turn that is. Others
        have their turn after a few of them; returns as `look` does. `party` is the asker's address.
        """
        self._check_room()
        results: list[T] = []

        def work_of(item: Q) -> int:
            return work_bytes(self._active(), item)

        for part in in_weighed_groups(items, work_of, count_max=_LOOKS_PER_TURN, weight_max=TURN_BYTES):
            await self._turns.take(sum(map(work_of, part)), party=party)
            machine = self._active()
            results += [query(machine, item) for item in part]
        await self._settled(fence_check=fence_check)
        return results

    async def look_in_turns(
        self, queries: Iterable[tuple[int, Callable[[GroupMachine, Now], tuple[Effects, T]]]], *, party: str
    ) -> list[T]:
        """Like `look` for each, in order, with how much work it is in bytes of a turn. Others have their turn between
        two of them, and may change what the next one finds; returns when all of them are durable. `party` is the
        asker's address. Raises as `ask`, some of them done.
        """
        results: list[T] = []
        for size_bytes, query in queries:
            await self._turns.take(size_bytes, party=party)
            if self._appending.undurable_bytes > self.settings.undurable_bytes_max // 2:
                await self._settled()
            self._check_room()
            machine = self._active()

            def step(
                machine: GroupMachine = machine, query: Callable[[GroupMachine, Now], tuple[Effects, T]] = query
            ) -> Effects:
                effects, result = query(machine, self._now())
                results.append(result)
                return effects

            self._run(step, self._carry_out)
        await self._settled()
        return results

    async def _settled(self, *, fence_check: bool = False) -> None:
        """Returns when everything until now is durable."""
        await self.look(lambda _machine, _now: (Effects(), None), fence_check=fence_check)

    def offset_count(self, group_id: str) -> int:
        """How many offsets the group has now. Raises as `ask`."""
        return self._active().durable.offset_count(group_id)

    def metadata_chars(self, group_id: str) -> int:
        """How many characters of metadata the group's offsets have now. Raises as `ask`."""
        return self._active().durable.metadata_chars(group_id)

    def completing_bytes(self, group_id: str) -> int:
        """How much of a turn it is to end the group's rebalance; 0: none runs."""
        group = None if self._machine is None else self._machine.groups.get(group_id)
        return group.completing_bytes if group is not None and group.state is GroupState.PREPARING_REBALANCE else 0

    def places(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions of which the group has offsets now, in no order. Raises as `ask`."""
        return list(self._active().durable.offsets.get(group_id, ()))

    def is_empty(self, group_id: str) -> bool:
        """Whether there is such a group now, without members. Raises as `ask`."""
        return self._active().is_empty(group_id)

    def group_ids(self) -> list[str]:
        """All that there are now, also those that only have offsets. Raises as `ask`."""
        machine = self._active()
        return list(machine.groups.keys() | machine.durable.offsets.keys())

    def fresh_member_id(self, prefix: str) -> str:
        """An id that was never given."""
        return f"{prefix}-{self.rng.uuid()}"

    def tell_full(self, client_host: str) -> None:
        """Offsets of a client were not stored."""
        if (left_out := self._complaints.due("full", now=asyncio.get_running_loop().time())) is not None:
            _log.warning(
                "new offsets of clients at %s are not stored: groups_stored_bytes_max or groups_stored_burst_bytes "
                "is reached; delete groups that nobody uses, or raise them (%d left out)",
                client_host.lstrip("/"),
                left_out,
            )

    def topics_deleted(self, topics: Sequence[tuple[TopicId, str]]) -> None:
        """The image says that these topics are gone: so are their offsets. The image must show it already."""
        if not self._is_loaded:
            self._deleted_meanwhile += topics
        if not self.is_active:
            return
        self._walks.drop_topics(self._active(), topics)

    def drop_abandoned(self) -> None:
        """The image says that lanes are gone: so are their groups."""
        if self.is_active:
            self._walks.abandon(self._active(), self._is_abandoned, again=self.drop_abandoned)

    def group_offsets(self, at_once: int) -> Iterator[dict[tuple[str, str, int], int]]:
        """Committed offsets for metrics: {(group, topic, partition): offset}, so many at a time; none where not active.

        Others may have their turn, and commit, between two parts.
        """
        if not self.is_active:
            return
        part: dict[tuple[str, str, int], int] = {}
        offsets = self._active().durable.offsets
        for group_id in list(offsets):
            for (topic, partition), value in list(offsets.get(group_id, {}).items()):
                part[group_id, topic, partition] = value.offset
                if len(part) >= at_once:
                    yield part
                    part = {}
        if part:
            yield part

    def state_counts(self, at_once: int) -> Iterator[Counter[str]]:
        """How many groups are in each state, by Kafka's names: of so many at a time; none where not active.

        Others may have their turn between two parts.
        """
        if not self.is_active:
            return
        machine = self._active()
        yield Counter({GroupState.EMPTY.value: machine.group_count - len(machine.groups)})
        for some in in_groups(list(machine.groups), at_once):
            yield Counter(machine.groups[group_id].state.value for group_id in some if group_id in machine.groups)

    def _active(self) -> GroupMachine:
        if self.failure is not None:
            raise NotOwner(f"group coordinator {self.partition} has ended: {self.failure}")
        if self._machine is None or not self._is_loaded:
            raise NotReady(f"group coordinator {self.partition} is loading")
        return self._machine

    def _now(self) -> Now:
        return Now(loop_ms=int(asyncio.get_running_loop().time() * 1000), wall_ms=self._clock.now_ms())

    async def _submit(
        self, operation: Operation, carry_out: Callable[[Effects], None], given_up: Operation | None = None
    ) -> Reply | None:
        machine = self._active()
        ticket, future = self._asked.add()
        try:
            self._run(lambda: operation(machine, self._now(), ticket), carry_out)
            return await future
        except asyncio.CancelledError:
            if given_up is not None and self._machine is machine:
                self._run_by_itself(partial(given_up, machine, self._now(), ticket))
            raise
        finally:
            self._asked.over(ticket)

    def _run(self, step: Callable[[], Effects], carry_out: Callable[[Effects], None]) -> None:
        """A step that raises half-way is taken back: other groups never hear of it. One whose effects cannot be carried
        out ends the shard.
        """
        machine = self._machine
        if machine is None:
            raise NotOwner(f"group coordinator {self.partition} has ended: {self.failure}")
        machine.begin()
        try:
            effects = step()
            if effects.records:
                self._log.check_open()
        except Exception:
            self._take_back(machine)
            raise
        try:
            self._asked.decided(effects.replies)
            carry_out(effects)
        except Exception as error:
            self._fail(error)
            raise

    def _take_back(self, machine: GroupMachine) -> None:
        """Whoever waited for one of the groups that are made anew is told to ask again."""
        try:
            self._carry_out(take_back(machine, self._now()))
        except Exception as error:
            self._fail(error)
            raise
        self._asked.only_held(machine.held())

    def _run_by_itself(self, step: Callable[[], Effects]) -> bool:
        """A step that nobody asked for, and that others do not depend on. False: it was taken back, because nothing can
        be stored now.
        """
        try:
            self._run(step, self._carry_out)
        except NotReady as error:
            if (left_out := self._complaints.due("stored", now=asyncio.get_running_loop().time())) is not None:
                _log.warning(
                    "a step of group coordinator %d is taken again later (%d left out): %s",
                    self.partition,
                    left_out,
                    error,
                )
            return False
        except Exception:
            if self.failure is not None:
                raise
            if (left_out := self._complaints.due("step", now=asyncio.get_running_loop().time())) is not None:
                _log.exception(
                    "a step of group coordinator %d was taken back, this is a bug in bmq (%d left out)",
                    self.partition,
                    left_out,
                )
        return True

    def _carry_out(self, effects: Effects) -> None:
        if effects.records:
            self._after(self._appending.append(effects.records), effects)
            assert self._machine is not None
            self._snapshots.take_if_due(self._machine.durable)
        elif effects.replies:
            self._after(self._log.barrier(), effects)
        self._deadlines.arm()

    def _check_room(self) -> None:
        if (
            self._appending.undurable_bytes > self.settings.undurable_bytes_max
            or len(self._asked) >= self.settings.waiting_max
        ):
            raise NotReady(f"too much waits for the store in partition {self.partition} of __consumer_offsets")

    def _appended(self, done: "asyncio.Future[None]") -> None:
        error = failure_of(done)
        if error is not None:
            self._fail(error)

    def _after(self, done: "asyncio.Future[None]", effects: Effects) -> None:
        """Answers once `done` is there; with an error the shard has ended, which answers everybody."""
        if not effects.replies:
            return

        def deliver(finished: "asyncio.Future[None]") -> None:
            self._appended(finished)
            if self.failure is None:
                self._asked.answer(effects.replies)

        done.add_done_callback(deliver)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self._end(error)
            self._failed(error)

    def _end(self, error: BaseException) -> None:
        """The state is thrown away, never rolled back."""
        self.failure = error
        self._deadlines.end()
        self._snapshots.disable()
        if self._housekeeper is not None:
            self._housekeeper.cancel()
        self._asked.end(error)
        if self._machine is not None:
            self._machine.end()
        self._machine = None

    def _next_deadline_ms(self) -> int | None:
        return None if self._machine is None or self.failure is not None else self._machine.timers.next_ms()

    def _fire_next(self) -> int | None:
        machine, size_bytes = self._machine, ELEMENT_WORK_BYTES
        if machine is None:
            return None
        found = True

        def step() -> Effects:
            nonlocal found, size_bytes
            effects = timeouts.fire_next(machine, self._now())
            if effects is None:
                found = False
                return Effects()
            size_bytes += ELEMENT_WORK_BYTES * len(effects.replies)
            return effects

        self._run_by_itself(step)
        return size_bytes if found else None

    async def _keep_house(self) -> None:
        """Expires offsets and idle groups, a few groups at a time."""
        while True:
            await asyncio.sleep(self.settings.offsets_check_interval_ms / 1000)
            machine = self._active()
            self.drop_abandoned()  # a member that was joining when its lane went
            if self._walks.has_left_topics:
                self._walks.drop_left(machine, self._is_gone)
            await self._walks.expire(machine, self._expiry_allowed)

    def _is_gone(self, name: str, topic_id: TopicId | None) -> bool:
        return self.topics.id_of(name) is None if topic_id is None else self.topics.name_of(topic_id) is None
