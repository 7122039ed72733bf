"""Why no seed runs a statement of the services: `unrun.toml`, and what is wrong with it.

A statement is named by its module, its function and its code, so that it keeps its reason where lines move, or are
broken; `*` stands for anything. A reason is `seldom` where seeds do run it, a few of many: then it may have run.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Final

from bmq_sim.lines import Statement, statements, watched_modules

SAMPLE: Final[Mapping[str, int]] = {
    "administration": 30,
    "cluster": 2,
    "cluster-calm": 1,
    "cluster-copy": 1,
    "cluster-island": 1,
    "cluster-lagging": 1,
    "cluster-lagging-brokers": 1,
    "cluster-late-handover": 1,
    "cluster-late-seal": 1,
    "cluster-late-versions": 1,
    "cluster-leader-replaced": 1,
    "cluster-leader-sleeps": 1,
    "cluster-moves": 1,
    "cluster-seals": 1,
    "cluster-several": 1,
    "cluster-topics": 4,
    "damage": 20,
    "engine": 30,
    "flat-logs": 60,
    "garbage": 15,
    "lost-object": 15,
    "quiet": 5,
    "retries": 20,
    "sequences": 15,
    "sleeper": 1,
    "streams": 60,
    "takeover": 15,
    "tight-memory": 5,
}
"""How many seeds of each scenario say what runs: always the same, and so the same for the same code."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why some statements stay unrun."""

    why: str
    of: tuple[str, ...]
    seldom: bool = False

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """By what is written."""
        return {text: re.compile(re.escape(text).replace(r"\*", ".*")) for text in self.of}


def reasons() -> tuple[Reason, ...]:
    """Those that are committed."""
    table = tomllib.loads(files("bmq_sim").joinpath("unrun.toml").read_text(encoding="utf-8"))
    return tuple(
        Reason(why=one["why"], of=tuple(one["of"]), seldom=one.get("seldom", False)) for one in table["reason"]
    )


def name_of(statement: Statement) -> str:
    """Without its line: `module:function: text`."""
    return f"{statement.module}:{statement.function}: {statement.text}"


def all_names() -> frozenset[str]:
    """The names of all statements of the watched modules."""
    return frozenset(name_of(one) for module, path in watched_modules().items() for one in statements(module, path))


def without_reason(unrun: Iterable[Statement], known: Sequence[Reason]) -> list[Statement]:
    """Those that no pattern matches."""
    patterns = [pattern for reason in known for pattern in reason.patterns.values()]
    return [one for one in unrun if not any(pattern.fullmatch(name_of(one)) for pattern in patterns)]


def stale(unrun: Iterable[Statement], known: Sequence[Reason]) -> Iterator[str]:
    """Patterns all of whose statements ran."""
    names = {name_of(one) for one in unrun}
    for reason in known:
        for text, pattern in reason.patterns.items():
            if not reason.seldom and not any(pattern.fullmatch(name) for name in names):
                yield f"{text}: it ran, so it needs no reason"


def of_nothing(known: Sequence[Reason]) -> list[str]:
    """Patterns that match no statement that there is."""
    names = all_names()
    return [
        text
        for reason in known
        for text, pattern in reason.patterns.items()
        if not any(pattern.fullmatch(name) for name in names)
    ]
