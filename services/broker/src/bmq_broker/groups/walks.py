"""Walks over all groups of a coordinator: a few of them in each turn of the loop, so that those who wait for an answer hardly notice."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from bmq.grouping import in_groups, in_weighed_groups
from bmq.values import TopicId
from bmq_broker.groups import offsets
from bmq_broker.groups.admin import abandon_group
from bmq_broker.groups.machine import Effects, GroupMachine
from bmq_broker.groups.requests import Now, Ticket

T = TypeVar("T")

_GROUPS_PER_TURN: Final = 50
_BYTES_PER_TURN: Final = 128 * 1024
"""What of their members is brought to life in one turn: some ms."""
OFFSETS_PER_TURN: Final = 1_000
"""Offsets that are deleted in one turn, some ms."""
_ABANDON_AGAIN_S: Final = 5.0


class Walks:
    """`machine` is the one that serves now, None after the end; `run` does a step that nobody asked for (False: it was taken back); `nobody` is a
    ticket that nobody has.
    """

    def __init__(
        self,
        machine: Callable[[], GroupMachine | None],
        run: Callable[[Callable[[], Effects]], bool],
        now: Callable[[], Now],
        nobody: Callable[[], Ticket],
    ) -> None:
        self._machine = machine
        self._run = run
        self._now = now
        self._nobody = nobody

    async def expire(self, machine: GroupMachine, allowed: Callable[[], bool]) -> None:
        """Offsets whose time is over, and idle groups; as long as the clock can be trusted."""
        for index, group_id in enumerate(list({*machine.durable.groups, *machine.durable.offsets})):
            if not allowed():
                break
            while self._did_all_it_may(partial(offsets.expire, machine, self._now(), group_id, count_max=OFFSETS_PER_TURN)):
                await asyncio.sleep(0)
                if not allowed() or self._machine() is not machine:
                    return
            if index % _GROUPS_PER_TURN == _GROUPS_PER_TURN - 1:
                await asyncio.sleep(0)

    def drop_topics(self, machine: GroupMachine, is_gone: Callable[[str, TopicId | None], bool], group_ids: list[str]) -> None:
        """A few groups now, the others in the loop's next turns; until then `fetch` tells old offsets by the topic's id."""
        if self._machine() is not machine:
            return
        part = group_ids[:_GROUPS_PER_TURN]
        again = self._did_all_it_may(partial(offsets.drop_topics, machine, is_gone, part, count_max=OFFSETS_PER_TURN))
        left = group_ids if again else group_ids[_GROUPS_PER_TURN:]
        if left:
            asyncio.get_running_loop().call_soon(self.drop_topics, machine, is_gone, left)

    def abandon(self, machine: GroupMachine, group_ids: list[str], *, again: Callable[[], None]) -> None:
        """Likewise. `again` is called later where one is in the middle of a rebalance, which nobody joins any more."""
        if self._machine() is not machine or not group_ids:
            return
        now = sorted(group_ids)[:_GROUPS_PER_TURN]
        large = next((group_id for group_id in now if machine.durable.offset_count(group_id) > OFFSETS_PER_TURN), None)
        if large is not None and self._did_all_it_may(partial(offsets.drop_some, machine, large, OFFSETS_PER_TURN)):
            asyncio.get_running_loop().call_soon(partial(self.abandon, machine, group_ids, again=again))
            return
        for group_id in now:
            self._run(partial(abandon_group, machine, self._now(), group_id, self._nobody()))
        loop = asyncio.get_running_loop()
        if any(group_id in machine.groups for group_id in now):
            loop.call_later(_ABANDON_AGAIN_S, again)
        loop.call_soon(partial(self.abandon, machine, sorted(group_ids)[_GROUPS_PER_TURN:], again=again))

    def _did_all_it_may(self, step: Callable[[], Effects]) -> bool:
        """Whether a step deleted as many offsets as one turn may, so that there may be more."""
        deleted = 0

        def counted() -> Effects:
            nonlocal deleted
            effects = step()
            deleted = len(effects.records)
            return effects

        return self._run(counted) and deleted >= OFFSETS_PER_TURN


def weighed_slices(items: Iterable[T], bytes_of: Callable[[T], int]) -> Iterator[list[T]]:
    """As many at a time as one turn of the loop takes, also of those that have many bytes."""
    return in_weighed_groups(items, bytes_of, count_max=_GROUPS_PER_TURN, weight_max=_BYTES_PER_TURN)


def slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many at a time as one turn of the loop takes."""
    return in_groups(items, _GROUPS_PER_TURN)
