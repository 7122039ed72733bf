"""A Fetch of a consumer in the lane."""

from typing import Final

from bmq_sim.client import FETCH, OFFSET_OUT_OF_RANGE, ConnectionLost, SimClient
from bmq_sim.consumer import batches_end, fetch_fields
from bmq_sim.history import Place
from bmq_sim.programs.falling.batches import Found, found_in

EARLIEST: Final = -2
FETCH_BYTES: Final = 300


class LanePosition:
    """Where a consumer is in one partition: as with `auto.offset.reset=earliest`."""

    def __init__(self, client: SimClient, place: Place, offset: int) -> None:
        self._client = client
        self.place = place
        self.offset = offset
        """The first one that it has not handled."""

    async def fetch(self, *, max_wait_ms: int) -> list[Found]:
        """What comes next; the position stays. Raises ConnectionLost."""
        client = self._client
        fields = fetch_fields(self.place, self.offset, max_wait_ms=max_wait_ms, max_bytes=FETCH_BYTES)
        answer = await (await client.leader(self.place)).send(FETCH, fields)
        part = answer.responses[0].partitions[0]
        if part.error_code == OFFSET_OUT_OF_RANGE:
            self.offset = await client.list_offset(self.place, EARLIEST)
            return []
        if part.error_code:
            raise ConnectionLost(f"error {part.error_code}")
        found = found_in(part, self.offset)
        if not found:  # a batch ends in a gap: it goes on behind that, as Kafka's consumers do
            self.offset = batches_end(part, self.offset)
        return found
