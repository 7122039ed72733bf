"""What ListOffsets takes in place of a timestamp in ms (Kafka's ListOffsetsRequest)."""

from typing import Final

LATEST: Final = -1
"""Where the log ends."""
EARLIEST: Final = -2
"""Where it starts."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp."""
EARLIEST_LOCAL: Final = -4
"""The start, as nothing is kept elsewhere."""
LATEST_TIERED: Final = -5
"""The last record that is in a segment."""
