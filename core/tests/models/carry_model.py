"""A model of one partition whose owner carries its tail forward: writes it once more into newer WAL objects, and lets
the older ones go.

A copy is of a part of the tail, from its start on; once it is durable the next part's copy may follow. What an object
holds may so be carried in two parts, or in part never.

`a` (epoch 5) appends, carries, rolls and deletes; its creates land in any order, early or late, and one day its stream
is sealed, which it learns only when it meets the seal. `b` (epoch 6) reads that stream object by object, beside it; it
serves, carries what it inherited into its own stream, and tells when the old stream is needed no more. It may die at
any moment, between two copies, too; then `c` reads what is left.

Safe: each acknowledged offset is in a segment or in an object below the seal of a stream that an heir would read;
whoever serves has all of them, and none twice. Rolls are atomic here: manifests are flatlog_model.py's, seals
stream_model.py's.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

NOT_SEALED = -1
INHERITED = -1
END = {"a": 2, "b": 2}
RULES = {
    "durable": "what a copy replaces stays until the copy is durable (else: until it is sent)",
    "order": "a copy is durable when all objects before it are (else: when its own create has succeeded)",
    "part": "a copy replaces what it is a copy of, and nothing below that (else: all up to its end)",
    "rest": "an object stays while anything in it is in no durable copy (else: until a copy of some of it is durable)",
    "once": "of batches with one offset an heir takes one (else: all that it finds)",
    "range": "a predecessor's range leaves the image when copies of what it held are durable (else: when they are "
    "sent)",
    "all": "and of all that it held (else: of the first of it)",
    "owner": "a copy is named under its writer's leader epoch (else: under that of its batches, as the originals are)",
}


class Stream(NamedTuple):
    sent: tuple[frozenset[int], ...] = ()  # offsets by number
    landed: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()
    seal: int = NOT_SEALED

    def counts(self, number: int) -> bool:
        return number in self.landed and (self.seal == NOT_SEALED or number < self.seal)


class Owner(NamedTuple):
    phase: str  # idle, reading, serving, dead
    needs: frozenset[tuple[int, int]] = frozenset()  # (offset, number of the object that holds it)
    inherited_below: int = 0
    completed: int = 0  # own objects below it are durable
    copy: int = -1  # the object on its way with copies
    carried_below: int = 0  # where the next copy begins
    fenced: bool = False
    at: int = -1  # the object to be read next

    def durable(self) -> frozenset[int]:
        return frozenset(offset for offset, number in self.needs if number < self.completed)


class State(NamedTuple):
    a: Owner
    b: Owner
    wal_a: Stream = Stream()
    wal_b: Stream = Stream()
    covered: int = 0  # offsets below it are in segments
    claimed: bool = False  # b has rolled
    acknowledged: int = 0
    ranges: frozenset[str] = frozenset("a")
    problem: str = ""

    def put(self, name: str, owner: Owner, wal: Stream) -> "State":
        return self._replace(a=owner, wal_a=wal) if name == "a" else self._replace(b=owner, wal_b=wal)


def write(s: State, name: str, me: Owner, wal: Stream, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    following = max((offset + 1 for offset, _ in me.needs), default=max(s.covered, me.inherited_below))
    if not me.fenced and me.phase == "serving" and following < END[name]:
        for end in range(following + 1, END[name] + 1):
            offsets = frozenset(range(following, end))
            then = me._replace(needs=me.needs | {(offset, len(wal.sent)) for offset in offsets})
            yield (
                f"{name} sends {sorted(offsets)} in {len(wal.sent)}",
                s.put(name, then, wal._replace(sent=(*wal.sent, offsets))),
            )
    if not me.fenced and me.phase == "serving" and me.copy < 0:
        for part in parts(me.durable(), me.carried_below):
            then = me._replace(copy=len(wal.sent), carried_below=max(part) + 1)
            if "durable" not in rules:
                then = moved(then, part, rules)
            yield (
                f"{name} carries {sorted(part)} in {len(wal.sent)}",
                s.put(name, then, wal._replace(sent=(*wal.sent, part))),
            )
    for number in range(len(wal.sent)):
        if number == wal.seal:
            if not me.fenced:
                yield f"{name} meets the seal", s.put(name, me._replace(fenced=True), wal)
        elif number not in wal.landed | wal.deleted and number < me.completed + 2:
            then = me
            if "order" not in rules and number == me.copy:
                then = moved(me, wal.sent[number], rules)
            yield f"{name}'s {number} lands", s.put(name, then, wal._replace(landed=wal.landed | {number}))


def parts(tail: frozenset[int], first: int) -> Iterator[frozenset[int]]:
    """What the next copy may hold: each part of the tail that begins where the last one ended."""
    left = sorted(offset for offset in tail if offset >= first)
    for count in range(1, len(left) + 1):
        yield frozenset(left[:count])


def moved(me: Owner, offsets: frozenset[int], rules: frozenset[str]) -> Owner:
    """The copy is needed now instead of what it was made from; not of what was rolled meanwhile."""
    if "part" not in rules:
        offsets = frozenset(range(max(offsets) + 1))
    if "rest" not in rules:
        opened = {number for offset, number in me.needs if offset in offsets}
        offsets |= {offset for offset, number in me.needs if number in opened and number != INHERITED}
    return me._replace(
        needs=frozenset((offset, me.copy if offset in offsets else number) for offset, number in me.needs)
    )


def complete(s: State, name: str, me: Owner, wal: Stream, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    number = me.completed
    if not me.fenced and number in wal.landed:
        then = me._replace(completed=number + 1)
        if number == me.copy:
            then = moved(then, wal.sent[number], rules)._replace(copy=-1)
            acknowledged = s.acknowledged
        else:
            acknowledged = max(s.acknowledged, *(offset + 1 for offset in wal.sent[number]))
        yield f"{name} completes {number}", s.put(name, then, wal)._replace(acknowledged=acknowledged)
    if me.fenced:
        return
    oldest = min((number for _, number in me.needs if number >= 0), default=me.completed)
    for number in range(min(oldest, me.completed)):
        if number not in wal.deleted:
            yield (
                f"{name} deletes {number}",
                s.put(name, me, wal._replace(landed=wal.landed - {number}, deleted=wal.deleted | {number})),
            )
            break
    tail = me.durable()
    if tail and me.phase == "serving" and (name == "b" or not s.claimed):
        then = me._replace(needs=frozenset(each for each in me.needs if each[0] not in tail))
        yield (
            f"{name} rolls",
            s.put(name, then, wal)._replace(covered=max(s.covered, max(tail) + 1), claimed=s.claimed or name == "b"),
        )


def inherit(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """What `b` does about a's stream."""
    b, wal = s.b, s.wal_a
    if wal.seal == NOT_SEALED:
        free = next(number for number in range(len(wal.sent) + 1) if number not in wal.landed | wal.deleted)
        yield (
            f"a is sealed at {free}",
            s._replace(wal_a=wal._replace(seal=free), b=b._replace(phase="reading", at=first(wal))),
        )
    elif b.phase == "reading" and b.at < wal.seal:
        if b.at in wal.landed:
            found = wal.sent[b.at]
            problem = s.problem
            if "once" not in rules and found & b.durable():
                problem = f"b takes {sorted(found & b.durable())} twice"
            then = b._replace(at=b.at + 1, needs=b.needs | {(offset, INHERITED) for offset in found})
            yield f"b reads {b.at}", s._replace(b=then, problem=problem)
        else:
            yield f"b misses {b.at}", s._replace(b=b._replace(at=first(wal)))
    elif b.phase == "reading":
        needs = frozenset(each for each in b.needs if each[0] >= s.covered)
        below = max((offset + 1 for offset, _ in needs), default=s.covered)
        yield "b serves", s._replace(b=b._replace(phase="serving", needs=needs, inherited_below=below))
    elif b.phase == "serving" and "a" in s.ranges and not b.fenced:
        left = {offset for offset, number in b.needs if number == INHERITED and offset >= s.covered}
        if b.copy >= 0 and "range" not in rules:
            left -= s.wal_b.sent[b.copy]
        if "all" not in rules:
            left &= {min((offset for offset, _ in b.needs if offset >= s.covered), default=-1)}
        if not left:
            yield "a's stream is dropped", s._replace(ranges=frozenset(), wal_a=wal._replace(landed=frozenset()))


def first(wal: Stream) -> int:
    """Where reading begins: above whatever was deleted."""
    return max((number + 1 for number in wal.deleted), default=0)


def steps(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    yield from write(s, "a", s.a, s.wal_a, rules)
    yield from complete(s, "a", s.a, s.wal_a, rules)
    yield from inherit(s, rules)
    yield from write(s, "b", s.b, s.wal_b, rules)
    yield from complete(s, "b", s.b, s.wal_b, rules)
    if s.b.phase in ("reading", "serving") and s.wal_b.seal == NOT_SEALED:
        wal = s.wal_b
        free = next(number for number in range(len(wal.sent) + 1) if number not in wal.landed | wal.deleted)
        problem = s.problem
        if missing := set(range(s.covered, s.acknowledged)) - read_by_c(s, free, rules):
            problem = f"c serves without {sorted(missing)}"
        yield f"b is sealed at {free}, c reads", s._replace(wal_b=wal._replace(seal=free), problem=problem)


def read_by_c(s: State, seal: int, rules: frozenset[str]) -> set[int]:
    found = {offset for number in s.wal_b.landed if number < seal for offset in s.wal_b.sent[number]}
    if "owner" not in rules:  # c asks b's stream for what b wrote under its own epoch
        found = {offset for offset in found if offset >= s.b.inherited_below}
    if "a" in s.ranges:
        found |= {offset for number in s.wal_a.landed if number < s.wal_a.seal for offset in s.wal_a.sent[number]}
    return found


def wrong(s: State) -> str | None:
    if s.problem:
        return s.problem
    kept = {offset for number in s.wal_b.landed if s.wal_b.counts(number) for offset in s.wal_b.sent[number]}
    if "a" in s.ranges:
        kept |= {offset for number in s.wal_a.landed if s.wal_a.counts(number) for offset in s.wal_a.sent[number]}
    if nowhere := set(range(s.covered, s.acknowledged)) - kept:
        return f"acknowledged and nowhere: {sorted(nowhere)}"
    if s.b.phase == "serving" and s.wal_b.seal == NOT_SEALED and not s.b.fenced:
        known = {offset for offset, _ in s.b.needs}
        if missing := set(range(s.covered, s.acknowledged)) - known:
            return f"b serves without {sorted(missing)}"
    return None


def check(*, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    start = State(a=Owner("serving"), b=Owner("idle"))
    return explore(start, steps=lambda s: steps(s, rules), wrong=wrong)
