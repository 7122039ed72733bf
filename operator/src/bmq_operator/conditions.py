"""Conditions: the next list from the old one and what was found. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from bmq_resources.base import Condition

MESSAGE_LENGTH_MAX: Final = 1024
NAMED_MAX: Final = 3
"""How many of a list a message names."""
REFUSED: Final = "Refused"
"""With status False: the cluster refuses to make what the resource stands for, so there is nothing of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one aspect of a resource."""

    type: str = "Ready"
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def first_of(names: Sequence[str]) -> str:
    """The first NAMED_MAX of them, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"


def next_conditions(
    old: Sequence[Condition], found: Sequence[Finding], *, generation: int, now_ms: int
) -> list[Condition]:
    """The conditions that say what was `found`, in its order. A time changes only where a status does; types that were
    not found are gone.
    """
    before = {condition.type: condition for condition in old}
    return [_next(before.get(one.type), one, generation=generation, now_ms=now_ms) for one in found]


def condition(conditions: Sequence[Condition], type_: str = "Ready") -> Condition | None:
    """The condition of this type."""
    return next((one for one in conditions if one.type == type_), None)


def pace_s(ready: Condition | None, *, first_s: float, most_s: float, now_ms: int) -> float:
    """How soon to look again at what has waited since Ready became what it is: a tenth of that later. What comes of it
    is heard of, mostly.
    """
    if ready is None or ready.status == "True":
        return first_s
    since_ms = datetime.fromisoformat(ready.last_transition_time.replace("Z", "+00:00")).timestamp() * 1000
    return min(most_s, max(first_s, (now_ms - since_ms) / 10_000))


def was_refused(ready: Condition | None) -> bool:
    """Whether the cluster refused to make what a resource stands for, by the last word: then what is there is not its
    own.

    What an API server refuses has the same reason, and status Unknown.
    """
    return ready is not None and (ready.reason, ready.status) == (REFUSED, "False")


def timestamp(now_ms: int) -> str:
    """RFC 3339 in UTC, to the second, as Kubernetes writes it."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _next(old: Condition | None, found: Finding, *, generation: int, now_ms: int) -> Condition:
    kept = old is not None and old.status == found.status
    return Condition(
        type=found.type,
        status=found.status,
        reason=found.reason,
        message=found.message[:MESSAGE_LENGTH_MAX],
        last_transition_time=old.last_transition_time if old is not None and kept else timestamp(now_ms),
        observed_generation=generation,
    )
