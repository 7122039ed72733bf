"""What one look at a resource came to: its status, events worth telling, and when to look again."""

from dataclasses import dataclass
from typing import Literal

from bmq_resources.base import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A Kubernetes event on a resource. Changes of Ready are told by themselves; this is for what else happened."""

    reason: str
    message: str
    warning: bool = False

    @property
    def type(self) -> Literal["Normal", "Warning"]:
        return "Warning" if self.warning else "Normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a `reconcile`."""

    status: Status | None = None
    """The whole status as it is to be; None: it stays. It is written only if it differs."""
    events: tuple[Event, ...] = ()
    again_after_s: float | None = None
    """When to look again though nothing was heard; None: with everything else, at the next resync."""
    finished: bool = False
    """Whether a resource that is being deleted may go: nothing waits any longer, the finalizer is taken off."""
