"""Every state of a partition at its broker and every transition, in one table."""

from enum import Enum, auto

from bmq.errors import BmqError


class PartitionState(Enum):
    """Where a partition is in its life at this broker."""

    ASSIGNED = auto()
    RECOVERING = auto()
    APPENDING = auto()
    CLOSING = auto()
    CLOSED = auto()
    FENCED = auto()


class PartitionEvent(Enum):
    """What can happen to it."""

    START = auto()
    RECOVERED = auto()
    MOVED_AWAY = auto()
    BUFFER_DURABLE = auto()
    STILL_NAMED = auto()
    """A new record of the image still names this broker."""
    FENCED = auto()
    """A conflict with a higher epoch, or a sealed stream: the whole broker restarts under a new epoch."""


class ImpossibleTransition(BmqError):
    """Only a bug gets here."""


_TABLE: dict[tuple[PartitionState, PartitionEvent], PartitionState] = {
    (PartitionState.ASSIGNED, PartitionEvent.START): PartitionState.RECOVERING,
    (PartitionState.RECOVERING, PartitionEvent.RECOVERED): PartitionState.APPENDING,
    (PartitionState.ASSIGNED, PartitionEvent.MOVED_AWAY): PartitionState.CLOSED,
    (PartitionState.RECOVERING, PartitionEvent.MOVED_AWAY): PartitionState.CLOSED,
    (PartitionState.APPENDING, PartitionEvent.MOVED_AWAY): PartitionState.CLOSING,
    (PartitionState.CLOSING, PartitionEvent.BUFFER_DURABLE): PartitionState.CLOSED,
    (PartitionState.CLOSED, PartitionEvent.STILL_NAMED): PartitionState.RECOVERING,
}


def next_state(state: PartitionState, event: PartitionEvent) -> PartitionState:
    """The state after the event. Raises ImpossibleTransition for a pair that the table does not have."""
    if event is PartitionEvent.FENCED:
        return PartitionState.FENCED
    try:
        return _TABLE[state, event]
    except KeyError:
        raise ImpossibleTransition(f"{event.name} in state {state.name}") from None
