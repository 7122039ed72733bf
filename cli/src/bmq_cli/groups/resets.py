"""What `bmq groups reset-offsets` would change: planned here, pure, and carried out by `groups`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bmq_cli.kafka.positions import Bounds, PartitionKey
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode

_SELECTION: Final = re.compile(r"(?P<topic>[^:]+)(:(?P<partitions>[0-9]{1,9}(,[0-9]{1,9})*))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`--topic T[:p,p]`. No partitions: all of them."""

    topic: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """One partition's change. `before` is None where nothing is committed."""

    topic: str
    partition: int
    before: int | None
    after: int

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after


def parse_selection(text: str) -> Selection:
    """Raises CommandFailed (usage)."""
    matched = _SELECTION.fullmatch(text)
    if matched is None:
        raise CommandFailed(
            f"--topic {text}",
            "not TOPIC or TOPIC:PARTITION,PARTITION",
            "for example --topic orders:0,1",
            code=ExitCode.USAGE,
        )
    numbers = matched["partitions"]
    partitions = tuple(sorted({int(number) for number in numbers.split(",")})) if numbers else ()
    return Selection(topic=matched["topic"], partitions=partitions)


def select(selections: Sequence[Selection], existing: Mapping[str, Sequence[int]]) -> list[PartitionKey]:
    """The chosen partitions, each once, in order. Raises CommandFailed (not found)."""
    chosen: set[PartitionKey] = set()
    for selection in selections:
        there = existing[selection.topic]
        for partition in selection.partitions or there:
            if partition not in there:
                raise CommandFailed(
                    f"partition {partition} of topic {selection.topic}",
                    f"there is none: it has {len(there)}",
                    f"`bmq topics describe {selection.topic}` shows them",
                    code=ExitCode.NOT_FOUND,
                )
            chosen.add((selection.topic, partition))
    return sorted(chosen)


def plan_to(targets: Mapping[PartitionKey, int], committed: Mapping[PartitionKey, int]) -> list[Reset]:
    """Every partition to its target."""
    return [
        Reset(topic=topic, partition=partition, before=committed.get((topic, partition)), after=after)
        for (topic, partition), after in sorted(targets.items())
    ]


def plan_shift(shift: int, bounds: Mapping[PartitionKey, Bounds], committed: Mapping[PartitionKey, int]) -> list[Reset]:
    """Every partition by `shift` records, forward or back, but never out of its bounds. Raises CommandFailed where
    nothing is committed.
    """
    resets = []
    for (topic, partition), bound in sorted(bounds.items()):
        before = committed.get((topic, partition))
        if before is None:
            raise CommandFailed(
                f"--shift-by {shift}",
                f"{topic}/{partition} has no committed offset to shift",
                "use --to, or leave the partition out",
            )
        resets.append(Reset(topic=topic, partition=partition, before=before, after=bound.clamp(before + shift)))
    return resets
