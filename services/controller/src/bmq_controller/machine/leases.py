"""How long each node has been silent, in time in which the leader itself ran. Pure: the caller tells the time and
ticks.

A lease decides only when to act. That its node writes no more is decided by the seal of its stream.
"""

from collections.abc import Collection, Mapping

from bmq.values import NodeId
from bmq_controller.machine.placement import Incarnation

GRACE_SHARE = 1 / 3
"""The share of a lease that a node has at least after a change of leader, to find the new one."""


class Leases:
    """Knows when every registered incarnation was heard last, and whose lease has run out. Times are the event loop's,
    in seconds.
    """

    def __init__(self, *, lease_s: float, lag_s_max: float) -> None:
        """After more than `lag_s_max` between two ticks, all leases start anew: who slept has heard nobody."""
        self._lease_s = lease_s
        self._lag_s_max = lag_s_max
        self._heard_s: dict[Incarnation, float] = {}
        self._ticked_s: float | None = None

    def start(self, silent_s: Mapping[NodeId, float], registered: Collection[Incarnation], *, now_s: float) -> None:
        """Begins with what is known from an earlier leader: how long nodes were silent when it was heard last
        itself.
        """
        silent_s_max = self._lease_s * (1 - GRACE_SHARE)
        self._heard_s = {who: now_s - min(silent_s.get(who[0], 0.0), silent_s_max) for who in registered}
        self._ticked_s = now_s

    def heard(self, who: Incarnation, *, now_s: float) -> None:
        """A sign of life."""
        self._heard_s[who] = now_s

    def silent_s(self, *, now_s: float) -> dict[NodeId, float]:
        """How long ago each node was heard."""
        return {node_id: max(0.0, now_s - heard_s) for (node_id, _), heard_s in self._heard_s.items()}

    def tick(self, registered: Collection[Incarnation], *, now_s: float) -> list[Incarnation]:
        """Those of the registered incarnations whose lease has run out; one that is new to this begins its lease
        now.
        """
        assert self._ticked_s is None or self._ticked_s <= now_s, f"{now_s} s follows {self._ticked_s} s"
        if self._ticked_s is not None and now_s - self._ticked_s > self._lag_s_max:
            self._heard_s.clear()
        self._ticked_s = now_s
        self._heard_s = {who: self._heard_s.get(who, now_s) for who in registered}
        return [who for who, heard_s in self._heard_s.items() if now_s - heard_s >= self._lease_s]
