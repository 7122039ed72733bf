"""A model of one partition that moves by plan between two brokers that live on, each with a stream of its own.

The controller begins a move (or takes it back, which leads it to the owner itself); the owner learns of it some time,
takes no more batches, and says up to where its stream holds any. That report may arrive late, and again. The heir reads
the range; the owner of the moment rolls, and tells when its manifest covers what it inherited; both delete of their
streams what they think nobody needs. Every node's image is behind.

An owner also writes manifest versions that name other objects than the version before (a merge, an expiry). One that is
on its way when the partition leaves may come to stand after the heir has begun with the version before it, and its
writer hears of that later still; the heir learns of it when it writes a version itself. Here each version names one
object of its own and no other.

Somebody else looks whether the partition has done with objects that others' partitions name, too: by the newest
version, and by who owns the partition, as an image says that may be behind.

Safe: each acknowledged offset is in a segment or in a WAL object that is named or its owner's, whoever serves has all
of them and every object that the version which it has in force names, and no offset is given twice. Manifests are
otherwise as in flatlog_model.py, deaths and seals as in takeover_model.py.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

RULES = {
    "flush": "a partition is closed when everything buffered is durable (else: when the move is heard of)",
    "once": "a closed partition is not opened again under the same leader epoch (else: when no move is named any more)",
    "epoch": "a report counts for the leader epoch under which the partition was closed (else: for any move of its "
    "owner)",
    "pin": "what the range names stays until the image names it no more (else: until the image names the heir)",
    "released": "what a version names no more goes if the partition is still its writer's and appending when that "
    "is known to stand (else: if it was when it was sent)",
    "looked": "who looks has an image with every owner that there was when the newest version was read (else: one "
    "that may be behind)",
    "finds out": "an owner without an answer finds out what became of its version before what others look for goes "
    "(else: when it writes again)",
}


class Bounds(NamedTuple):
    """How many offsets are appended, moves begun, and manifest versions written after the first."""

    appends: int
    moves: int
    versions: int


STREAMS = Bounds(appends=2, moves=3, versions=0)
MANIFESTS = Bounds(appends=0, moves=3, versions=1)


class Range(NamedTuple):
    node: str
    epoch: int
    end: int


class Meta(NamedTuple):
    owner: str
    epoch: int
    to: str = ""
    ranges: frozenset[Range] = frozenset()


class Report(NamedTuple):
    node: str
    epoch: int
    end: int


class WalObject(NamedTuple):
    number: int
    epoch: int
    offset: int


class Version(NamedTuple):
    number: int
    epoch: int
    stands: bool = False


class Node(NamedTuple):
    at: int = 0  # how much of the image's history it has heard
    epoch: int = 0  # under which it serves; 0: it does not
    closing: bool = False
    closed: frozenset[int] = frozenset()  # epochs
    buffered: tuple[int, ...] = ()  # offsets
    next_offset: int = 0
    inherited_below: int = 0
    number: int = 0
    wal: frozenset[WalObject] = frozenset()
    pins: frozenset[tuple[int, int]] = frozenset()  # (epoch, number) of what it has handed over
    in_force: int = 0  # the manifest version that it serves with
    sent: Version | None = None  # the one of which it has yet to hear


class State(NamedTuple):
    history: tuple[Meta, ...]
    covered: int  # offsets below it are in segments
    acknowledged: int
    reports: frozenset[Report]
    a: Node
    b: Node
    newest: Version = Version(1, 0, stands=True)  # of the manifest
    gone: frozenset[int] = frozenset()  # objects, by the version that names them
    problem: str = ""

    def node(self, name: str) -> Node:
        return self.a if name == "a" else self.b

    def put(self, name: str, node: Node) -> "State":
        return self._replace(a=node) if name == "a" else self._replace(b=node)

    def commit(self, meta: Meta) -> "State":
        return self._replace(history=(*self.history, meta))


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def control(s: State, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    meta = s.history[-1]
    begun = sum(1 for was, then in zip(s.history, s.history[1:], strict=False) if then.to and then.to != was.to)
    if begun < bounds.moves and not meta.to:
        yield "a move begins", s.commit(meta._replace(to=other(meta.owner)))
    if begun < bounds.moves and meta.to == other(meta.owner):
        yield "the move is taken back", s.commit(meta._replace(to=meta.owner if "once" in rules else ""))
    for report in s.reports:
        if meta.to and report.node == meta.owner and (report.epoch == meta.epoch or "epoch" not in rules):
            ranges = meta.ranges | {Range(report.node, meta.epoch, report.end)}
            yield f"{report} arrives", s.commit(Meta(meta.to, meta.epoch + 1, "", ranges))


def hear(s: State, name: str, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    node = s.node(name)
    if node.at + 1 == len(s.history):
        return
    meta = s.history[node.at + 1]
    node = node._replace(at=node.at + 1)
    if meta.owner == name and meta.to and node.epoch == meta.epoch:
        node = node._replace(closing=True)
    elif (
        meta.owner == name
        and not meta.to
        and node.epoch == 0
        and (meta.epoch not in node.closed or "once" not in rules)
    ):
        adopted = adopt(s, name, node, meta)
        yield f"{name} adopts under {meta.epoch}", adopted
        return
    elif meta.owner == name and meta.to and node.epoch == 0 and meta.epoch not in node.closed:
        # It never opened it: nothing of this epoch is in its stream.
        report = Report(name, meta.epoch, 0)
        yield (
            f"{name} hands on",
            s.put(name, node._replace(closed=node.closed | {meta.epoch}))._replace(reports=s.reports | {report}),
        )
        return
    yield f"{name} hears of {meta}", s.put(name, unpinned(node, meta, name, rules))


def adopt(s: State, name: str, node: Node, meta: Meta) -> State:
    read = {
        each.offset
        for found in meta.ranges
        for each in s.node(found.node).wal
        if each.epoch == found.epoch and each.number < found.end and each.offset >= s.covered
    }
    if meta.epoch in node.closed:  # again, which the rules forbid: from its own stream, and its own memory
        read |= {each.offset for each in node.wal if each.offset >= s.covered}
    following = s.covered
    while following in read:
        following += 1
    problem = (
        f"{name} reads a hole: {sorted(read)} above {s.covered}"
        if any(offset > following for offset in read)
        else s.problem
    )
    node = node._replace(
        epoch=meta.epoch, closing=False, next_offset=following, inherited_below=following, in_force=s.newest.number
    )
    return s.put(name, node)._replace(problem=problem)


def unpinned(node: Node, meta: Meta, name: str, rules: frozenset[str]) -> Node:
    if "pin" in rules:
        named = {found.epoch for found in meta.ranges if found.node == name}
        kept = frozenset(pin for pin in node.pins if pin[0] >= meta.epoch or pin[0] in named)
    else:
        kept = node.pins if meta.owner == name else frozenset()
    return node._replace(pins=kept)


def serve(s: State, name: str, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    node = s.node(name)
    if not node.epoch:
        return
    if not node.closing and s.acknowledged + len(node.buffered) < bounds.appends:
        then = node._replace(buffered=(*node.buffered, node.next_offset), next_offset=node.next_offset + 1)
        yield f"{name} appends {node.next_offset}", s.put(name, then)
    if not node.closing and s.covered < node.next_offset - len(node.buffered):
        yield f"{name} rolls", s._replace(covered=node.next_offset - len(node.buffered))
    meta = s.history[-1]
    if (meta.owner, meta.epoch) == (name, node.epoch) and meta.ranges and s.covered >= node.inherited_below:
        yield f"{name} reports what is covered", s.commit(meta._replace(ranges=frozenset()))
    if node.closing and (not node.buffered or "flush" not in rules):
        left = {each for each in node.wal if each.epoch == node.epoch and each.offset >= s.covered}
        pins = node.pins | {(each.epoch, each.number) for each in left}
        end = max((each.number + 1 for each in left), default=0)
        then = node._replace(
            epoch=0, closing=False, closed=node.closed | {node.epoch}, pins=pins, next_offset=0, inherited_below=0
        )
        yield f"{name} closes at {end}", s.put(name, then)._replace(reports=s.reports | {Report(name, node.epoch, end)})


def write(s: State, name: str) -> Iterator[tuple[str, State]]:
    node = s.node(name)
    if node.buffered:
        offset = node.buffered[0]
        epoch = node.epoch or max(node.closed)
        then = node._replace(
            buffered=node.buffered[1:], wal=node.wal | {WalObject(node.number, epoch, offset)}, number=node.number + 1
        )
        problem = f"{name} gives offset {offset} again" if offset < s.acknowledged else s.problem
        yield (
            f"{name} acknowledges {offset}",
            s.put(name, then)._replace(acknowledged=max(s.acknowledged, offset + 1), problem=problem),
        )
    for each in node.wal:
        if (each.epoch, each.number) not in node.pins and (each.offset < s.covered or each.epoch != node.epoch):
            yield f"{name} deletes {each.number}", s.put(name, node._replace(wal=node.wal - {each}))


def version(s: State, name: str, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    """One manifest version at a time: sent, standing or beaten, heard of."""
    node = s.node(name)
    sent = node.sent
    if sent is None:
        if node.epoch and not node.closing and node.in_force <= bounds.versions:
            following = Version(node.in_force + 1, node.epoch)
            yield f"{name} sends version {following.number}", s.put(name, node._replace(sent=following))
        return
    serves = node.epoch == sent.epoch and not node.closing
    if sent.stands:
        then = s.put(
            name, node._replace(sent=None, in_force=sent.number if node.epoch == sent.epoch else node.in_force)
        )
        if serves or "released" not in rules:
            then = then._replace(gone=s.gone | {sent.number - 1})
        yield f"{name} hears that version {sent.number} stands", then
    elif s.newest.number < sent.number:
        stands = sent._replace(stands=True)
        yield f"version {sent.number} of {name} stands", s.put(name, node._replace(sent=stands))._replace(newest=stands)
    elif serves and s.newest.epoch < sent.epoch:
        # Another's stands there: it comes into force, as an own one would.
        then = s.put(name, node._replace(sent=None, in_force=s.newest.number))
        yield f"{name} takes version {s.newest.number} into force", then._replace(gone=s.gone | {node.in_force})
    else:
        yield f"version {sent.number} of {name} is beaten", s.put(name, node._replace(sent=None))


def look(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """The owner that is looked for wrote the newest version, or a later one: so nobody serves with the one before."""
    gone = s.gone | set(range(1, s.newest.number))
    unheard = any(node.sent is not None and node.sent.stands and node.epoch == node.sent.epoch for node in (s.a, s.b))
    if gone == s.gone or (unheard and "finds out" in rules):
        return
    images = s.history[-1:] if "looked" in rules else s.history
    if any(s.newest.epoch >= meta.epoch for meta in images):
        yield f"what version {s.newest.number} does not name is done with", s._replace(gone=gone)


def steps(s: State, rules: frozenset[str], bounds: Bounds) -> Iterator[tuple[str, State]]:
    yield from control(s, rules, bounds)
    for name in ("a", "b"):
        yield from hear(s, name, rules)
        yield from serve(s, name, rules, bounds)
        yield from write(s, name)
        yield from version(s, name, rules, bounds)
    yield from look(s, rules)


def wrong(s: State) -> str | None:
    if s.problem:
        return s.problem
    kept = {each.offset for node in (s.a, s.b) for each in node.wal}
    if nowhere := set(range(s.covered, s.acknowledged)) - kept:
        return f"acknowledged and nowhere: {sorted(nowhere)}"
    for name in ("a", "b"):
        node = s.node(name)
        if node.epoch and node.next_offset - len(node.buffered) < s.acknowledged:
            return f"{name} serves up to {node.next_offset} and knows not all of {s.acknowledged} that are acknowledged"
        if node.epoch and node.in_force in s.gone:
            return f"{name} serves with version {node.in_force}, whose objects are gone"
    return None


def check(bounds: Bounds, *, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    start = State(
        history=(Meta("a", 1),), covered=0, acknowledged=0, reports=frozenset(), a=Node(epoch=1, in_force=1), b=Node()
    )
    return explore(start, steps=lambda s: steps(s, rules, bounds), wrong=wrong)
