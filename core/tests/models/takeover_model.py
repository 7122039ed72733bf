"""A model of one partition that passes from an owner, which does not know that it was replaced, to an heir, and from the heir to the next.

`a` (epoch 5) has acknowledged offsets 0 to 2, each in a WAL object of its own; its stream is sealed, but `a` still rolls and deletes. `b`
(epoch 6) recovers, appends, rolls, deletes, reports what it covers, and may die at any moment; then `c` (epoch 7) recovers. The image names
the sealed ranges that an heir has to read.

Safe: every acknowledged offset is in the newest manifest's segments or in a WAL object, and an owner that serves has it in segments or in
memory. The manifest is the flat log of flatlog_model.py, the streams those of stream_model.py.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

A_END = 3
END = 5
EPOCHS = {"a": 5, "b": 6, "c": 7}
RULES = {
    "exact": "a manifest version is created at exactly one above the one that it was built from (else: above the newest)",
    "reload": "a WAL object that is missing sends the reader back to the manifest (else: it takes what is there)",
    "pin": "from its first conflict on a broker deletes nothing (else: it forgets the partition, and what that pinned goes)",
    "keep": "a predecessor's range leaves the image when the manifest covers it (else: when the heir has read it)",
}


class Owner(NamedTuple):
    phase: str  # idle, reading, serving, dead
    version: int = 0  # of the manifest that it builds on
    covered: int = 0  # offsets below it are in segments, by that version
    memory: frozenset[int] = frozenset()
    to_read: tuple[int, ...] = ()
    claimed: bool = False
    fenced: bool = False


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
            yield f"{name} finds version {base + 1} there", s.put(name, owner._replace(version=base + 1, covered=there.covered, memory=memory))
        return
    for last in unrolled:
        rolled = frozenset(offset for offset in unrolled if offset <= last)
        version = Version(EPOCHS[name], last + 1, s.manifest[owner.version].segments | rolled)
        then = owner._replace(version=base + 1, covered=last + 1, memory=owner.memory - rolled, claimed=True)
        yield f"{name} rolls to {last + 1}", s.put(name, then)._replace(manifest=(*s.manifest, version))


def deletable(owner: Owner, objects: frozenset[int], rules: frozenset[str]) -> Iterator[int]:
    if owner.fenced:
        yield from objects if "pin" not in rules else ()
    elif owner.claimed:
        yield from (offset for offset in objects if offset < owner.covered)


def recover(s: State, name: str, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    owner = s.owner(name)
    if owner.phase == "idle":
        version = len(s.manifest) - 1
        covered = s.manifest[version].covered
        offsets = {"a": range(A_END), "b": range(A_END, s.end)}
        to_read = tuple(offset for stream in sorted(s.ranges) for offset in offsets[stream] if offset >= covered)
        then = owner._replace(phase="reading", version=version, covered=covered, memory=frozenset(), to_read=to_read)
        yield f"{name} reads version {version}", s.put(name, then)
    elif owner.phase == "reading" and owner.to_read:
        offset, *rest = owner.to_read
        if offset in s.wal_a | s.wal_b:
            yield f"{name} reads {offset}", s.put(name, owner._replace(to_read=tuple(rest), memory=owner.memory | {offset}))
        elif "reload" in rules:
            yield f"{name} misses {offset}", s.put(name, owner._replace(phase="idle"))
        else:
            yield f"{name} passes over {offset}", s.put(name, owner._replace(to_read=tuple(rest)))
    elif owner.phase == "reading":
        ranges = s.ranges if "keep" in rules or name == "c" else s.ranges - {"a"}
        yield f"{name} serves", s.put(name, owner._replace(phase="serving"))._replace(ranges=ranges)
    elif owner.phase == "serving":
        yield from roll(s, name, rules)


def serve(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """What `b` does beside rolling."""
    b = s.b
    if b.phase == "serving":
        if s.end < END and not b.fenced:
            then = s.put("b", b._replace(memory=b.memory | {s.end}))
            yield f"b acknowledges {s.end}", then._replace(wal_b=s.wal_b | {s.end}, end=s.end + 1)
        if b.claimed and b.covered >= A_END and "a" in s.ranges:
            yield "b reports", s._replace(ranges=s.ranges - {"a"})
        for offset in deletable(b, s.wal_b, rules):
            yield f"b deletes {offset}", s._replace(wal_b=s.wal_b - {offset})
    yield "b dies and is sealed", s.put("b", b._replace(phase="dead"))._replace(ranges=s.ranges | {"b"}, c=s.c._replace(phase="idle"))


def steps(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    yield from roll(s, "a", rules)
    for offset in deletable(s.a, s.wal_a, rules):
        yield f"a deletes {offset}", s._replace(wal_a=s.wal_a - {offset})
    if s.b.phase != "dead":
        yield from recover(s, "b", rules)
        yield from serve(s, rules)
    else:
        yield from recover(s, "c", rules)
    if "a" not in s.ranges and s.wal_a:
        yield "a's stream is dropped", s._replace(wal_a=frozenset())


def wrong(s: State) -> str | None:
    acknowledged = frozenset(range(s.end))
    if nowhere := acknowledged - s.manifest[-1].segments - s.wal_a - s.wal_b:
        return f"acknowledged and nowhere: {sorted(nowhere)}"
    for name in ("b", "c"):
        owner = s.owner(name)
        if owner.phase == "serving" and not owner.fenced:
            segments = s.manifest[owner.version].segments if owner.version < len(s.manifest) else frozenset[int]()
            if missing := acknowledged - segments - owner.memory:
                return f"{name} serves without {sorted(missing)}"
    return None


def check(*, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    everything = frozenset(range(A_END))
    start = State(
        manifest=(Version(5, 0, frozenset()),),
        wal_a=everything,
        wal_b=frozenset(),
        ranges=frozenset("a"),
        end=A_END,
        a=Owner("serving", memory=everything, claimed=True),
        b=Owner("idle"),
        c=Owner("dead"),
    )
    return explore(start, steps=lambda s: steps(s, rules), wrong=wrong)
