"""What every operation of the controller comes to."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from bmq.metadata.records import AnyRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """The records to commit (none: nothing changes), and the answer that may be given once they are."""

    result: T
    records: tuple[AnyRecord, ...] = ()
