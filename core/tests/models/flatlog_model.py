"""A model of one flat log: writers of several epochs that sleep, whose creates are delayed, repeated and lost, and that
delete what they covered.

A listing may take time (`Bounds.listing`): names of one moment, then what of them is still there at a later one. In
between the newest entry of the first moment may have been covered and deleted, and a listing then shows nothing above a
claim in the deleted past.

Safe: every entry that its writer was told is durable is in the chain of the newest entry, at every moment from then on.
bmq.storage.flatlog follows the rules below; change them together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from exploration import Outcome, explore


class Listing(Enum):
    """What a store's listing may be."""

    MOMENT = "all of one moment"
    NAMES_AGAIN = "names of one moment, then sizes; where one is gone, the names above it are looked up again: a folder"
    NAMES_FIRST = "names of one moment, then sizes; what is gone is left out: MinIO"


RULES = {
    "exact": "an entry is created at exactly one above the one that it was built from (else: above the newest)",
    "list-after-claim": "a claim counts only where a listing shows nothing above it (else: where its create succeeds)",
    "claim-after-unknown": "an entry after a try with an unknown outcome is a claim too (else: an entry as any other)",
    "keep-claims": "claims are never deleted (else: as other entries)",
    "keep-newest": "the newest entry is never deleted (else: as other entries)",
    "claim": "the first entry of an epoch is a claim (else: an entry as any other)",
}
RULES_OF_LISTINGS = {
    "look-again": "where the entry below is a claim too, or another than its base, two listings have to agree "
    "(else: one listing is enough)",
    "from-below": "entries are deleted when those of earlier batches are gone, from below (else: in any order)",
}
BATCH = 2
"""How many entries are deleted at once where that matters."""


class Entry(NamedTuple):
    number: int
    epoch: int
    serial: int  # stands for the nonce, together with the epoch
    predecessor: "tuple[int, int] | None"
    claim: bool

    @property
    def nonce(self) -> tuple[int, int]:
        return self.epoch, self.serial


class Look(NamedTuple):
    """What a writer whose claim was created does to see whether it counts."""

    names: frozenset[int] | None = None  # what the listing under way has told, from the claim's number on
    alone: bool = False  # the listing showed nothing above; the entry below is to be read
    again: bool = False  # this listing is the second


class Writer(NamedTuple):
    epoch: int
    base: Entry | None = None
    claimed: bool = False
    sending: Entry | None = None
    look: Look | None = None  # the create succeeded
    deleting: frozenset[int] = frozenset()
    settled: bool = True
    tries: int = 0
    fenced: bool = False


class State(NamedTuple):
    writers: tuple[Writer, ...]
    store: frozenset[Entry]
    network: frozenset[Entry] = frozenset()
    replies: frozenset[tuple[Entry, bool]] = frozenset()
    ever: frozenset[Entry] = frozenset()
    acknowledged: frozenset[tuple[int, int]] = frozenset()
    lost: int = 0
    turns: int = 0

    def newest(self) -> Entry:
        return max(self.store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many entries each writer tries at most, by its epoch, and how many messages are lost in all."""

    tries: tuple[int, ...] = (2, 2)
    lost: int = 1
    listing: Listing = Listing.MOMENT
    """Where it takes time, deletions do, too."""
    gives_up: bool = True
    """Whether a writer may do without the answer to a create."""
    turns: int = 9
    """How many listings leave out all that they had named above a claim: within each the log made a whole turn."""
    copies: bool = True
    """Whether a create is sent again before there is an answer, and so may land in the deleted past."""


def network(s: State, bounds: Bounds) -> Iterator[tuple[str, State]]:
    by_number = {entry.number: entry for entry in s.store}
    for entry in s.network:
        rest = s.network - {entry}
        name = f"{entry.epoch}'s entry {entry.number}.{entry.serial}"
        if s.lost < bounds.lost:
            yield f"{name} is lost", s._replace(network=rest, lost=s.lost + 1)
        there = by_number.get(entry.number)
        if there is not None:
            yield f"{name} conflicts", s._replace(network=rest, replies=s.replies | {(entry, there == entry)})
            continue
        then = s._replace(network=rest, store=s.store | {entry}, ever=s.ever | {entry})
        yield f"{name} is created", then._replace(replies=s.replies | {(entry, True)})
        if s.lost < bounds.lost:
            yield f"{name} is created, the reply is lost", then._replace(lost=s.lost + 1)


def writer(s: State, i: int, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    me = s.writers[i]

    def put(then: Writer) -> State:
        return s._replace(writers=(*s.writers[:i], then, *s.writers[i + 1 :]))

    if me.fenced:
        return
    if me.deleting:  # goes on whatever else the writer does
        for number in me.deleting:
            then = put(me._replace(deleting=me.deleting - {number}))
            yield (
                f"{me.epoch} deletes {number}",
                then._replace(store=frozenset(e for e in s.store if e.number != number)),
            )
    if me.look is not None:
        yield from looking(s, i, me.look, bounds, rules)
        return
    if me.sending is not None:
        yield from outcomes(s, i, bounds, rules)
        return
    if not me.claimed and me.base != (newest := s.newest()):
        yield (
            f"{me.epoch} reads the newest, {newest.number}",
            put(me._replace(base=newest) if newest.epoch < me.epoch else me._replace(fenced=True)),
        )
    if me.base is not None and me.tries < bounds.tries[i]:
        number = (me.base if "exact" in rules else s.newest()).number + 1
        entry = Entry(number, me.epoch, me.tries, me.base.nonce, is_claim(me, rules))
        then = put(me._replace(sending=entry, tries=me.tries + 1))
        yield f"{me.epoch} sends {number}.{entry.serial}", then._replace(network=s.network | {entry})
    if me.claimed and me.base is not None and bounds.listing is Listing.MOMENT:
        for entry in covered(s, me.base, rules):
            yield f"{me.epoch} deletes {entry.number}", s._replace(store=s.store - {entry})
    elif me.claimed and me.base is not None and not me.deleting:
        numbers = sorted(entry.number for entry in covered(s, me.base, rules))
        for batch in [numbers[:BATCH]] if "from-below" in rules else [[number] for number in numbers]:
            if batch:
                yield f"{me.epoch} begins to delete {batch}", put(me._replace(deleting=frozenset(batch)))


def looking(s: State, i: int, look: Look, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """What follows a claim's create."""
    me = s.writers[i]
    claim = me.sending
    assert claim is not None

    def put(then: Writer) -> State:
        return s._replace(writers=(*s.writers[:i], then, *s.writers[i + 1 :]))

    newest = s.newest()
    beaten_by_it = (
        put(beaten(me, newest))
        if newest.nonce != claim.nonce
        else put(me._replace(sending=None, look=None, settled=False))
    )
    by_number = {entry.number: entry for entry in s.store}
    if bounds.listing is Listing.MOMENT:
        if newest.nonce == claim.nonce:
            yield f"{me.epoch}'s listing shows its entry", acknowledge(s, i)
        else:
            yield f"{me.epoch}'s listing shows {newest.number}", beaten_by_it
    elif look.alone:
        below = by_number.get(claim.number - 1)
        if below is None:
            yield f"{me.epoch} misses its base", beaten_by_it
        elif (below is not None and not below.claim and below.nonce == claim.predecessor) or "look-again" not in rules:
            yield f"{me.epoch} finds its base below", acknowledge(s, i)
        else:
            yield f"{me.epoch} looks again", put(me._replace(look=Look(again=True)))
    elif look.names is None:
        names = frozenset(number for number in by_number if number >= claim.number)
        yield f"{me.epoch}'s listing takes the names {sorted(names)}", put(me._replace(look=look._replace(names=names)))
    elif bounds.listing is Listing.NAMES_AGAIN and (
        gone := [number for number in look.names if number not in by_number]
    ):
        names = frozenset(number for number in look.names if number < min(gone)) | {
            number for number in by_number if number > min(gone)
        }
        yield (
            f"{me.epoch}'s listing takes the names above {min(gone)} again",
            put(me._replace(look=look._replace(names=names))),
        )
    elif shown := [number for number in look.names if number in by_number and number > claim.number]:
        yield f"{me.epoch}'s listing shows {shown}", beaten_by_it
    elif (turns := s.turns + (max(look.names) > claim.number)) > bounds.turns:
        return
    elif look.again:
        yield f"{me.epoch}'s listing shows its entry again", acknowledge(s, i)._replace(turns=turns)
    else:
        yield f"{me.epoch}'s listing shows its entry", put(me._replace(look=Look(alone=True)))._replace(turns=turns)


def is_claim(me: Writer, rules: frozenset[str]) -> bool:
    if not me.claimed:
        return "claim" in rules
    return not me.settled and "claim-after-unknown" in rules


def outcomes(s: State, i: int, bounds: Bounds, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """What its create in flight may tell the writer."""
    me = s.writers[i]
    entry = me.sending
    assert entry is not None

    def put(then: Writer, replies: frozenset[tuple[Entry, bool]] = s.replies) -> State:
        return s._replace(writers=(*s.writers[:i], then, *s.writers[i + 1 :]), replies=replies)

    for own in (True, False):
        if (entry, own) not in s.replies:
            continue
        rest = s.replies - {(entry, own)}
        if not own:
            there = next((e for e in s.store if e.number == entry.number), s.newest())
            yield f"{me.epoch} meets {there.epoch}'s {there.number}", put(beaten(me, there), rest)
        elif entry.claim and "list-after-claim" in rules:
            yield f"{me.epoch} lists from {entry.number}", put(me._replace(look=Look()), rest)
        else:
            yield f"{me.epoch} hears that {entry.number} is durable", acknowledge(s._replace(replies=rest), i)
    if bounds.copies and entry not in s.network:
        yield f"{me.epoch} sends {entry.number}.{entry.serial} again", s._replace(network=s.network | {entry})
    if bounds.gives_up:
        yield f"{me.epoch} gives up on {entry.number}.{entry.serial}", put(me._replace(sending=None, settled=False))


def beaten(me: Writer, there: Entry) -> Writer:
    """What the writer does about another entry in the place of its own."""
    me = me._replace(sending=None, look=None)
    if there.epoch > me.epoch:
        return me._replace(fenced=True)
    if there.epoch < me.epoch:
        return me._replace(base=there, claimed=False)
    return me._replace(base=there, claimed=True)  # an own earlier try


def acknowledge(s: State, i: int) -> State:
    me = s.writers[i]
    assert me.sending is not None
    then = me._replace(sending=None, look=None, base=me.sending, claimed=True, settled=True)
    writers = (*s.writers[:i], then, *s.writers[i + 1 :])
    return s._replace(writers=writers, acknowledged=s.acknowledged | {me.sending.nonce})


def covered(s: State, base: Entry, rules: frozenset[str]) -> Iterator[Entry]:
    """What may be deleted."""
    for entry in s.store:
        is_covered = entry.number < base.number or (entry == base and "keep-newest" not in rules and entry.number > 1)
        if is_covered and not (entry.claim and "keep-claims" in rules):
            yield entry


def wrong(s: State) -> str | None:
    if not s.store:
        return "nothing is left"
    ever = {entry.nonce: entry for entry in s.ever}
    chain = set()
    link: tuple[int, int] | None = s.newest().nonce
    while link is not None and link in ever:
        chain.add(link)
        link = ever[link].predecessor
    if out := s.acknowledged - chain:
        return f"acknowledged and not in the chain: {sorted(out)}"
    return None


def check(bounds: Bounds, *, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule. Epoch 1 has claimed number 1; the others come and claim."""
    rules = frozenset((*RULES, *RULES_OF_LISTINGS)) - {without}
    first = Entry(1, 1, 99, None, True)
    writers = (Writer(1, base=first, claimed=True), *(Writer(epoch) for epoch in range(2, len(bounds.tries) + 1)))
    start = State(writers, store=frozenset({first}), ever=frozenset({first}), acknowledged=frozenset({first.nonce}))

    def steps(s: State) -> Iterator[tuple[str, State]]:
        yield from network(s, bounds)
        for i in range(len(bounds.tries)):
            yield from writer(s, i, bounds, rules)

    return explore(start, steps=steps, wrong=wrong)
