"""A model of one partition that passes from an owner, which does not know that it was replaced, to an heir, and from
the heir to the next.

`a` (epoch 5) has acknowledged offsets 0 to 2, each in a WAL object of its own; its stream is sealed, but `a` still
rolls and deletes. `b` (epoch 6) recovers, appends, rolls, deletes, reports what it covers, and may die at any moment;
then `c` (epoch 7) recovers. The image names the sealed ranges that an heir has to read.

An owner also writes manifest versions that name other objects than the version before (a merge, an expiry, a deletion),
and deletes what the version before named. `a` may have one on its way when its stream is sealed, which comes to stand
after `b` has begun with the version before; `a` does not know that it was replaced, and `b`, who has nothing to write,
does not know of the version. Here each version names one object of its own and no other. (`MANIFESTS`: with that alone,
`STREAMS`: with the rest alone.)

Safe: every acknowledged offset is in the newest manifest's segments or in a WAL object, and an owner that serves has it
in segments or in memory, and every object that the version which it has in force names. The manifest is the flat log of
flatlog_model.py, the streams those of stream_model.py.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

EPOCHS = {"a": 5, "b": 6, "c": 7}
RULES = {
    "exact": "a manifest version is created at exactly one above the one that it was built from (else: above the "
    "newest)",
    "reload": "a WAL object that is missing sends the reader back to the manifest (else: it takes what is there)",
    "pin": "from its first conflict on a broker deletes nothing (else: it forgets the partition, and what that "
    "pinned goes)",
    "keep": "a predecessor's range leaves the image when the manifest covers it (else: when the heir has read it)",
    "stands": "what a version names no more is given up when it is known to stand (else: when it is sent)",
    "look": "what was given up is deleted after a look that the own stream is not sealed (else: without)",
    "look-after": "a look counts for what was given up before it (else: for what is given up later, too)",
}


class Bounds(NamedTuple):
    """Offsets that `a` has acknowledged, those that are in the end, and versions written that name other objects."""

    a_end: int
    end: int
    merges: int


STREAMS = Bounds(a_end=3, end=5, merges=0)
MANIFESTS = Bounds(a_end=0, end=0, merges=4)


class Sent(NamedTuple):
    number: int
    stands: bool = False


class Owner(NamedTuple):
    phase: str  # idle, reading, serving, dead
    version: int = 0  # of the manifest that it builds on
    covered: int = 0  # offsets below it are in segments, by that version
    memory: frozenset[int] = frozenset()
    to_read: tuple[int, ...] = ()
    claimed: bool = False
    fenced: bool = False
    sent: Sent | None = None  # the version of which it has yet to hear
    given_up: frozenset[int] = frozenset()  # objects, by the version that names them
    looked: frozenset[int] = frozenset()  # those of them that it may delete
    has_looked: bool = False


class Version(NamedTuple):
    epoch: int
    covered: int
    segments: frozenset[int]


class State(NamedTuple):
    manifest: tuple[Version, ...]
    wal_a: frozenset[int]
    wal_b: frozenset[int]
    ranges: frozenset[str]  # predecessors whose streams the image names
    end: int  # offsets below it are acknowledged
    a: Owner
    b: Owner
    c: Owner
    is_sealed: bool = True  # a's stream
    gone: frozenset[int] = frozenset()  # objects, by the version that names them
    merges: int = 0

    def owner(self, name: str) -> Owner:
        return {"a": self.a, "b": self.b, "c": self.c}[name]

    def put(self, name: str, owner: Owner) -> "State":
        match name:
            case "a":
                return self._replace(a=owner)
            case "b":
                return self._replace(b=owner)
            case _:
                return self._replace(c=owner)


def roll(s: State, name: str, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    owner = s.owner(name)
    unrolled = sorted(offset for offset in owner.memory if offset >= owner.covered)
    if owner.fenced or not unrolled:
        return
    newest = len(s.manifest) - 1
    base = owner.version if "exact" in rules else newest
    if base < newest:
        there = s.manifest[base + 1]
        if there.epoch > EPOCHS[name]:
            yield f"{name} is fenced by version {base + 1}", s.put(name, owner._replace(fenced=True))
        else:
            memory = frozenset(offset for offset in owner.memory if offset >= there.covered)
            yield (
                f"{name} finds version {base + 1} there",
                s.put(name, owner._replace(version=base + 1, covered=there.covered, memory=memory)),
            )
        return
    for last in unrolled:
        rolled = frozenset(offset for offset in unrolled if offset <= last)
        version = Version(EPOCHS[name], last + 1, s.manifest[owner.version].segments | rolled)
        then = owner._replace(version=base + 1, covered=last + 1, memory=owner.memory - rolled, claimed=True)
        yield f"{name} rolls to {last + 1}", s.put(name, then)._replace(manifest=(*s.manifest, version))


def merge(s: State, name: str, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    """Versions that name other objects: sent, standing or beaten, heard of; and what goes with the version before."""
    owner = s.owner(name)
    if owner.phase == "dead" or owner.fenced:
        return
    sent = owner.sent
    if sent is None:
        if s.merges < bounds.merges and owner.phase == "serving":
            given_up = owner.given_up if "stands" in rules else owner.given_up | {owner.version}
            then = owner._replace(sent=Sent(owner.version + 1), given_up=given_up)
            yield f"{name} sends version {owner.version + 1}", s.put(name, then)._replace(merges=s.merges + 1)
    elif sent.stands:
        yield f"{name} hears that version {sent.number} stands", s.put(name, in_force(owner, sent.number))
    elif len(s.manifest) == sent.number:
        version = s.manifest[-1]._replace(epoch=EPOCHS[name])
        then = s.put(name, owner._replace(sent=sent._replace(stands=True)))
        yield f"version {sent.number} of {name} stands", then._replace(manifest=(*s.manifest, version))
    elif s.manifest[sent.number].epoch > EPOCHS[name]:
        yield f"{name} is fenced by version {sent.number}", s.put(name, owner._replace(fenced=True))
    else:
        yield f"{name} finds version {sent.number} there", s.put(name, in_force(owner, sent.number))
    yield from collect(s, name, rules)


def in_force(owner: Owner, number: int) -> Owner:
    """It serves with the version from now on, and gives up what the one before named."""
    return owner._replace(sent=None, version=number, given_up=owner.given_up | {number - 1})


def collect(s: State, name: str, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    owner = s.owner(name)
    may_look = owner.given_up != owner.looked if "look-after" in rules else not owner.has_looked
    if "look" in rules and may_look and owner.phase == "serving":
        if name == "a" and s.is_sealed:
            yield "a finds its stream sealed", s.put(name, owner._replace(fenced=True))
        else:
            yield f"{name} looks at its stream", s.put(name, owner._replace(looked=owner.given_up, has_looked=True))
    may_go = (
        owner.looked
        if {"look", "look-after"} <= rules
        else owner.given_up
        if owner.has_looked or "look" not in rules
        else frozenset[int]()
    )
    for number in may_go - s.gone:
        yield f"{name} deletes what version {number} named", s._replace(gone=s.gone | {number})


def deletable(owner: Owner, objects: frozenset[int], rules: frozenset[str]) -> Iterator[int]:
    if owner.fenced:
        yield from objects if "pin" not in rules else ()
    elif owner.claimed:
        yield from (offset for offset in objects if offset < owner.covered)


def recover(s: State, name: str, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    owner = s.owner(name)
    if owner.phase == "idle":
        version = len(s.manifest) - 1
        covered = s.manifest[version].covered
        offsets = {"a": range(bounds.a_end), "b": range(bounds.a_end, s.end)}
        to_read = tuple(offset for stream in sorted(s.ranges) for offset in offsets[stream] if offset >= covered)
        then = owner._replace(phase="reading", version=version, covered=covered, memory=frozenset(), to_read=to_read)
        yield f"{name} reads version {version}", s.put(name, then)
    elif owner.phase == "reading" and owner.to_read:
        offset, *rest = owner.to_read
        if offset in s.wal_a | s.wal_b:
            yield (
                f"{name} reads {offset}",
                s.put(name, owner._replace(to_read=tuple(rest), memory=owner.memory | {offset})),
            )
        elif "reload" in rules:
            yield f"{name} misses {offset}", s.put(name, owner._replace(phase="idle"))
        else:
            yield f"{name} passes over {offset}", s.put(name, owner._replace(to_read=tuple(rest)))
    elif owner.phase == "reading":
        ranges = s.ranges if "keep" in rules or name == "c" else s.ranges - {"a"}
        yield f"{name} serves", s.put(name, owner._replace(phase="serving"))._replace(ranges=ranges)
    elif owner.phase == "serving":
        yield from roll(s, name, rules)


def serve(s: State, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    """What `b` does beside rolling."""
    b = s.b
    if b.phase == "serving":
        if s.end < bounds.end and not b.fenced:
            then = s.put("b", b._replace(memory=b.memory | {s.end}))
            yield f"b acknowledges {s.end}", then._replace(wal_b=s.wal_b | {s.end}, end=s.end + 1)
        if b.claimed and b.covered >= bounds.a_end and "a" in s.ranges:
            yield "b reports", s._replace(ranges=s.ranges - {"a"})
        for offset in deletable(b, s.wal_b, rules):
            yield f"b deletes {offset}", s._replace(wal_b=s.wal_b - {offset})
    yield (
        "b dies and is sealed",
        s.put("b", b._replace(phase="dead"))._replace(ranges=s.ranges | {"b"}, c=s.c._replace(phase="idle")),
    )


def steps(s: State, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    yield from roll(s, "a", rules)
    for name in EPOCHS:
        yield from merge(s, name, rules, bounds)
    for offset in deletable(s.a, s.wal_a, rules):
        yield f"a deletes {offset}", s._replace(wal_a=s.wal_a - {offset})
    if not s.is_sealed:
        yield "a's stream is sealed", s._replace(is_sealed=True)
        return
    if s.b.phase != "dead":
        yield from recover(s, "b", rules, bounds)
        yield from serve(s, rules, bounds)
    else:
        yield from recover(s, "c", rules, bounds)
    if "a" not in s.ranges and s.wal_a:
        yield "a's stream is dropped", s._replace(wal_a=frozenset())


def wrong(s: State) -> str | None:
    acknowledged = frozenset(range(s.end))
    if nowhere := acknowledged - s.manifest[-1].segments - s.wal_a - s.wal_b:
        return f"acknowledged and nowhere: {sorted(nowhere)}"
    if len(s.manifest) - 1 in s.gone:
        return f"what the newest version, {len(s.manifest) - 1}, names is gone"
    for name in ("b", "c"):
        owner = s.owner(name)
        if owner.phase == "serving" and not owner.fenced and owner.version in s.gone:
            return f"{name} serves with version {owner.version}, whose objects are gone"
        if owner.phase == "serving" and not owner.fenced:
            segments = s.manifest[owner.version].segments if owner.version < len(s.manifest) else frozenset[int]()
            if missing := acknowledged - segments - owner.memory:
                return f"{name} serves without {sorted(missing)}"
    return None


def check(bounds: Bounds, *, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    everything = frozenset(range(bounds.a_end))
    start = State(
        manifest=(Version(5, 0, frozenset()),),
        wal_a=everything,
        wal_b=frozenset(),
        ranges=frozenset("a"),
        end=bounds.a_end,
        a=Owner("serving", memory=everything, claimed=True),
        b=Owner("idle"),
        c=Owner("dead"),
        is_sealed=not bounds.merges,
    )
    return explore(start, steps=lambda s: steps(s, rules, bounds), wrong=wrong)
