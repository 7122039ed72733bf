"""Without an authorizer a client may do everything, and is told so where it asks, with Kafka's bits; one that did not
ask is told nothing.
"""

import pytest
from one_connection import run
from proxy_in_memory import Client, Running

ALL_ON_TOPIC = 3576
ALL_ON_CLUSTER = 8096
NOT_ASKED = -(2**31)


@pytest.mark.parametrize(("version", "names_cluster"), [(8, True), (10, True), (12, False)])
def test_metadata_says_what_may_be_done_to_who_asks(version: int, names_cluster: bool) -> None:
    async def test(proxy: Running, client: Client) -> None:
        topics = [{"topic_id": None, "name": "orders"}, {"topic_id": None, "name": "none"}]
        for asks in (False, True, False):  # what is kept of an answer must not be given to another
            request = {
                "topics": topics,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": asks,
            }
            if names_cluster:
                request["include_cluster_authorized_operations"] = asks
            answer = await client.ask(3, version, request)
            assert [one.topic_authorized_operations for one in answer.topics] == [
                ALL_ON_TOPIC if asks else NOT_ASKED,
                NOT_ASKED,
            ]
            if names_cluster:
                assert answer.cluster_authorized_operations == (ALL_ON_CLUSTER if asks else NOT_ASKED)

    run(test)


def test_describe_cluster_and_describe_topic_partitions_say_what_may_be_done() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for asks in (False, True):
            answer = await client.ask(60, 1, {"include_cluster_authorized_operations": asks, "endpoint_type": 1})
            assert answer.cluster_authorized_operations == (ALL_ON_CLUSTER if asks else NOT_ASKED)
        answer = await client.ask(
            75, 0, {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None}
        )
        assert [one.topic_authorized_operations for one in answer.topics] == [ALL_ON_TOPIC]

    run(test)
