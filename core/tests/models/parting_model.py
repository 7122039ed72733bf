"""A model of one producer's batches to one partition of a topic whose messages name the lane that they are for: a proxy
parts each batch, and the base's part and the lane's are logs of different owners.

The client numbers its batches and has some under way at a time, over one connection or several at once, each to a proxy
of its own. What was refused, or was sent over a connection that it gave up, it sends again, the oldest first, while
what came over the old one still goes on. A proxy asks the base's owner whether a batch is the next one, has the lane's
owner take its part, then the base's. Messages may arrive late, or after who sent them gave them up; the base's owner
may die with what is not durable yet. Each batch here has something for the lane: the hardest case, as the lane's owner
cannot know that of others.

Safe: what the client was told is written is in both logs, and what it was told each time is refused in neither; nothing
is in the lane's twice, or behind what its producer sent later; and whatever is missing there can still come, as nothing
behind it is there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

BATCHES = 3
UNDER_WAY = 2
CONNECTIONS = 2
SENDS_MAX = 4
DEATHS_MAX = 1
REMEMBERED = 2  # how many of a producer's newest batches the lane's owner knows: all that can be under way
RULES = {
    "asked": "a part goes to the lane once the base's owner said that its batch is the next one (else: as it comes)",
    "last": "the base's part goes once the lane has its own (else: as soon as it may)",
    "durable": "the client is answered once the base's part is durable (else: once its owner has it)",
    "ahead": "a batch of which the base's owner has not what precedes it is refused for now (else: for good)",
    "begins": "of a producer that the base's owner does not know its first batch begins (else: any)",
    "behind": "the lane's owner takes nothing that is numbered below what it has (else: as new)",
    "twice": "and knows the newest by their numbers (else: as new)",
}


OVER = ("written", "refused", "wrong")


class Sent(NamedTuple):
    """A batch that came over a connection."""

    batch: int
    over: int
    stage: str = "new"  # parted: the lane's part is under way; laned: is durable; based: the base's owner has its own
    # written: that is durable; refused: for now; wrong: for good
    is_waited_for: bool = True  # by the client


class State(NamedTuple):
    first: int = -1  # the batch that the base begins with
    base: int = 0  # the one behind the last that the base's owner has
    durable: int = 0  # and behind the last that is durable
    lane: tuple[int, ...] = ()
    sent: tuple[Sent, ...] = ()  # in no order
    sends: int = 0
    under_way: frozenset[int] = frozenset()  # lane's parts, of whichever connection, that may arrive
    acknowledged: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()  # batches of which something may be there that was given up
    given_up: frozenset[int] = frozenset()  # refused for good
    has_ended: bool = False  # the client began anew, with another epoch
    deaths: int = 0

    def at(self, number: int, **changes: object) -> "State":
        """With the `number`th of what was sent changed; what is over and waited for by nobody is forgotten."""
        sent = self.sent[number]._replace(**changes)  # type: ignore[arg-type]
        return self.of(*self.sent[:number], sent, *self.sent[number + 1 :])

    def of(self, *sent: Sent) -> "State":
        """With that under way."""
        left = [one for one in sent if one.is_waited_for or one.stage not in OVER]
        turned = [one._replace(over=CONNECTIONS - 1 - one.over) for one in left]  # connections are alike
        return self._replace(sent=min(tuple(sorted(left)), tuple(sorted(turned))))

    def judged(self, batch: int, rules: frozenset[str]) -> str:
        """What the base's owner says to a batch: next, copy or wrong; or refused, for now."""
        if self.first < 0:
            return "next" if batch == 0 or "begins" not in rules else "refused"
        if self.first <= batch < self.base:
            return "copy"
        if batch > self.base and "ahead" in rules:
            return "refused"
        return "next" if batch == self.base else "wrong"


def client(s: State) -> Iterator[tuple[str, State]]:
    if s.has_ended:
        return
    waiting = {one.batch for one in s.sent if one.is_waited_for}
    following = min(set(range(BATCHES)) - s.acknowledged - waiting, default=BATCHES)
    oldest = min(set(range(BATCHES)) - s.acknowledged, default=BATCHES)
    if following < min(BATCHES, oldest + UNDER_WAY) and s.sends < SENDS_MAX:
        for over in range(CONNECTIONS):
            then = s.of(*s.sent, Sent(following, over))
            yield f"{following} is sent over {over}", then._replace(sends=s.sends + 1)
    for number, one in enumerate(s.sent):
        if not one.is_waited_for:
            continue
        then = s.at(number, is_waited_for=False)
        if one.stage == "written":
            yield f"{one.batch} is acknowledged", then._replace(acknowledged=s.acknowledged | {one.batch})
        if one.stage == "refused" or (one.stage == "wrong" and one.batch > oldest):
            yield f"{one.batch} is refused", then
        if one.stage == "wrong" and one.batch == oldest and waiting == {oldest}:
            refused = s.given_up | ({one.batch} - s.unknown)
            yield f"{one.batch} is refused for good", then._replace(given_up=refused, has_ended=True)
    for over in range(CONNECTIONS):
        if any(one.is_waited_for and one.over == over for one in s.sent):
            sent = (one._replace(is_waited_for=one.is_waited_for and one.over != over) for one in s.sent)
            lost = s.unknown | {one.batch for one in s.sent if one.is_waited_for and one.over == over}
            yield f"connection {over} is given up", s.of(*sent)._replace(unknown=lost)


def proxy(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    for number, (batch, _, stage, _) in enumerate(s.sent):
        if stage == "new":
            said = s.judged(batch, rules)
            if said == "next" or "asked" not in rules:
                then = s.at(number, stage="parted")
                yield f"{batch} goes to the lane", then._replace(under_way=s.under_way | {batch})
            elif said == "copy":
                yield f"the base has {batch}", s.at(number, stage="based")
            else:
                yield f"{batch} is not the next one", s.at(number, stage=said)
        if stage == "parted":
            then = s.at(number, stage="refused")
            yield f"the lane refuses {batch}, or is too late", then._replace(unknown=s.unknown | {batch})
        if stage == "laned" or (stage == "parted" and "last" not in rules):
            said = s.judged(batch, rules)
            if said == "next":
                then = s.at(number, stage="based")
                first = batch if s.first < 0 else s.first
                yield f"the base takes {batch}", then._replace(first=first, base=batch + 1)
            elif said == "copy":
                yield f"the base has {batch}", s.at(number, stage="based")
            else:
                yield f"the base wants another one than {batch}", s.at(number, stage=said)
            yield f"the base refuses {batch}", s.at(number, stage="refused")
        if stage == "based" and s.first <= batch < (s.durable if "durable" in rules else s.base):
            yield f"{batch} is written", s.at(number, stage="written")


def base(s: State) -> Iterator[tuple[str, State]]:
    if s.durable < s.base:
        yield "what the base has is durable", s._replace(durable=s.base)
    if s.deaths < DEATHS_MAX and s.durable < s.base:
        first = s.first if s.first < s.durable else -1
        lost = s._replace(first=first, base=s.durable, deaths=s.deaths + 1)
        yield "the base's owner dies", lost


def lane(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    for batch in s.under_way:
        newest = s.lane[-REMEMBERED:] if "twice" in rules else ()
        if batch in newest:
            then = s
        elif s.lane and batch < s.lane[-1] and "behind" in rules:
            for number, one in enumerate(s.sent):
                if one.batch == batch and one.stage == "parted":
                    yield f"the lane refuses {batch} for good", s.at(number, stage="new")
            continue
        elif len(s.lane) > BATCHES:
            continue
        else:
            then = s._replace(lane=(*s.lane, batch))
        yield f"the lane has {batch}", then
        for number, one in enumerate(s.sent):
            if one.batch == batch and one.stage == "parted":
                yield f"the lane has {batch}, and says so", then.at(number, stage="laned")


def steps(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    yield from client(s)
    yield from proxy(s, rules)
    yield from base(s)
    yield from lane(s, rules)


def wrong(s: State) -> str | None:
    if len(set(s.lane)) < len(s.lane):
        return f"twice in the lane: {s.lane}"
    if list(s.lane) != list(range(len(s.lane))):
        return f"overtaken in the lane: {s.lane}"
    if any(batch not in s.lane or not s.first <= batch < s.base for batch in s.acknowledged):
        return f"acknowledged and not there: {sorted(s.acknowledged)}"
    if any(batch not in s.lane for batch in range(max(s.first, 0), s.durable)):
        return f"in the base and not in the lane {s.lane}: {s.first} to {s.durable}"
    if any(batch in s.lane or 0 <= s.first <= batch < s.base for batch in s.given_up):
        return f"refused for good and there: {sorted(s.given_up)}"
    return None


def check(*, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    return explore(State(), steps=lambda s: steps(s, rules), wrong=wrong, states_max=6_000_000)
