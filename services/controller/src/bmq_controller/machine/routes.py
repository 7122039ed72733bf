"""Where what is written to a topic goes, in the base and in each lane, as the metadata and who is there say. Pure.

It decides nothing: `turns` does. What it says is for people who ask who handles a message, and why.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bmq.metadata.image import Image, Lane, Topic, Turn
from bmq.metadata.records import Whose
from bmq.naming.lanes import BASE, matches, overlay_name
from bmq.naming.names import is_internal
from bmq.values import TopicPartition
from bmq_controller.machine.presence import Seen


class Handler(StrEnum):
    """Who handles what is written now."""

    LANE = "lane"
    BASE = "base"
    PARENT = "parent"
    """The lane that this one is nested in, or whoever gets it from there."""
    CLOSING = "closing"
    """Nobody for a moment: what the base's turn has is counted, then it is the lane's."""
    MIXED = "mixed"
    """It is not the same of all partitions."""


class Reason(StrEnum):
    """Why it is that one."""

    BASE_ITSELF = "base_itself"
    NO_FALLBACK = "no_fallback"
    READS_BASE = "reads_base"
    NO_BASE_PARTITION = "no_base_partition"
    CONSUMED = "consumed"
    CONSUMED_LATELY = "consumed_lately"
    WAITING = "waiting"
    NOT_WRITTEN = "not_written"
    UNCONSUMED = "unconsumed"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How many of a topic's partitions are whose: as the log says, and of the lane's those that can be nobody else's
    (`stay`).
    """

    lane: int = 0
    base: int = 0
    closing: int = 0
    stay: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What the metadata says of a topic in a lane, or in the base."""

    lane: Lane | None
    """None: the base."""
    name: str
    """As clients call it."""
    own: Topic | None
    """What they write to; None: there is none yet."""
    base: Topic | None
    """What nobody consumes goes on to it: the base's; of a lane that is nested, that of its parent, or the one in whose
    shape that gets its own. None: it goes on to nothing."""
    turns: Turns

    @property
    def lane_name(self) -> str:
        """ "" for the base."""
        return BASE if self.lane is None else self.lane.name

    @property
    def parent(self) -> str:
        """The lane that it is nested in; "": none."""
        return "" if self.lane is None else self.lane.parent

    @property
    def beneath(self) -> str:
        """Where it goes on to, in words."""
        return f"lane {self.parent}" if self.parent else "the base"

    @property
    def handler_beneath(self) -> Handler:
        """Who handles what goes on."""
        return Handler.PARENT if self.parent else Handler.BASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumers:
    """Who consumes it: groups with members by name, as many as are named, and how many there are. `is_known`: whether
    all coordinators said so. `seen`: whoever else, of lanes that fall back.
    """

    groups: Sequence[str] = ()
    count: int = 0
    is_known: bool = True
    seen: Seen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who handles it, and why, for programs and in words."""

    handler: Handler
    reason: Reason
    why: str


def route_of(image: Image, lane: Lane | None, name: str) -> Route:
    """O(partitions)."""
    if lane is None:
        base = image.topic(name)
        return Route(lane=None, name=name, own=base, base=base, turns=Turns())
    base = None if is_internal(name) else image.beneath(lane, name)
    own = image.topic(overlay_name(lane.name, name))
    count = 0 if own is None else len(own.partitions)
    if own is None or not lane.falls_back:
        return Route(lane=lane, name=name, own=own, base=base, turns=Turns(lane=count, stay=count))
    found = Counter(image.turn(TopicPartition(own.topic_id, index)).whose for index in range(count))
    stay = max(0, count - (0 if base is None else len(base.partitions)))
    turns = Turns(
        lane=found[Whose.LANE], base=found[Whose.BASE], closing=found[Whose.CLOSING], stay=min(stay, found[Whose.LANE])
    )
    return Route(lane=lane, name=name, own=own, base=base, turns=turns)


def verdict(route: Route, consumers: Consumers, *, grace_s: float) -> Verdict:
    """For the topic as a whole; where its partitions differ, why those do that are not the lane's."""
    lane, turns = route.lane, route.turns
    if lane is None:
        why = "the base has no such topic" if route.base is None else _of_groups(consumers)
        return Verdict(handler=Handler.BASE, reason=Reason.BASE_ITSELF, why=why)
    if not lane.falls_back:
        return _without_fallback(lane, route, consumers)
    if route.base is None or (route.own is not None and turns.stay == turns.lane + turns.base + turns.closing):
        why = f"{route.beneath} has no such topic: it stays in the lane"
        return Verdict(handler=Handler.LANE, reason=Reason.NO_BASE_PARTITION, why=why)
    found = _whole(route, consumers, grace_s=grace_s)
    if not turns.stay:
        return found
    why = f"{found.why}; of {turns.stay} partitions that {route.beneath} does not have it stays in the lane"
    handler = found.handler if found.handler is Handler.LANE else Handler.MIXED
    return Verdict(handler=handler, reason=found.reason, why=why)


def of_partition(route: Route, index: int, turn: Turn, consumers: Consumers) -> tuple[Handler, Reason]:
    """The same, without words, as `verdict` of one partition of the topic that is written to."""
    if turn.whose is Whose.BASE:
        return route.handler_beneath, Reason.UNCONSUMED
    if turn.whose is Whose.CLOSING:
        return Handler.CLOSING, Reason.CLOSING
    if route.lane is None:
        return Handler.BASE, Reason.BASE_ITSELF
    if not route.lane.falls_back:
        return Handler.LANE, Reason.NO_FALLBACK
    if route.base is None or index >= len(route.base.partitions):
        return Handler.LANE, Reason.NO_BASE_PARTITION
    return Handler.LANE, _the_lanes(route, consumers, grace_s=0).reason


def _whole(route: Route, consumers: Consumers, *, grace_s: float) -> Verdict:
    turns = route.turns
    if route.own is None:
        return _not_written(route, consumers, grace_s=grace_s)
    lanes = turns.lane - turns.stay
    kinds = sum(map(bool, (lanes, turns.base, turns.closing)))
    if turns.closing:
        why = (
            f"somebody in the lane consumes it: {route.beneath} says how far it got, and from there on it is the lane's"
        )
        handler = Handler.CLOSING if kinds == 1 else Handler.MIXED
        return Verdict(handler=handler, reason=Reason.CLOSING, why=why)
    if turns.base:
        handler = route.handler_beneath if kinds == 1 else Handler.MIXED
        why = "nobody in the lane consumes it" + (f": it goes on to {route.beneath}" if route.parent else "")
        return Verdict(handler=handler, reason=Reason.UNCONSUMED, why=why)
    return _the_lanes(route, consumers, grace_s=grace_s)


def _the_lanes(route: Route, consumers: Consumers, *, grace_s: float) -> Verdict:
    if consumers.count:
        return Verdict(handler=Handler.LANE, reason=Reason.CONSUMED, why=_of_groups(consumers))
    seen = consumers.seen
    if seen is not None and not seen.is_absent and seen.consumed_s_ago is not None:
        why = f"somebody in the lane consumed it {seen.consumed_s_ago:.0f} s ago, in no group that has members now"
        return Verdict(handler=Handler.LANE, reason=Reason.CONSUMED_LATELY, why=why)
    why = f"nobody in the lane consumes it: it goes on to {route.beneath} once that has been so for {grace_s:g} s"
    if not consumers.is_known:
        why = "whether a group in the lane consumes it cannot be told now"
    return Verdict(handler=Handler.LANE, reason=Reason.WAITING, why=why)


def _not_written(route: Route, consumers: Consumers, *, grace_s: float) -> Verdict:
    if consumers.count:
        why = f"{_of_groups(consumers)}; nothing was written to it yet"
        return Verdict(handler=Handler.LANE, reason=Reason.CONSUMED, why=why)
    why = f"nobody in the lane consumes it, and nothing was written to it yet: what is goes on {grace_s:g} s later"
    if not consumers.is_known:
        why = "nothing was written to it yet; whether a group in the lane consumes it cannot be told now"
    return Verdict(handler=route.handler_beneath, reason=Reason.NOT_WRITTEN, why=why)


def _without_fallback(lane: Lane, route: Route, consumers: Consumers) -> Verdict:
    if route.own is None and route.base is not None and matches(route.name, lane.reads_base):
        why = "the lane reads the base's; a write makes one of its own, which is then what it reads"
        return Verdict(handler=Handler.LANE, reason=Reason.READS_BASE, why=why)
    why = f"the lane has no fallback: it stays in the lane; {_of_groups(consumers)}"
    return Verdict(handler=Handler.LANE, reason=Reason.NO_FALLBACK, why=why)


def _of_groups(consumers: Consumers) -> str:
    if not consumers.count:
        unknown = "whether a group consumes it cannot be told now"
        return "no group with members consumes it" if consumers.is_known else unknown
    names = ", ".join(consumers.groups)
    more = consumers.count - len(consumers.groups)
    if more:
        names += f" and {more} more"
    return f"group {names} consumes it" if consumers.count == 1 else f"groups {names} consume it"
