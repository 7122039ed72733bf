"""A model of one partition whose newest manifest versions somebody else deletes, and of what its heir concludes from
what is left.

`a` acknowledges records (they are in the WAL then), rolls them into segments of its own or shared ones, commits
versions that name those, lets go of the WAL, and tells the metadata which versions there are. It may merge its first
segments into one, which a version names instead, and deletes them then. It may sleep and go on when it is replaced
already, which it learns late. `b` inherits: it reads the WAL, then the newest version, then lists segments beyond its
end, while `a` goes on rolling what is durable. Once `a` is dead, versions may be lost. Where `b` serves after that, it
deletes what the manifest does not name.

Safe: `b` never gives an offset again that was acknowledged, where a version was told of that is gone, or a segment of
the partition's own is left that only lost versions named. It never deletes the only copy of an acknowledged record. And
it never refuses to open while nothing is lost.
"""

from collections.abc import Iterator
from typing import NamedTuple

from exploration import Outcome, explore

RECORDS = 3
MERGED = 2
"""So many of the first records' segments are merged."""
RULES = {
    "known": "an heir opens from no version below the one that the metadata knows of (else: from the newest there is)",
    "beyond": "segments of an earlier owner beyond the end that the heir found stop it (else: they are garbage)",
    "stands": "a version is told of when it is known to stand (else: when it is sent)",
    "durable": "what begins in the WAL is no loss: a segment may be there before a version names it (else: what "
    "the manifest does not have is lost)",
    "whole": "nothing is deleted that the manifest does not name, while something is missing that it does (else: "
    "the only copy goes)",
    "raised": "a report that comes late does not lower what is known (else: the last one counts)",
}


class State(NamedTuple):
    acknowledged: int = 0
    wal: frozenset[int] = frozenset()
    own: frozenset[int] = frozenset()  # offsets in segments of the partition's own
    written: int = 0  # below it everything is in segments
    versions: tuple[int, ...] = ()  # their ends, by number - 1
    lost_from: int = 0  # versions from this number on are gone; 0: none
    sent: bool = False  # a version with end `written` is on its way
    stands: int = 0  # versions that a knows to stand
    reports: frozenset[int] = frozenset()
    told: int = 0
    ever_told: int = 0
    merged_by: int = 0  # the version that names the first MERGED offsets in one segment; 0: there is no such segment
    merged_gone: bool = False  # that segment is deleted
    originals_gone: bool = False  # what it was made from is deleted
    dead: bool = False
    b: str = "waits"  # waits, wal, manifest, serves, refuses
    b_wal: frozenset[int] = frozenset()
    b_end: int = 0
    b_knew: int = 0  # the newest version that the metadata had ever been told of when b opened

    def there(self) -> tuple[int, ...]:
        return self.versions[: self.lost_from - 1] if self.lost_from else self.versions

    def begins(self) -> frozenset[int]:
        """Where the partition's own segments begin."""
        left = self.own - frozenset(range(MERGED)) if self.originals_gone else self.own
        return left | {0} if self.merged_by and not self.merged_gone else left


def owner(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if s.dead:
        return
    if s.acknowledged < RECORDS and s.b == "waits":
        yield (
            f"a acknowledges {s.acknowledged}",
            s._replace(acknowledged=s.acknowledged + 1, wal=s.wal | {s.acknowledged}),
        )
    if s.written < s.acknowledged and not s.sent:
        rolled = s._replace(written=s.written + 1)
        yield f"a writes {s.written} into a segment of its own", rolled._replace(own=s.own | {s.written})
        yield f"a writes {s.written} into a shared segment", rolled
    end = s.versions[-1] if s.versions else 0
    if s.written > end and not s.sent:
        told = s.reports if "stands" in rules else s.reports | {len(s.versions) + 1}
        yield f"a sends version {len(s.versions) + 1}", s._replace(sent=True, reports=told)
    if (
        s.own >= frozenset(range(MERGED))
        and end == s.written
        and not s.wal
        and s.stands == len(s.versions)
        and not s.sent
        and not s.merged_by
    ):
        told = s.reports if "stands" in rules else s.reports | {len(s.versions) + 1}
        yield (
            f"a merges, and sends version {len(s.versions) + 1}",
            s._replace(sent=True, merged_by=len(s.versions) + 1, reports=told),
        )
    if s.merged_by and s.stands >= s.merged_by and not s.originals_gone:
        yield "a deletes what it merged", s._replace(originals_gone=True)
    if s.stands:
        yield f"a tells of version {s.stands}", s._replace(reports=s.reports | {s.stands})
    for offset in s.wal:
        if s.stands and offset < s.versions[s.stands - 1]:
            yield f"a deletes {offset} from the WAL", s._replace(wal=s.wal - {offset})
    if s.sent and len(s.versions) > s.stands:
        yield f"a hears that version {s.stands + 1} stands", s._replace(sent=False, stands=s.stands + 1)
    yield "a dies", s._replace(dead=True)


def world(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if s.sent and len(s.versions) == s.stands and not s.lost_from:
        yield f"version {len(s.versions) + 1} stands", s._replace(versions=(*s.versions, s.written))
    for number in s.reports:
        if number > s.told or "raised" not in rules:
            yield f"the metadata knows of version {number}", s._replace(told=number, ever_told=max(number, s.ever_told))
    if s.dead and not s.lost_from and s.b == "waits":
        for first in range(1, len(s.versions) + 1):
            yield f"somebody deletes versions from {first} on", s._replace(lost_from=first)


def heir(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    if s.b == "waits":
        yield "b reads the WAL", s._replace(b="wal", b_wal=s.wal)
    elif s.b == "wal":
        there = s.there()
        if "known" in rules and len(there) < s.told:
            yield "b misses what was told", s._replace(b="refuses")
        else:
            end = there[-1] if there else 0
            while "durable" in rules and end in s.b_wal:
                end += 1
            yield f"b finds the end at {end}", s._replace(b="manifest", b_end=end, b_knew=s.ever_told)
    elif s.b == "manifest":
        beyond = "beyond" in rules and any(offset >= s.b_end for offset in s.begins())
        yield ("b finds a segment beyond", s._replace(b="refuses")) if beyond else ("b serves", s._replace(b="serves"))
    elif (
        s.b == "serves"
        and s.lost_from
        and len(s.there()) < s.merged_by
        and not s.merged_gone
        and not (s.originals_gone and "whole" in rules)
    ):
        yield "b deletes the merged segment", s._replace(merged_gone=True)


def steps(s: State, rules: frozenset[str]) -> Iterator[tuple[str, State]]:
    yield from owner(s, rules)
    yield from world(s, rules)
    yield from heir(s, rules)


def wrong(s: State) -> str | None:
    if s.b == "refuses" and not s.lost_from:
        return "b refuses, and nothing is lost"
    tells = s.b_knew >= s.lost_from or any(offset >= s.b_end for offset in s.begins())
    if s.merged_gone and s.originals_gone:
        return "the only copy of 0 is deleted"
    if s.b == "serves" and s.lost_from and tells and s.b_end < s.acknowledged:
        return f"b gives offset {s.b_end} again"
    return None


def check(*, without: str | None = None) -> Outcome:
    """The protocol, or what is left of it without one rule."""
    rules = frozenset(RULES) - {without}
    return explore(State(), steps=lambda s: steps(s, rules), wrong=wrong)
