"""Walks over all groups of a coordinator: a few of them in each turn of the loop, so that those who wait for an answer
hardly notice.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from bmq.fairness.grouping import in_groups, in_weighed_groups
from bmq.values import TopicId
from bmq_broker.coordinators.groups import offsets
from bmq_broker.coordinators.groups.admin import abandon_group
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.offsets import GroupPart
from bmq_broker.coordinators.groups.requests import Now
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.turns import Turns

T = TypeVar("T")

_GROUPS_PER_TURN: Final = 50
_BYTES_PER_TURN: Final = 128 * 1024
"""What of their members is brought to life in one turn: some ms."""
OFFSETS_PER_TURN: Final = 1_000
"""Offsets that are looked at, and perhaps deleted, in one turn, some ms."""
_NAMES_PER_TURN: Final = 1_000
"""Groups of which it is asked whether their lane is gone."""
_ABANDON_AGAIN_S: Final = 5.0

IsGone = Callable[[str, TopicId | None], bool]


class Walks:
    """`machine` is the one that serves now, None after the end; `run` does a step that nobody asked for (False: nothing
    can be stored now).
    """

    def __init__(
        self,
        machine: Callable[[], GroupMachine | None],
        run: Callable[[Callable[[], Effects]], bool],
        now: Callable[[], Now],
        turns: Turns,
    ) -> None:
        self._machine = machine
        self._run = run
        self._now = now
        self._turns = turns
        self.has_left_topics = False
        """Some offsets of deleted topics are still there, because nothing could be stored when it was their turn."""
        self._gone: set[tuple[TopicId, str]] = set()
        """Deleted topics that the next walk looks for."""
        self._is_dropping = False
        self._is_abandoning = self._is_to_abandon_anew = False

    async def expire(self, machine: GroupMachine, allowed: Callable[[], bool]) -> None:
        """Offsets whose time is over, and idle groups; as long as the clock can be trusted, and something can be
        stored.
        """
        for parts in in_parts(machine, list({*machine.durable.groups, *machine.durable.offsets})):
            await self._turns.take(work_bytes(parts))
            for group_id, places in parts:
                if not allowed() or self._machine() is not machine:
                    return
                if not self._run(partial(offsets.expire, machine, self._now(), group_id, places)):
                    return

    def drop_topics(self, machine: GroupMachine, topics: Iterable[tuple[TopicId, str]]) -> None:
        """A few groups now, the others in the loop's next turns; until then `fetch` tells old offsets by the topic's
        id. Topics that go during a walk are looked for together in the next one.
        """
        self._gone.update(topics)
        if self._gone and not self._is_dropping:
            self._drop_gone(machine)

    def drop_left(self, machine: GroupMachine, is_gone: IsGone) -> None:
        """What `has_left_topics` says, unless a walk is under way, which may leave more."""
        if not self._is_dropping:
            self.has_left_topics = False
            self._begin_dropping(machine, is_gone)

    def _drop_gone(self, machine: GroupMachine) -> None:
        ids, names = {topic_id for topic_id, _ in self._gone}, {name for _, name in self._gone}
        self._gone = set()

        def is_gone(name: str, topic_id: TopicId | None) -> bool:
            return name in names if topic_id is None else topic_id in ids

        self._begin_dropping(machine, is_gone)

    def _begin_dropping(self, machine: GroupMachine, is_gone: IsGone) -> None:
        self._is_dropping = True
        self._drop_topics(machine, is_gone, in_parts(machine, list(machine.durable.offsets)))

    def _drop_topics(self, machine: GroupMachine, is_gone: IsGone, left: Iterator[list[GroupPart]]) -> None:
        if self._machine() is not machine:
            return  # it has ended, and these walks with it
        parts = next(left, None)
        if parts is None:
            self._is_dropping = False
            self.drop_topics(machine, ())
            return

        def step() -> None:
            if self._machine() is not machine:
                return
            if not self._run(partial(offsets.drop_topics, machine, is_gone, parts)):
                self.has_left_topics = True
            asyncio.get_running_loop().call_soon(self._drop_topics, machine, is_gone, left)

        self._turns.then(work_bytes(parts), step)

    def abandon(self, machine: GroupMachine, is_abandoned: Callable[[str], bool], *, again: Callable[[], None]) -> None:
        """Likewise; one walk at a time, and one more after it where that was asked for meanwhile. `again` is called
        later where a group is in the middle of a rebalance, which nobody joins any more.
        """
        if self._is_abandoning:
            self._is_to_abandon_anew = True
            return
        self._is_abandoning, self._is_to_abandon_anew = True, False
        known = list(dict.fromkeys((*machine.groups, *machine.durable.offsets)))
        self._abandon(machine, _abandoned_parts(machine, known, is_abandoned), again)

    def _abandon(self, machine: GroupMachine, left: Iterator[list[GroupPart]], again: Callable[[], None]) -> None:
        parts = next(left, None) if self._machine() is machine else None
        if parts is None:
            self._is_abandoning = False
            if self._is_to_abandon_anew:
                again()
            return

        def step() -> None:
            loop = asyncio.get_running_loop()
            if self._machine() is not machine or not all(
                self._run(partial(self._abandon_part, machine, part)) for part in parts
            ):
                self._is_abandoning = False
                return  # whoever keeps house looks again
            if any(
                machine.durable.offset_count(group_id) <= OFFSETS_PER_TURN and group_id in machine.groups
                for group_id, _ in parts
            ):
                loop.call_later(_ABANDON_AGAIN_S, again)
            loop.call_soon(self._abandon, machine, left, again)

        members = sum(len(machine.groups[group_id].members) for group_id, _ in parts if group_id in machine.groups)
        looks = 0 if parts else _NAMES_PER_TURN
        self._turns.then(work_bytes(parts) + ELEMENT_WORK_BYTES * (members + looks), step)

    def _abandon_part(self, machine: GroupMachine, part: GroupPart) -> Effects:
        """A group with many offsets loses some of them first."""
        if machine.durable.offset_count(part.group_id) > OFFSETS_PER_TURN:
            return offsets.drop_some(machine, part.group_id, OFFSETS_PER_TURN)
        return abandon_group(machine, self._now(), part.group_id)


def _abandoned_parts(
    machine: GroupMachine, group_ids: Sequence[str], is_abandoned: Callable[[str], bool]
) -> Iterator[list[GroupPart]]:
    """Those of abandoned groups; an empty list before each look at names, which takes a turn, too."""
    for some in in_groups(group_ids, _NAMES_PER_TURN):
        yield []
        yield from in_parts(machine, [group_id for group_id in some if is_abandoned(group_id)])


def in_parts(machine: GroupMachine, group_ids: Sequence[str]) -> Iterator[list[GroupPart]]:
    """Groups, or parts of those with many offsets: as many at a time as one turn of the loop takes. A group is looked
    at when it is its turn.
    """

    def parts() -> Iterator[GroupPart]:
        for group_id in group_ids:
            places = list(machine.durable.offsets.get(group_id, ()))
            for some in in_groups(places, OFFSETS_PER_TURN) if places else ((),):
                yield GroupPart(group_id, some)

    return in_weighed_groups(parts(), _elements_of, count_max=_GROUPS_PER_TURN, weight_max=OFFSETS_PER_TURN)


def work_bytes(parts: Iterable[GroupPart]) -> int:
    """How much of a turn it is to look at them."""
    return ELEMENT_WORK_BYTES * sum(map(_elements_of, parts))


def _elements_of(part: GroupPart) -> int:
    return 1 + len(part.places or ())


def weighed_slices(items: Iterable[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """As many at a time as one turn of the loop takes, also of those that have many bytes."""
    return in_weighed_groups(items, bytes_of, count_max=_GROUPS_PER_TURN, weight_max=_BYTES_PER_TURN)
