"""Commits of more offsets than one turn of the loop stores, beside what happens between two turns; and appends that the
log refuses at once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from group_log import Disk, LateLog
from group_shard import COMMIT, Topics, coordinator
from tests.waiting import until_async

from bmq.errors import NotReady
from bmq.wire.error_codes import ErrorCode
from bmq_sim.loop import on_virtual_time

ALL = 1_000


def wide(topics: Topics, *names: str) -> list[dict[str, Any]]:
    parts = [{"partition_index": index, "committed_offset": 7, "committed_metadata": ""} for index in range(ALL)]
    return [{"name": name, "topic_id": topics.id_of(name), "partitions": parts} for name in names]


@on_virtual_time
async def test_a_wide_commit_stores_nothing_of_a_topic_that_is_deleted_between_two_turns_of_it() -> None:
    topics = Topics("a", "b", "c", "d")
    async with coordinator(topics=topics) as one:
        asking = asyncio.ensure_future(one.ask(COMMIT, 9, group_id="g", topics=wide(topics, "a", "b", "c", "d")))
        state = await until_async(
            lambda: one.shard._active().durable,
            "the first offsets",
            holds=lambda durable: durable.offset_count("g"),
            every_s=0,
        )
        assert state.offset_count("g") == 2 * ALL
        gone = [(topics.ids.pop(name), name) for name in ("a", "d")]
        one.shard.topics_deleted(gone)
        reply = await asking
        codes = {topic.name: {ErrorCode(part.error_code) for part in topic.partitions} for topic in reply.topics}
        assert codes == {
            "a": {ErrorCode.none},
            "b": {ErrorCode.none},
            "c": {ErrorCode.none},
            "d": {ErrorCode.unknown_topic_or_partition},
        }
        await asyncio.sleep(1)
        assert {topic for topic, _ in state.offsets["g"]} == {"b", "c"}


class RefusingLog(LateLog):
    """Refuses one batch, and takes what comes after it."""

    refuses = True

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> "asyncio.Future[None]":
        if not self.refuses:
            return super().append(records)
        self.refuses = False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(NotReady("refused"))
        return future


@on_virtual_time
async def test_no_snapshot_has_what_the_log_refused() -> None:
    disk = Disk()
    async with coordinator(disk, snapshot_record_interval=1) as one:
        log = one.shard._log = one.shard._appending._log = one.shard._snapshots._log = RefusingLog(disk)
        assert await one.commit(7) == ErrorCode.not_coordinator
        await asyncio.sleep(1)
        assert (disk.records(), disk.snapshots) == ([], [])
        assert not log.refuses
