"""Which partition of `__consumer_offsets` a group lives in. Kafka's own formula, so that its tools find a group's
records.
"""

import sys
from typing import Final

NAME_CHARS_MAX: Final = 32_767
"""No group has a longer name. Whoever made one up is told so by any coordinator; to look at all of it would be a long
turn."""
_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, a signed 32-bit integer."""
    value = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        value = 31 * value + unit & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_of_group(group_id: str, partitions: int) -> int:
    """Utils.abs(hashCode) % partitions, where the absolute value of the smallest integer is 0. Of a name that no
    group has, what its beginning says.
    """
    value = java_hash(group_id[:NAME_CHARS_MAX])
    return (0 if value == -0x8000_0000 else abs(value)) % partitions
