"""A model of one partition of a lane whose messages go on to the base where nobody in the lane consumes them.

The controllers' log says whose turn it is: `base` from an offset on, `closing` (the lane has a consumer again, and the
base is asked how far it got), `lane` from an offset on, and so on; the number of the turn is its generation. Whoever
likes to (any proxy, many at a time, however old what they know) hands records on: they are appended to the base's
partition in the order of their offsets, as those of an idempotent producer whose epoch is the generation and whose
sequence is the distance from where the turn began, so that it makes no difference who does, or how often.

A proxy lets the lane's consumers read under a lease, and the broker where their group lives has them commit under one:
it told the leading controller that somebody consumes, and was told whose turn it is. The leader gives the turn to the
base when nobody was there for longer than a lease, from the offset that the lane's consumers have committed: a worker
collects that and proposes it.

Safe: no record is in the base twice, none is handled in the lane (committed) that is in the base, and each is handled,
in the base, or still to be had by whose turn it is.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

END = 3
TURNS_MAX = 6
RULES = {
    "lease": "the leader takes who has a lease for present for longer than that serves by it (else: it may go on)",
    "told": "who has one serves by the turn that it was told with it (else: by the one that it heard of last)",
    "wait": "a new leader gives no turn to the base before old leases are over (else: it knows of nobody)",
    "since": "a proposal is refused where somebody was there while its offset was collected, or since (else: taken)",
    "coordinator": "offsets are collected from who still is the group's coordinator (else: from a former one, too)",
    "begin": "who reads in the lane begins where its turn did (else: where its group had committed)",
    "commit": "a commit is taken under a lease of the group's coordinator (else: at any time)",
    "within": "a commit of what lies before the turn is refused (else: taken as any)",
    "closing": "the lane's turn begins where the base says that it got (else: where a worker believes it)",
    "fence": "the base's owner says so when it knows of the closing (else: at any time)",
    "durable": "and when all that it took is durable (else: at once)",
    "generation": "an owner takes nothing of another turn than the one that it knows of (else: of any)",
    "sequence": "nor anything but the next one (else: whatever comes)",
}


class Turn(NamedTuple):
    whose: str  # base, closing, lane
    begin: int


class State(NamedTuple):
    end: int = 0  # offsets below it are in the lane's log
    turns: tuple[Turn, ...] = (Turn("base", 0),)
    # the base's partition
    log: tuple[tuple[int, int], ...] = ()  # (generation, the lane's offset)
    durable: int = 0
    known: int = 0  # the generation that its owner knows of
    said: int = -1  # how far it said that it got
    # the leading controller, and who proposes to it
    present: bool = False
    may_decide: bool = True
    proposed: int = -1
    is_stale: bool = False
    # a proxy of the lane, and the coordinator of the group of those that it serves
    lease: bool = False
    turn: int = 0  # that it serves by
    fetched: int = -1
    commits: bool = False  # whether the coordinator has a lease
    commit_turn: int = 0
    committed: int = 0
    former: int = -1  # what a former coordinator, which knows of no other, takes for committed
    handled: frozenset[int] = frozenset()

    @property
    def now(self) -> Turn:
        return self.turns[-1]

    @property
    def generation(self) -> int:
        return len(self.turns) - 1

    def got(self, generation: int) -> int:
        """The offset that the base's partition takes next in this turn of its."""
        return self.turns[generation].begin + sum(of == generation for of, _ in self.log)

    @property
    def is_leased(self) -> bool:
        return self.lease or self.commits

    def begins(self, whose: str, begin: int) -> "State":
        return self._replace(turns=(*self.turns, Turn(whose, begin)), proposed=-1)


def controller(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if s.present and not (s.is_leased and "lease" in rules):
        yield "the leader takes everybody for gone", s._replace(present=False)
    if s.may_decide:
        yield "another one leads", s._replace(present=False, may_decide=False, is_stale=s.proposed >= 0)
    elif not (s.is_leased and "wait" in rules):
        yield "it has waited", s._replace(may_decide=True)
    if s.now.whose == "lane":
        for collected in {s.committed, s.former} if s.former >= 0 and "coordinator" not in rules else {s.committed}:
            yield (
                f"{collected} is collected",
                s._replace(proposed=collected, is_stale=s.present or not s.may_decide),
            )
        is_refused = s.is_stale and "since" in rules
        if s.proposed >= 0 and not s.present and s.may_decide and not is_refused and s.generation < TURNS_MAX:
            begin = max(s.now.begin, s.proposed)
            yield f"the base's turn from {begin} on", s.begins("base", begin)
    if s.now.whose == "closing" and s.said >= 0:
        yield f"the lane's turn from {s.said} on", s.begins("lane", s.said)._replace(said=-1)


def holders(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    """The proxy and the group's coordinator, each with a lease of its own."""
    here = s._replace(present=True, is_stale=s.proposed >= 0)
    match s.now.whose:
        case "lane":
            yield "somebody consumes", here._replace(lease=True, turn=s.generation)
            yield "somebody commits", here._replace(commits=True, commit_turn=s.generation)
            yield "somebody consumes, and the answer is lost", here
            if "told" not in rules:
                for heard in range(min(s.turn, s.commit_turn), s.generation):
                    if s.turns[heard].whose == "lane":
                        yield f"somebody consumes, {heard} is what is known", here._replace(lease=True, turn=heard)
                        yield f"somebody commits, {heard} is known", here._replace(commits=True, commit_turn=heard)
        case "base" if s.generation < TURNS_MAX:
            if "closing" in rules:
                yield "somebody consumes: closing", here.begins("closing", 0)
            else:
                for believed in range(s.now.begin, s.got(s.generation) + 1):
                    yield f"somebody consumes, from {believed} on", here.begins("lane", believed)
        case "closing":
            yield "somebody consumes", here
    if s.lease:
        yield "the proxy's lease is over", s._replace(lease=False)
        turn = s.turns[s.turn]
        at = max(s.committed, turn.begin) if "begin" in rules else s.committed
        if at < s.end:
            yield f"{at} is fetched", s._replace(fetched=at)
    if s.commits:
        yield "the coordinator's lease is over", s._replace(commits=False)
    if s.former < 0:
        yield "another coordinator", s._replace(commits=False, former=s.committed)
    if s.fetched >= 0 and (s.commits or "commit" not in rules):
        if s.fetched >= s.turns[s.commit_turn].begin or "within" not in rules or "begin" not in rules:
            then = s._replace(committed=max(s.committed, s.fetched + 1), handled=s.handled | {s.fetched}, fetched=-1)
            yield f"{s.fetched} is committed", then
        else:
            yield f"the commit of {s.fetched} is refused", s._replace(fetched=-1)


def base(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    for generation, turn in enumerate(s.turns[: s.known + 1]):
        if turn.whose != "base" or (generation != s.known and "generation" in rules):
            continue
        following = s.got(generation)
        for offset in range(turn.begin, s.end):
            if offset == following or ("sequence" not in rules and len(s.log) <= END):
                yield f"the base takes {offset} of {generation}", s._replace(log=(*s.log, (generation, offset)))
    if s.durable < len(s.log):
        yield "it is durable", s._replace(durable=s.durable + 1)
    if s.known < s.generation:
        yield f"the base's owner hears of {s.known + 1}", s._replace(known=s.known + 1)
    for kept in range(s.durable, len(s.log) + 1):
        then = s._replace(log=s.log[:kept], durable=kept, known=s.generation)
        if then != s:
            yield f"the base's owner dies, its heir has {kept}", then
    if s.now.whose == "closing" and s.said < 0:
        knows = s.known == s.generation or "fence" not in rules
        if knows and (s.durable == len(s.log) or "durable" not in rules):
            got = s.got(s.generation - 1)
            yield f"the base got to {got}", s._replace(said=got)


def steps(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if s.end < END:
        yield f"{s.end} is written in the lane", s._replace(end=s.end + 1)
    yield from controller(s, rules)
    yield from holders(s, rules)
    yield from base(s, rules)


def in_base(s: State) -> frozenset[int]:
    return frozenset(offset for _, offset in s.log)


def wrong(s: State) -> str | None:
    there = in_base(s)
    if len(there) < len(s.log):
        return "in the base twice"
    if both := there & s.handled:
        return f"handled in the lane, and in the base: {sorted(both)}"
    match s.now:
        case Turn("lane", begin):
            left = begin
        case Turn("base", _):
            left = s.got(s.generation)
        case _:
            left = s.said if s.said >= 0 else s.got(s.generation - 1)
    if nowhere := set(range(min(left, s.end))) - there - s.handled:
        return f"nobody's: {sorted(nowhere)}"
    return None


def check(*, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    return explore(State(), steps=lambda s: steps(s, rules), wrong=wrong)
