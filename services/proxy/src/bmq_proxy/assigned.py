"""Manual assignments of a request, as the controller takes them: checked against what this proxy knows before they
travel.
"""

from collections.abc import Sequence
from typing import Any

from bmq.errors import InvalidReplicaAssignment
from bmq.metadata.assignments import Assignments, check_assignments
from bmq.metadata.image import Image


def assigned_by_number(image: Image, asked: Sequence[Any]) -> Assignments | None:
    """The assignments of a CreateTopics, where each says its partition; None: there are none. Raises
    InvalidReplicaAssignment.
    """
    if not asked:
        return None
    by_number = {one.partition_index: one.broker_ids for one in asked}
    if len(by_number) != len(asked):
        raise InvalidReplicaAssignment("The assignment names a partition more than once: name each once")
    if by_number.keys() != set(range(len(asked))):
        raise InvalidReplicaAssignment(
            f"The assignment names {len(asked)} partitions, which have to be 0 to {len(asked) - 1}"
        )
    return _checked(image, [by_number[number] for number in range(len(asked))])


def assigned_in_order(image: Image, asked: Sequence[Any] | None) -> Assignments | None:
    """The assignments of a CreatePartitions, in order; None: there are none. Raises InvalidReplicaAssignment."""
    return None if asked is None else _checked(image, [one.broker_ids for one in asked])


def _checked(image: Image, assignments: Assignments) -> Assignments:
    check_assignments(image, assignments)
    return assignments
