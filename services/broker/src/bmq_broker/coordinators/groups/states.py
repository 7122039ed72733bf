"""The states of a classic group, and every transition between them: this table is the whole of it.

Empty                no members; offsets may be there
PreparingRebalance   members are (re)joining, their JoinGroups are held
CompletingRebalance  a generation is chosen, its leader is computing the assignment; SyncGroups are held
Stable               every member has its assignment (the one state with members that a restart brings back)
Dead                 deleted; nothing leads out of it
"""

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The value is Kafka's name, which DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """What moves a group from one state to another."""

    REBALANCE = "a member joined, left, failed or changed"
    JOINED = "all members that are still there have joined"
    EMPTIED = "the rebalance ended without members"
    ASSIGNED = "the leader's assignment is in the log"
    DELETED = "the group was deleted or expired"


TRANSITIONS: Final[dict[tuple[GroupState, GroupEvent], GroupState]] = {
    (GroupState.EMPTY, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.EMPTY, GroupEvent.DELETED): GroupState.DEAD,
    (GroupState.PREPARING_REBALANCE, GroupEvent.JOINED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, GroupEvent.EMPTIED): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.ASSIGNED): GroupState.STABLE,
    (GroupState.STABLE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
}


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Where the event leads. A pair that the table does not have is a bug."""
    return TRANSITIONS[state, event]
