"""Turns for work that has many elements: whose is next, so many at once, and one short turn of one request in each turn
of the loop, however many are at it.

Turns go by party (an address), and within it by sender (a connection): who opens two hundred connections has no more of
them than who has one.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")

Party = tuple[Hashable, Hashable]
"""Whose turn it is: an address, and a connection or client of it."""
NOBODY: Final[Party] = ("", "")

_Senders = OrderedDict[Hashable, deque[T]]


class Rotation(Generic[T]):
    """What waits, by turns of those whose it is: parties, then each party's senders, then what a sender put in first.
    Pure.
    """

    def __init__(self) -> None:
        self._parties: OrderedDict[Hashable, _Senders[T]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._parties)

    def __len__(self) -> int:
        """How many wait, counted anew each time."""
        return sum(len(items) for senders in self._parties.values() for items in senders.values())

    @property
    def parties(self) -> int:
        """How many parties have something that waits."""
        return len(self._parties)

    def push(self, item: T, *, party: Hashable = None, sender: Hashable = None) -> None:
        """Puts it behind what the same sender has here."""
        senders = self._parties.get(party)
        if senders is None:
            senders = self._parties[party] = OrderedDict()
        items = senders.get(sender)
        if items is None:
            items = senders[sender] = deque()
        items.append(item)

    @property
    def first(self) -> T:
        """What `pop` gives next."""
        senders = next(iter(self._parties.values()))
        return next(iter(senders.values()))[0]

    @property
    def first_party(self) -> Hashable:
        """Whose that is."""
        return next(iter(self._parties))

    def pass_over(self) -> None:
        """The party that is next goes behind all others, with all that it has here."""
        self._parties.move_to_end(next(iter(self._parties)))

    def pop(self) -> T:
        """What is next; its sender is behind its party's others then, and its party behind all others."""
        party, senders = self._parties.popitem(last=False)
        sender, items = senders.popitem(last=False)
        item = items.popleft()
        if items:
            senders[sender] = items
        if senders:
            self._parties[party] = senders
        return item

    def discard(self, item: T, *, party: Hashable = None, sender: Hashable = None) -> None:
        """Takes out what is not wanted any more, where it still waits. The turns of the others stay as they are."""
        senders = self._parties.get(party)
        items = None if senders is None else senders.get(sender)
        if senders is None or items is None or item not in items:
            return
        items.remove(item)
        if not items:
            del senders[sender]
        if not senders:
            del self._parties[party]


class Places:
    """So many pieces of work at once; whoever waits for a place has it by turns, a party that has none before one that
    has.
    """

    def __init__(self, at_once: int, *, leaving: bool = False) -> None:
        """`leaving`: a party has no more places than it leaves free, also while nobody else wants one. For work that
        others would have to wait for long, or that waits for the same itself.
        """
        assert at_once > 0
        self._at_once = self._free = at_once
        self._leaving = leaving
        self._held: Counter[Hashable] = Counter()
        self._waiting: Rotation[asyncio.Future[Hashable]] = Rotation()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a place, or waits for one."""
        return self._free == self._at_once and not self._waiting

    async def enter(self, *, party: Hashable = None, sender: Hashable = None) -> None:
        """Takes a place once there is one. Who gives up waiting has taken none; who has one says `leave` in the end,
        for the same party.
        """
        if self._may_have(party):
            self._take(party)
            return
        turn = self.queue(party=party, sender=sender)
        try:
            await self.turn_of(turn)
        except asyncio.CancelledError:
            self._waiting.discard(turn, party=party, sender=sender)
            raise

    def queue(
        self,
        turn: "asyncio.Future[Hashable] | None" = None,
        *,
        party: Hashable = None,
        sender: Hashable = None,
    ) -> "asyncio.Future[Hashable]":
        """Waits for a place: a future that resolves with whose place it is then, and who says `leave` for that party
        in the end. With `turn`, one that waits already waits for this party, too: for work that several want.
        """
        if turn is None:
            turn = asyncio.get_running_loop().create_future()
        if self._may_have(party):
            self._take(party)
            turn.set_result(party)
        else:
            self._waiting.push(turn, party=party, sender=sender)
        return turn

    async def turn_of(self, turn: "asyncio.Future[Hashable]") -> Hashable:
        """Whose place it is that one who waits has, once there is one. Who gives up waiting has taken none."""
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(party=turn.result())
            raise

    @asynccontextmanager
    async def holding(self, *, party: Hashable = None, sender: Hashable = None) -> AsyncIterator[None]:
        """A place, once there is one, for as long as this is entered."""
        await self.enter(party=party, sender=sender)
        try:
            yield
        finally:
            self.leave(party=party)

    def leave(self, *, party: Hashable = None) -> None:
        """Gives a place of the party's to the next one."""
        self._free += 1
        self._held[party] -= 1
        assert self._held[party] >= 0
        if not self._held[party]:
            del self._held[party]
        while self._free and self._waiting and self._has_next():
            party = self._waiting.first_party
            turn = self._waiting.pop()
            if not turn.done():
                self._take(party)
                turn.set_result(party)

    def _may_have(self, party: Hashable) -> bool:
        return self._free > 0 and (not self._leaving or self._held[party] < self._free)

    def _take(self, party: Hashable) -> None:
        self._free -= 1
        self._held[party] += 1

    def _has_next(self) -> bool:
        """Has one be the first of those who wait that has no place yet; where all have some, whose turn it is. False:
        none of them may have more. No more are passed over than there are places.
        """
        for _ in range(self._waiting.parties):
            if not self._held[self._waiting.first_party]:
                return True
            self._waiting.pass_over()
        for _ in range(self._waiting.parties if self._leaving else 0):
            if self._may_have(self._waiting.first_party):
                return True
            self._waiting.pass_over()
        return not self._leaving


class Turns:
    """At the event loop."""

    def __init__(self) -> None:
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()
        self._is_due = False

    async def turn(self, *, party: Hashable = None, sender: Hashable = None) -> None:
        """Lets the loop go on, until it is this work's turn again. Without a party: first come first served."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.push(waiter, party=party, sender=sender)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next)
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiting.discard(waiter, party=party, sender=sender)
            raise

    def _next(self) -> None:
        while self._waiting:
            waiter = self._waiting.pop()
            if not waiter.done():
                waiter.set_result(None)
                break
        self._is_due = bool(self._waiting)
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next)
