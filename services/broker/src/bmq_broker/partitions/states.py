"""Every state of a partition's life at one broker and every transition, in one table.

A life is one partition under one leader epoch. It begins when the image names this broker, and is over when this broker
has nothing to do with the partition any more: an heir covers what it left, it was deleted, or it never opened. What
ends the broker ends all of its lives, whatever their states, and is no event of theirs.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeVar

from bmq.errors import BmqError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class PartitionState(Enum):
    """Where a partition is in its life at this broker."""

    ASSIGNED = auto()
    """The image names this broker: nothing is known to be left by earlier owners."""
    UNREAD = auto()
    """What earlier owners left in their streams is to be read first."""
    READ = auto()
    """That is known; the partition can be opened."""
    STOPPED = auto()
    """Something that it needs is missing or damaged: it is not opened."""
    RESTORING = auto()
    """What stopped it is looked at again."""
    RECOVERING = auto()
    """It is being opened. Where that fails its life is where it was before."""
    APPENDING = auto()
    """It takes batches. It may be rolled before it leaves by plan."""
    CLOSING = auto()
    """It takes no more batches, and what it was given is not all durable."""
    CLOSED = auto()
    """All of it is durable: its range has an end, and pins WAL objects until an heir covers it."""
    OVER = auto()
    """Nothing here has to do with it any more."""


class PartitionEvent(Enum):
    """What can happen to it."""

    RANGES_NAMED = auto()
    """The image names ranges of earlier owners of which not all were read."""
    RANGES_READ = auto()
    DAMAGED = auto()
    """A range, or the manifest, lacks something that the partition needs."""
    LOOKED_AT_AGAIN = auto()
    """What was missing or damaged may have been restored."""
    START = auto()
    RECOVERED = auto()
    MOVED_AWAY = auto()
    """By plan, or because the image gives it to another."""
    BUFFER_DURABLE = auto()
    LET_GO = auto()
    """An heir covers it, it was deleted, or it is another's and never was open."""


class ImpossibleTransition(BmqError):
    """Only a bug gets here."""


_State, _Event = PartitionState, PartitionEvent

TABLE: Final[dict[tuple[PartitionState, PartitionEvent], PartitionState]] = {
    (_State.ASSIGNED, _Event.RANGES_NAMED): _State.UNREAD,
    (_State.UNREAD, _Event.RANGES_NAMED): _State.UNREAD,
    (_State.READ, _Event.RANGES_NAMED): _State.UNREAD,
    (_State.STOPPED, _Event.RANGES_NAMED): _State.STOPPED,
    (_State.RESTORING, _Event.RANGES_NAMED): _State.RESTORING,
    (_State.UNREAD, _Event.RANGES_READ): _State.READ,
    (_State.STOPPED, _Event.RANGES_READ): _State.READ,
    (_State.RESTORING, _Event.RANGES_READ): _State.RESTORING,
    (_State.ASSIGNED, _Event.DAMAGED): _State.STOPPED,
    (_State.UNREAD, _Event.DAMAGED): _State.STOPPED,
    (_State.READ, _Event.DAMAGED): _State.STOPPED,
    (_State.STOPPED, _Event.DAMAGED): _State.STOPPED,
    (_State.RESTORING, _Event.DAMAGED): _State.STOPPED,
    (_State.STOPPED, _Event.LOOKED_AT_AGAIN): _State.RESTORING,
    (_State.ASSIGNED, _Event.START): _State.RECOVERING,
    (_State.UNREAD, _Event.START): _State.RECOVERING,
    (_State.READ, _Event.START): _State.RECOVERING,
    (_State.RESTORING, _Event.START): _State.RECOVERING,
    (_State.RECOVERING, _Event.RECOVERED): _State.APPENDING,
    (_State.ASSIGNED, _Event.MOVED_AWAY): _State.CLOSED,
    (_State.UNREAD, _Event.MOVED_AWAY): _State.CLOSED,
    (_State.READ, _Event.MOVED_AWAY): _State.CLOSED,
    (_State.STOPPED, _Event.MOVED_AWAY): _State.CLOSED,
    (_State.RESTORING, _Event.MOVED_AWAY): _State.CLOSED,
    (_State.APPENDING, _Event.MOVED_AWAY): _State.CLOSING,
    (_State.CLOSING, _Event.BUFFER_DURABLE): _State.CLOSED,
    (_State.ASSIGNED, _Event.LET_GO): _State.OVER,
    (_State.UNREAD, _Event.LET_GO): _State.OVER,
    (_State.READ, _Event.LET_GO): _State.OVER,
    (_State.STOPPED, _Event.LET_GO): _State.OVER,
    (_State.RESTORING, _Event.LET_GO): _State.OVER,
    (_State.CLOSING, _Event.LET_GO): _State.OVER,
    (_State.CLOSED, _Event.LET_GO): _State.OVER,
}


def next_state(state: PartitionState, event: PartitionEvent) -> PartitionState:
    """The state after the event. Raises ImpossibleTransition for a pair that the table does not have."""
    return following(TABLE, state, event)


def following(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """The same by any table of states and events. Raises ImpossibleTransition."""
    try:
        return table[state, event]
    except KeyError:
        raise ImpossibleTransition(f"{event.name} in state {state.name}") from None
