"""Blocks of producer ids: each id is given at most once. Pure."""

from typing import Final

from bmq.errors import PolicyViolation
from bmq.metadata.image import Image
from bmq.metadata.records import ProducerIdsAllocated
from bmq_controller.machine.decision import Decision

BLOCK_SIZE_MAX: Final = 1_000_000
PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(image: Image, count: int) -> Decision[range]:
    """The next `count` ids. Raises PolicyViolation for a block that is too large, or where ids have run out."""
    if not 1 <= count <= BLOCK_SIZE_MAX:
        raise PolicyViolation(f"a block of {count} producer ids: ask for 1 to {BLOCK_SIZE_MAX}")
    first = image.next_producer_id
    if first + count > PRODUCER_ID_MAX:
        raise PolicyViolation(f"producer ids have run out at {first}")
    return Decision(range(first, first + count), (ProducerIdsAllocated(next_producer_id=first + count),))
