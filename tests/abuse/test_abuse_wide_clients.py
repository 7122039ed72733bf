"""Clients that ask for much because they need it are served as ever: ten thousand partitions or topics in one
request.
"""

import gc
from collections.abc import Iterator
from typing import Final

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s
from tests.bare_client import BareClient

from bmq.runtime.loop import settle
from bmq.wire.records import Record, build_batch

WIDE: Final = 10_000
TOPICS: Final = 1_000
TURN_S_MAX: Final = 0.25
"""A topic of ten thousand partitions is one decision of the controller."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("wide")) as running:
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@pytest.mark.measures
def test_ten_thousand_partitions_in_each_request_of_a_consumer(node: AbusedNode) -> None:
    with BareClient(node.kafka) as client:
        wanted = {"name": "wide", "num_partitions": WIDE, "replication_factor": 1, "assignments": [], "configs": []}
        made = client.ask(19, 5, {"topics": [wanted], "timeout_ms": 60_000, "validate_only": False})
        assert made.topics[0].error_code == 0
        node.longest_turn_s()
        described = client.ask(3, 9, {"topics": [{"name": "wide"}], "allow_auto_topic_creation": False})
        assert len(described.topics[0].partitions) == WIDE
        record = build_batch([Record(0, 1_000, None, b"here")])
        data = {"name": "wide", "partition_data": [{"index": WIDE - 1, "records": record}]}
        client.ask(0, 9, {"acks": -1, "timeout_ms": 10_000, "topic_data": [data]})
        indexes = range(WIDE)
        questions = [{"partition_index": index, "timestamp": -1} for index in indexes]
        ends = client.ask(2, 7, {"replica_id": -1, "topics": [{"name": "wide", "partitions": questions}]})
        assert sum(one.offset for one in ends.topics[0].partitions) == 1
        assert not any(one.error_code for one in ends.topics[0].partitions)
        commits = [{"partition_index": index, "committed_offset": 7} for index in indexes]
        commit = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": "wide", "partitions": commits}],
        }
        assert not any(one.error_code for one in client.ask(8, 8, commit).topics[0].partitions)
        fetched = client.ask(
            9,
            7,
            {
                "group_id": "g",
                "topics": [{"name": "wide", "partition_indexes": list(indexes)}],
                "require_stable": False,
            },
        )
        assert {one.committed_offset for one in fetched.topics[0].partitions} == {7}
        partitions = [
            {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
            for index in indexes
        ]
        options = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": 0}
        found = client.ask(1, 11, {**options, "topics": [{"topic": "wide", "partitions": partitions}]})
        assert [one.partition_index for one in found.responses[0].partitions if one.records] == [WIDE - 1]
        assert found.session_id
        more = {**options, "session_id": found.session_id, "session_epoch": 1, "topics": []}
        assert [one.partition_index for topic in client.ask(1, 11, more).responses for one in topic.partitions] == [
            WIDE - 1
        ]
        assert node.longest_turn_s() < may_hold_s(TURN_S_MAX)


@pytest.mark.measures
def test_thousands_of_topics_are_made_listed_described_and_deleted_by_one_client(node: AbusedNode) -> None:
    names = [f"t{n}" for n in range(TOPICS)]
    with BareClient(node.kafka) as client:
        wanted = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names
        ]
        node.longest_turn_s()
        made = client.ask(19, 5, {"topics": wanted, "timeout_ms": 60_000, "validate_only": False})
        assert [topic.error_code for topic in made.topics] == [0] * TOPICS
        listed = client.ask(3, 9, {"topics": None})
        assert {topic.name for topic in listed.topics} >= set(names)
        resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
        described = client.ask(32, 4, {"resources": resources, "include_synonyms": True, "include_documentation": True})
        assert [result.error_code for result in described.results] == [0] * TOPICS
        deleted = client.ask(20, 5, {"topic_names": names, "timeout_ms": 60_000})
        assert [one.error_code for one in deleted.responses] == [0] * TOPICS
        assert node.longest_turn_s() < may_hold_s(TURN_S_MAX)
