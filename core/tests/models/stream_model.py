"""A model of one WAL stream: its writer with several creates in flight and its own deletions, a network that delays,
repeats and loses, and controllers that seal the stream and read it. The second controller acts because the first died
before it said what it found.

Safe: once a controller has read, every number that the writer ever acknowledges, before or after, is below the
checkpoint or was read; nothing is read above a hole; all controllers read the same; a writer that finds its stream not
sealed is right. bmq.storage.stream and stream_seal follow the rules below; change them together.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exploration import Outcome, explore

SEAL = -1
SEALS_ABOVE = 3
"""A bound of the model alone: no sealer goes further above the writer's last number."""
RULES = {
    "durable-below": "the search for a free number starts at the newest data object's durable_below (else: at the "
    "lowest object)",
    "lowest-free": "the seal goes to the first free number (else: above the highest object)",
    "list-again": "after its create the sealer lists again, and only what a listing shows is the seal (else: a "
    "create that succeeds)",
    "adopt": "the lowest seal at or above durable_below is the seal, whoever made it (else: a sealer's own, if it "
    "is not below)",
    "no-hole": "a seal counts only where no number between durable_below and it is free (else: a free one may "
    "still be taken)",
    "one-look": "which numbers are seals is what the listing shows (else: what is there when each is read after it)",
    "in-order": "objects complete in order (else: as their creates do)",
    "delete-durable": "deletion stops at the newest object's durable_below, and so before that object (else: at "
    "the checkpoint)",
    "fenced-stops": "after a conflict nothing completes (else: what is in flight still does)",
    "look-at-all": "who asks whether the stream is sealed looks at each number that may be the seal's (else: at "
    "the next one alone)",
}
SIMPLER = {
    "seal the first free number from the lowest object on": ("durable-below",),
    "seal above the highest object": ("lowest-free", "no-hole"),
    "seal by one create after one listing": ("list-again",),
    "each sealer makes a seal of its own": ("adopt", "no-hole"),
    "adopt a seal above a hole": ("no-hole",),
    "read after the listing which numbers are seals": ("one-look",),
    "complete out of order": ("in-order",),
    "delete up to the checkpoint": ("delete-durable",),
    "complete what is in flight after a conflict": ("fenced-stops",),
    "look for a seal at the next number, whatever is in flight": ("look-at-all",),
}
"""Protocols that look simpler, as the rules that they do without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`last`: the highest number that the writer sends. `ahead`: how many seals a sealer sends at once. `asks`: whether
    the writer asks, once.
    """

    in_flight: int = 2
    last: int = 2
    sealers: int = 2
    ahead: int = 1
    resends: int = 1
    asks: bool = False


class Look(NamedTuple):
    """The writer asks whether its stream was sealed."""

    sealed: bool  # whether a sealer knew so when it was asked
    numbers: frozenset[int]  # still to be looked at
    found: bool = False  # something stands at one of them: no answer


class Sealer(NamedTuple):
    creating: tuple[int, ...] = ()
    own: int | None = None  # a seal that it made
    # without the rule one-look: durable_below and the numbers taken, before they are read
    listed: tuple[int, frozenset[int]] | None = None
    seal: int | None = None
    read: tuple[int, frozenset[int]] | None = None  # the checkpoint then, and the numbers found


class State(NamedTuple):
    sealers: tuple[Sealer, ...]
    store: frozenset[tuple[int, int]] = frozenset()  # (number, durable_below), or (number, SEAL)
    network: tuple[tuple[int, int], ...] = ()  # creates on their way
    replies: frozenset[tuple[int, bool]] = frozenset()  # (number, whether the object there is the writer's own)
    next: int = 0
    pending: frozenset[tuple[int, int]] = frozenset()  # creates without an outcome
    durable: frozenset[int] = frozenset()
    acknowledged: frozenset[int] = frozenset()
    durable_below: int = 0
    checkpoint: int = 0
    fenced: bool = False
    resends: int = 0
    look: Look | None = None

    def data(self) -> dict[int, int]:
        return {number: below for number, below in self.store if below != SEAL}

    def newest_durable_below(self) -> int:
        data = self.data()
        return data[max(data)] if data else 0


def writer(s: State, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if s.fenced:
        return
    if s.next <= bounds.last and len(s.pending) < bounds.in_flight:
        create = (s.next, s.durable_below)
        yield (
            f"send {s.next}",
            s._replace(next=s.next + 1, pending=s.pending | {create}, network=tuple(sorted((*s.network, create)))),
        )
    if s.resends < bounds.resends:
        for create in s.pending:
            yield (
                f"send {create[0]} again",
                s._replace(resends=s.resends + 1, network=tuple(sorted((*s.network, create)))),
            )
    # takeover_model.py explores rolls after that
    if s.checkpoint < s.durable_below and all(x.read is None for x in s.sealers):
        yield "roll", s._replace(checkpoint=s.durable_below)
    data = s.data()
    limit = min(s.checkpoint, s.newest_durable_below()) if "delete-durable" in rules else s.checkpoint
    for number, below in data.items():
        if number < limit:
            yield f"delete {number}", s._replace(store=s.store - {(number, below)})
    if s.look is None and bounds.asks:
        numbers = (
            frozenset(range(s.durable_below, s.next + 1)) - s.durable if "look-at-all" in rules else frozenset({s.next})
        )
        yield "ask", s._replace(look=Look(any(x.seal is not None for x in s.sealers), numbers))
    if s.look is not None and not s.look.found:
        for number in s.look.numbers:
            found = number in {n for n, _ in s.store}
            yield f"look at {number}", s._replace(look=s.look._replace(numbers=s.look.numbers - {number}, found=found))


def network(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    taken = {number for number, _ in s.store}
    for i, (number, below) in enumerate(s.network):
        rest = s.network[:i] + s.network[i + 1 :]
        yield f"lose {number}", s._replace(network=rest)
        if number in taken:
            yield (
                f"{number} conflicts",
                s._replace(network=rest, replies=s.replies | {(number, (number, below) in s.store)}),
            )
        else:
            store = s.store | {(number, below)}
            yield f"create {number}", s._replace(network=rest, store=store, replies=s.replies | {(number, True)})
            yield f"create {number}, lose the reply", s._replace(network=rest, store=store)
    for number, own in s.replies:
        left = s.replies - {(number, own)}
        if (s.fenced and "fenced-stops" in rules) or number not in {n for n, _ in s.pending}:
            yield f"late reply {number}", s._replace(replies=left)
        elif not own:
            yield f"fenced at {number}", s._replace(replies=left, fenced=True)
        else:
            yield f"durable {number}", complete(s._replace(replies=left), number, rules)


def complete(s: State, number: int, rules: frozenset[str]) -> State:
    durable, below = s.durable | {number}, s.durable_below
    while below in durable:
        below += 1
    acknowledged = frozenset(range(below)) if "in-order" in rules else s.acknowledged | {number}
    if s.fenced:  # without the rule fenced-stops: whatever is durable is acknowledged
        acknowledged = s.acknowledged | {number}
    pending = frozenset(create for create in s.pending if create[0] != number)
    return s._replace(pending=pending, durable=durable, durable_below=below, acknowledged=acknowledged)


def sealer(s: State, i: int, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    me = s.sealers[i]

    def put(then: Sealer, store: frozenset[tuple[int, int]] = s.store) -> State:
        return s._replace(store=store, sealers=(*s.sealers[:i], then, *s.sealers[i + 1 :]))

    if me.read is not None:
        return
    if me.seal is not None:
        found = frozenset(n for n in range(s.checkpoint, me.seal) if n in s.data())
        yield f"{i} reads {sorted(found)}", put(me._replace(read=(s.checkpoint, found)))
    elif me.creating:
        taken = {number for number, _ in s.store}
        for number in me.creating:
            left = tuple(n for n in me.creating if n != number)
            if number in taken:
                yield f"{i} conflicts at {number}", put(me._replace(creating=left))
            elif "list-again" in rules:
                yield f"{i} seals {number}", put(me._replace(creating=left, own=number), s.store | {(number, SEAL)})
            else:
                yield f"{i} seals {number}", put(me._replace(creating=(), seal=number), s.store | {(number, SEAL)})
    elif "one-look" not in rules and me.listed is None:
        yield (
            f"{i} lists",
            put(me._replace(listed=(s.newest_durable_below(), frozenset(number for number, _ in s.store)))),
        )
    else:
        yield look(s, i, put, bounds, rules)


def look(s: State, i: int, put: Callable[[Sealer], State], bounds: Bounds, rules: frozenset[str]) -> tuple[str, State]:
    """The sealer lists, and either finds the seal or chooses where to put one."""
    me = s.sealers[i]
    taken = frozenset(number for number, _ in s.store)
    start = s.newest_durable_below() if "durable-below" in rules else min(taken, default=0)
    if me.listed is not None:
        start, taken = me.listed
        me = me._replace(listed=None)
    seals = sorted(number for number, below in s.store if below == SEAL and number >= start and number in taken)
    if "no-hole" in rules:
        seals = [number for number in seals if taken.issuperset(range(start, number))]
    if "adopt" not in rules:
        seals = [number for number in seals if number == me.own]
    if seals:
        return f"{i} finds the seal {seals[0]}", put(me._replace(seal=seals[0]))
    choice = start if "lowest-free" in rules else max(taken, default=-1) + 1
    creating: list[int] = []
    while len(creating) < bounds.ahead and choice <= bounds.last + SEALS_ABOVE:
        if choice not in taken:
            creating.append(choice)
        choice += 1
    return f"{i} wants to seal {creating}", put(me._replace(creating=tuple(creating)))


def wrong(s: State) -> str | None:
    reads = [x.read for x in s.sealers if x.read is not None]
    for checkpoint, found in reads:
        if lost := [n for n in s.acknowledged if n >= checkpoint and n not in found]:
            return f"acknowledged and lost {lost}"
        if any(n not in found for n in range(checkpoint, max(found, default=-1))):
            return f"read {sorted(found)}, above a hole"
    if len({frozenset(range(checkpoint)) | found for checkpoint, found in reads}) > 1:
        return "two controllers read differently"
    if s.look is not None and s.look.sealed and not s.look.numbers and not s.look.found:
        return "found not sealed, though it was when that was asked"
    return None


def check(bounds: Bounds, *, without: Iterable[str] = ()) -> Outcome:
    """The protocol, or what is left of it without some rules."""
    rules = frozenset(RULES).difference(without)

    def steps(s: State) -> Iterator[tuple[str, State]]:
        yield from writer(s, bounds, rules)
        yield from network(s, rules)
        for i in range(bounds.sealers):
            yield from sealer(s, i, bounds, rules)

    return explore(State(sealers=(Sealer(),) * bounds.sealers), steps=steps, wrong=wrong)
