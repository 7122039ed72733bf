"""A lane's client that sends no leader epochs, and commits what it read in the base's topic when the lane has its own:
it neither skips nor fails.
"""

from typing import Any

from admin_api_asked import ask
from nodes_in_one_loop import Cluster, run
from test_lanes_apart import TOPIC, Client, commit_of, fetched, lane_with_a_topic_and_a_group

from bmq.wire.apis import ApiKey
from bmq.wire.records import Record, build_batch


async def write(client: Client, topic: str, count: int) -> None:
    for number in range(count):
        batch = build_batch([Record(0, 1_700_000_000_000, None, b"%d" % number, ())])
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        assert await client.ask(
            ApiKey.PRODUCE, 9, {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": topics}
        )


async def commit(client: Client, group: str, *offsets: tuple[str, int]) -> dict[str, int]:
    asked: dict[str, Any] = commit_of(group, "", 0)
    asked["topics"] = [topic for name, offset in offsets for topic in commit_of(group, name, offset)["topics"]]
    reply = await client.answer(ApiKey.OFFSET_COMMIT, 5, **asked)
    return {topic.name: topic.partitions[0].error_code for topic in reply.topics}


def test_an_offset_of_the_base_is_kept_as_the_bases_and_one_of_the_lanes_as_the_lanes() -> None:
    async def test(cluster: Cluster) -> None:
        node, inside, _ = await lane_with_a_topic_and_a_group(cluster)
        assert (await ask(node, "POST", "/v1/topics", {"name": "mine", "lane": "dev", "partitions": 1})).status == 201
        await write(Client(node), "orders", 5)
        assert await commit(inside, "x", ("orders", 3)) == {"orders": 0}
        assert await fetched(inside, "x", "orders") == 3, "a lane that reads nothing of the base has no offset of it"
        reads = {"reads_base": {"enabled": True, "topics": ["*"], "bytes_per_second": 1_000_000}}
        assert (await ask(node, "PUT", "/v1/lanes/dev", reads)).status == 200
        assert await commit(inside, "h", ("orders", 5), ("mine", 9)) == {"orders": 0, "mine": 0}
        assert await fetched(inside, "h", "orders") == -1, "nothing of the lane's topic, which is empty, is skipped"
        assert await fetched(inside, "h", "mine") == 9, "the base has no such topic: it can only be the lane's"
        await write(inside, "orders", 4)
        assert await commit(inside, "h", ("orders", 5)) == {"orders": 0}
        assert await fetched(inside, "h", "orders") == -1
        assert await commit(inside, "h", ("orders", 4)) == {"orders": 0}
        assert await fetched(inside, "h", "orders") == 4
        assert await commit(inside, "h", ("orders", 5)) == {"orders": 0}
        assert await fetched(inside, "h", "orders") == 4, "it does not go on to where the base was"
        assert await commit(inside, "h", ("orders", 1_000)) == {"orders": 0}
        assert await fetched(inside, "h", "orders") == 1_000, "what neither has is taken as said, as Kafka takes it"
        assert (await ask(node, "DELETE", f"/v1/topics/{TOPIC}")).status == 204
        assert await fetched(Client(node), "h", "orders") == -1, "the base's groups know nothing of it"

    run(test)
