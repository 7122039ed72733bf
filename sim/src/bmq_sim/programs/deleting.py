"""DeleteRecords: what lies below an offset is to go, and stays gone once that was acknowledged."""

from bmq_sim.client import DELETE_RECORDS, OFFSET_OUT_OF_RANGE, RETRIABLE, ConnectionLost, SimClient
from bmq_sim.consumer import end_offset, start_offset
from bmq_sim.history import Deleted, History, Place

TIMEOUT_MS = 20_000


class RecordDeleter:
    """Deletes a little of a partition now and then."""

    def __init__(self, client: SimClient, history: History, places: list[Place], *, pause_s: float) -> None:
        self._client = client
        self._history = history
        self._places = places
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until its client is stopped."""
        rng = self._client.rng
        while not self._client.stopped:
            await self._client.rest(self._pause_s * rng.random())
            place = rng.choice(self._places)
            end = await end_offset(self._client, self._history, place)
            start = await start_offset(self._client, self._history, place)
            if end <= start:
                continue
            offset = rng.choice((start + 1, rng.randint(start, end), (start + end) // 2, end))
            await self.delete(place, offset)
            await start_offset(self._client, self._history, place)

    async def delete(self, place: Place, offset: int) -> None:
        """Asks until it is done: everything below the offset is to go."""
        history, client = self._history, self._client
        history.may_go(place, offset)
        sent = history.turn()
        fields = {
            "topics": [{"name": place.name, "partitions": [{"partition_index": place.partition, "offset": offset}]}],
            "timeout_ms": TIMEOUT_MS,
        }
        attempt = 0
        while True:
            try:
                answer = await (await client.leader(place)).send(DELETE_RECORDS, fields)
            except ConnectionLost:
                pass
            else:
                part = answer.topics[0].partitions[0]
                if not part.error_code:
                    history.deleted.append(
                        Deleted(sent=sent, acknowledged=history.turn(), place=place, offset=part.low_watermark)
                    )
                    if part.low_watermark < offset:
                        history.refused.append(
                            f"{place}: DeleteRecords below {offset} was told that the log starts at "
                            f"{part.low_watermark}"
                        )
                    return
                if part.error_code not in RETRIABLE:
                    name = "out of range" if part.error_code == OFFSET_OUT_OF_RANGE else part.error_code
                    history.refused.append(f"{place}: DeleteRecords below {offset} was told {name}")
                    return
            client.forget_leaders()
            attempt += 1
            await client.back_off(attempt)
