"""Batches that are as their producer wrote them, and that no reader can open. Blocking: it decompresses.

Newer versions refuse them (`bmq.validation`, docs/topics); older ones did not, and topics may still ask for no proof.
"""

from typing import Final

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, MostlyEmpty, UnsupportedCompression
from bmq.wire.batch_headers import BatchHeader
from bmq.wire.record_validation import count_records

MEANS: Final = (
    "as its producer wrote it, so no backup helps: bmq serves it, and consumers stop there until they seek over it "
    "(bmq groups, or kafka-consumer-groups --reset-offsets --to-offset)"
)
TOLD_MAX: Final = 8
"""How many batches that cannot be opened are told of one run or WAL object."""


def why_unopenable(batch: Buffer, header: BatchHeader) -> str | None:
    """In words, why the batch at `header.position` cannot be opened; None where it can. One with fewer records than
    offsets is not looked at.
    """
    if header.record_count != header.last_offset_delta + 1:
        return None
    try:
        count_records(batch, header)
    except MostlyEmpty:
        return None  # readers take their time
    except (CorruptBatch, BatchTooLarge, UnsupportedCompression) as error:
        return f"the batch of offsets {header.base_offset} to {header.last_offset} cannot be opened: {error}"
    return None
