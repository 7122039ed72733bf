"""A model of what a listing is that takes time, and of the sealer that relies on it: one writer that goes on meanwhile,
seals that arrive late, late copies of data, and a sealer whose every look is a row of reads.

Safe: what the sealer says is the end has nothing acknowledged at or above it, at no later moment either, and no number
below it is still to be taken. bmq.storage.stream_seal follows the rules below, and stream_model.py those of the stream
itself; change them together.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from exploration import Outcome, explore


class Listing(Enum):
    """What a store's listing may be. In all of them what is there all the time is told, and what never was is not."""

    MOMENT = "all of one moment"
    PAGES = "each key at a moment of its own, ascending: pages, and reads of a sorted index"
    NAMES_FIRST = "all names of one moment, then each one's size; what is gone by then is left out: MinIO"
    NAMES_AGAIN = "as names first, but where one is gone, the names above it are looked up again: a folder"
    ANY_ORDER = "each key at a moment of its own, in any order: no more than what every store promises"


RULES = {
    "known-before": "a look counts only if all seals in it were known to be seals before it began (else: a seal "
    "counts in the look that shows it)",
    "read-after": "the newest data object of a look has to be there after it, or the look counts for nothing "
    "(else: it is asked no more)",
    "agree": "where the newest data object is not right below the seal, two looks have to show the same one (else: "
    "one does)",
    "from-below": "the owner begins to delete a number when those of earlier batches are gone (else: in any order)",
}
FREE, DATA, SEAL = 0, 1, 2
BATCH = 2
"""How many numbers the owner deletes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`last`: the highest number that the writer sends. `seals`: how many of others arrive, wherever it is free.
    `copies`: late ones of data.
    """

    listing: Listing
    last: int = 3
    in_flight: int = 2
    seals: int = 1
    copies: int = 0
    from_nothing: bool = True
    """Whether the sealer concludes anything from looks that show no data object."""


class Look(NamedTuple):
    """A listing under way: what it has yet to read, what it has read, and which numbers were known to be seals when it
    began.
    """

    left: frozenset[int]
    known: frozenset[int]
    data: frozenset[int] = frozenset()
    seals: frozenset[int] = frozenset()
    named: bool = False


class Sealer(NamedTuple):
    durable_below: int = 0
    known: frozenset[int] = frozenset()
    look: Look | None = None
    # the seal, and the newest data object, that the look before has shown
    confirming: tuple[int, int | None] | None = None
    creating: int | None = None
    said: int | None = None


class State(NamedTuple):
    store: tuple[int, ...]
    sealer: Sealer = Sealer()
    below: tuple[int, ...] = ()  # by number that was sent: the durable_below in its header
    applied: frozenset[int] = frozenset()  # numbers that were ever data
    durable_below: int = 0
    deleting: frozenset[int] = frozenset()
    deleted_below: int = 0
    fenced: bool = False
    seals: int = 0
    copies: int = 0

    def put(self, number: int, kind: int) -> "State":
        return self._replace(store=(*self.store[:number], kind, *self.store[number + 1 :]))

    def newest_durable_below(self) -> int:
        data = [number for number, kind in enumerate(self.store) if kind == DATA]
        return self.below[data[-1]] if data else 0


def writer(s: State, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """What is durable is rolled at once: nothing but the rules holds deletion back."""
    sent = len(s.below)
    if not s.fenced and sent <= bounds.last and sent - s.durable_below < bounds.in_flight:
        yield f"send {sent}", s._replace(below=(*s.below, s.durable_below))
    for number in range(sent):
        if number in s.applied:
            continue
        if s.store[number] == FREE:
            yield f"create {number}", applied(s.put(number, DATA), number)
        elif not s.fenced:
            yield f"fenced at {number}", s._replace(fenced=True)
    if s.fenced:
        return
    limit = min(s.durable_below, s.newest_durable_below())
    if "from-below" not in rules:
        for number in range(limit):
            if s.store[number] == DATA:
                yield f"delete {number}", s.put(number, FREE)._replace(deleted_below=max(s.deleted_below, number + 1))
    elif s.deleting:
        for number in s.deleting:
            then = s.put(number, FREE) if s.store[number] == DATA else s
            yield f"delete {number}", then._replace(deleting=s.deleting - {number})
    elif s.deleted_below < limit:
        batch = frozenset(range(s.deleted_below, min(limit, s.deleted_below + BATCH)))
        yield f"begin to delete {sorted(batch)}", s._replace(deleting=batch, deleted_below=max(batch) + 1)


def applied(s: State, number: int) -> State:
    """The object is in the store; the owner completes in order, unless it was fenced."""
    s = s._replace(applied=s.applied | {number})
    below = s.durable_below
    while below in s.applied and not s.fenced:
        below += 1
    return s._replace(durable_below=below)


def others(s: State, bounds: Bounds) -> Iterator[tuple[str, State]]:
    """Creates that were under way for long: seals of other sealers, and repeated ones of the writer."""
    for number, kind in enumerate(s.store):
        if kind != FREE:
            continue
        if s.seals < bounds.seals:
            yield f"another seals {number}", s.put(number, SEAL)._replace(seals=s.seals + 1)
        if s.copies < bounds.copies and number in s.applied:
            yield f"a copy of {number} arrives", s.put(number, DATA)._replace(copies=s.copies + 1)


def sealer(s: State, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    me = s.sealer

    def put(then: Sealer, state: State = s) -> State:
        return state._replace(sealer=then)

    if me.said is not None:
        return
    if me.creating is not None:
        number = me.creating
        if s.store[number] == FREE:
            yield f"seal {number}", put(me._replace(creating=None, known=me.known | {number}), s.put(number, SEAL))
        else:
            yield f"{number} is taken", put(me._replace(creating=None))
    elif me.look is None:
        yield "begin to look", put(me._replace(look=Look(frozenset(range(me.durable_below, len(s.store))), me.known)))
    elif me.look.left and not (bounds.listing is Listing.MOMENT and me.look.named):
        for what, look in read(s, me.look, bounds.listing):
            yield what, put(me._replace(look=look))
    else:
        what, then = conclude(s, me, me.look, bounds, rules)
        yield what, put(then)


def read(s: State, look: Look, listing: Listing) -> Iterator[tuple[str, Look]]:
    """The listing's next read."""

    def told(look: Look, number: int) -> Look:
        kind = s.store[number]
        left = look.left - {number}
        if kind == DATA:
            return look._replace(left=left, data=look.data | {number})
        return look._replace(left=left, seals=look.seals | {number}) if kind == SEAL else look._replace(left=left)

    if listing is Listing.MOMENT:
        for number in sorted(look.left):
            look = told(look, number)
        yield "look", look
    elif listing is Listing.ANY_ORDER:
        for number in look.left:
            yield f"look at {number}", told(look, number)
    elif listing is not Listing.PAGES and not look.named:
        yield "look at the names", look._replace(named=True, left=frozenset(n for n in look.left if s.store[n] != FREE))
    else:
        number = min(look.left)
        then = told(look, number)
        if listing is Listing.NAMES_AGAIN and s.store[number] == FREE:
            then = then._replace(left=frozenset(n for n in range(number + 1, len(s.store)) if s.store[n] != FREE))
        yield f"look at {number}", then


def conclude(s: State, me: Sealer, look: Look, bounds: Bounds, rules: frozenset[str]) -> tuple[str, Sealer]:
    """Reads the newest data object of the look, and finds the seal or chooses where to put one."""
    newest = max(look.data, default=None)
    me = me._replace(look=None)
    if newest is not None:
        if "read-after" in rules and s.store[newest] != DATA:
            return f"{newest} is gone", me
        me = me._replace(durable_below=max(me.durable_below, s.below[newest]))
    number = me.durable_below
    while number in look.data:
        number += 1
    me = me._replace(known=me.known | look.seals)
    if number not in look.seals:
        return f"wants to seal {number}", me._replace(creating=number, confirming=None)
    if "known-before" in rules and not look.seals <= look.known:
        return f"sees the seals {sorted(look.seals)}", me._replace(confirming=None)
    if "agree" in rules and newest != number - 1 and me.confirming != (number, newest):
        return f"looks whether {newest} stays the newest", me._replace(confirming=(number, newest))
    if newest is None and not bounds.from_nothing:
        return "sees no data", me
    return f"says {number}", me._replace(said=number)


def wrong(s: State) -> str | None:
    end = s.sealer.said
    if end is None:
        return None
    if s.durable_below > end:
        return f"acknowledged {s.durable_below - 1}, sealed at {end}"
    if holes := [number for number in range(end) if number not in s.applied]:
        return f"sealed at {end} above the free {holes}"
    return None


def check(bounds: Bounds, *, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    parts: tuple[Callable[[State], Iterator[tuple[str, State]]], ...] = (
        lambda s: writer(s, bounds, rules),
        lambda s: others(s, bounds),
        lambda s: sealer(s, bounds, rules),
    )

    def steps(s: State) -> Iterator[tuple[str, State]]:
        for part in parts:
            yield from part(s)

    return explore(State(store=(FREE,) * (bounds.last + 2)), steps=steps, wrong=wrong)
