"""How far one broker incarnation is between its registration and its end: one state, which all of its parts look at.
Pure.

Two things end, and not at once: a broker that hands over takes no more requests while what it took becomes durable. A
fence and a kill end both.
"""

from enum import Enum, auto
from typing import Final

from bmq.errors import BmqError, NotOwner, NotReady, UnknownOutcome
from bmq_broker.partitions.states import following


class BrokerState(Enum):
    """Where a broker incarnation is."""

    UNREGISTERED = auto()
    STARTING = auto()
    """It is registered, and reads what earlier owners left."""
    SERVING = auto()
    HANDING_OVER = auto()
    """It rolls larger tails, and still serves."""
    STOPPING = auto()
    """It takes no more requests; what it took becomes durable."""
    SEALED = auto()
    """By itself: nothing more can be written, and others may own what it owned."""
    OVER = auto()
    """It was fenced or killed: nothing more is said or written under its epoch."""


class BrokerEvent(Enum):
    """What can happen to it."""

    REGISTERED = auto()
    RECOVERED = auto()
    HAND_OVER = auto()
    STOP = auto()
    SEALED = auto()
    END = auto()


_State, _Event = BrokerState, BrokerEvent

TABLE: Final[dict[tuple[BrokerState, BrokerEvent], BrokerState]] = {
    (_State.UNREGISTERED, _Event.REGISTERED): _State.STARTING,
    (_State.STARTING, _Event.RECOVERED): _State.SERVING,
    (_State.STARTING, _Event.HAND_OVER): _State.HANDING_OVER,
    (_State.SERVING, _Event.HAND_OVER): _State.HANDING_OVER,
    (_State.HANDING_OVER, _Event.RECOVERED): _State.HANDING_OVER,
    (_State.STARTING, _Event.STOP): _State.STOPPING,  # it gives its start up
    (_State.HANDING_OVER, _Event.STOP): _State.STOPPING,
    (_State.STOPPING, _Event.STOP): _State.STOPPING,
    (_State.STOPPING, _Event.SEALED): _State.SEALED,
    **{(state, _Event.END): _State.OVER for state in _State if state not in (_State.UNREGISTERED, _State.OVER)},
    # what is under way may hear late that this broker hands over, or is over
    (_State.STOPPING, _Event.RECOVERED): _State.STOPPING,
    (_State.SEALED, _Event.RECOVERED): _State.SEALED,
    (_State.OVER, _Event.STOP): _State.OVER,
    (_State.OVER, _Event.SEALED): _State.OVER,
}


class Ended:
    """The state of one broker incarnation."""

    __slots__ = ("lost", "refusal", "state")

    def __init__(self) -> None:
        self.state = BrokerState.UNREGISTERED
        self.refusal: BmqError | None = None
        """What whoever asks for anything is told, once no more requests are taken. They were certainly not applied."""
        self.lost: BmqError | None = None
        """What whoever waits for something to become durable is told, once nothing more is written."""

    @property
    def is_over(self) -> bool:
        """Whether it was fenced or killed."""
        return self.state is BrokerState.OVER

    @property
    def hands_over(self) -> bool:
        """Whether this broker is to get no more partitions: it stops."""
        return self.state in (BrokerState.HANDING_OVER, BrokerState.STOPPING)

    @property
    def may_hand_over(self) -> bool:
        """Whether there is something to hand over, and nobody does so yet."""
        return (self.state, BrokerEvent.HAND_OVER) in TABLE

    def registered(self) -> None:
        """It has an epoch."""
        self._happen(BrokerEvent.REGISTERED)

    def recovered(self) -> None:
        """It serves."""
        self._happen(BrokerEvent.RECOVERED)

    def hand_over(self) -> None:
        """It begins to hand over."""
        self._happen(BrokerEvent.HAND_OVER)

    def stop(self) -> None:
        """It takes no more requests."""
        self._happen(BrokerEvent.STOP)
        self.refusal = NotOwner("this broker is stopping")

    def sealed(self) -> None:
        """Its stream has ended, by itself."""
        assert self.refusal is not None
        self._happen(BrokerEvent.SEALED)

    def fence(self, error: BmqError) -> None:
        """Another took over: nothing more is said or written."""
        self._happen(BrokerEvent.END)
        self.refusal = self.lost = error

    def kill(self) -> bool:
        """It ends as by a crash; what comes now may go to the next incarnation. Returns whether it was not over yet."""
        is_new = not self.is_over
        if is_new:
            self._happen(BrokerEvent.END)
            self.lost = UnknownOutcome("the broker stopped: whether the batch is in the log is not known")
        self.refusal = NotReady("this broker has stopped, or starts again")
        return is_new

    def _happen(self, event: BrokerEvent) -> None:
        self.state = following(TABLE, self.state, event)
