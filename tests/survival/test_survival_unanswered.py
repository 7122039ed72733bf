"""While the object store does not answer at all, every request of Kafka's protocol is answered before clients give up,
and all goes on afterwards.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from compat_server import Minio
from survival_process import Survivor
from survival_wire import batch_of, create_topic, fetch_fields, produce, produce_fields
from tests.bare_client import BareClient

from bmq.wire.message import Message
from bmq_proxy.api import first_error

TOPIC, UNOPENED, GROUP = "orders", "unopened", "readers"
ANSWERED_WITHIN_S = 25
"""Beside the 10 s that a request waits for the store: the machine, and requests to the controller with times of their
own."""
WHOLE: dict[str, Any] = {"member_id": "", "group_instance_id": None, "protocol_type": "consumer"}
JOIN = {
    **WHOLE,
    "group_id": GROUP,
    "session_timeout_ms": 30_000,
    "rebalance_timeout_ms": 60_000,
    "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0"}],
}


@pytest.fixture
def minio(tmp_path: Path) -> Iterator[Minio]:
    server = Minio(tmp_path / "minio")
    yield server
    server.stop()


def _places(topic: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": topic, "partitions": [{"partition_index": 0, **fields}]}]


def _requests(member_id: str) -> dict[str, tuple[int, int, dict[str, Any]]]:
    commit = {"committed_offset": 1, "committed_metadata": ""}
    member = {"group_id": GROUP, "generation_id": 1, "member_id": member_id, "group_instance_id": None}
    epoch = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1}
    new = {"name": "made-meanwhile", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    of_topic = {"resource_type": 2, "resource_name": TOPIC, "configs": []}
    return {
        "Produce": (0, 8, produce_fields(TOPIC, 0, batch_of(b"x"), timeout_ms=5_000)),
        "Produce to what is not open": (0, 8, produce_fields(UNOPENED, 0, batch_of(b"x"), timeout_ms=5_000)),
        "Fetch at the tail": (1, 11, fetch_fields(TOPIC, 0, 1)),
        "Fetch out of range": (1, 11, fetch_fields(TOPIC, 0, 99)),
        "Fetch of what is not open": (1, 11, fetch_fields(UNOPENED, 0, 0)),
        "ListOffsets latest": (
            2,
            6,
            {"replica_id": -1, "isolation_level": 0, "topics": _places(TOPIC, current_leader_epoch=-1, timestamp=-1)},
        ),
        "ListOffsets by time": (
            2,
            6,
            {"replica_id": -1, "isolation_level": 0, "topics": _places(UNOPENED, current_leader_epoch=-1, timestamp=1)},
        ),
        "Metadata": (3, 9, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
        "Metadata that makes a topic": (3, 9, {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True}),
        "OffsetCommit": (8, 8, {"group_id": "other", "topics": _places(TOPIC, **commit)}),
        "OffsetFetch": (9, 7, {"group_id": "other", "topics": None, "require_stable": False}),
        "OffsetFetch of several": (
            9,
            8,
            {"groups": [{"group_id": f"g{n}", "topics": None} for n in range(40)], "require_stable": False},
        ),
        "FindCoordinator": (10, 3, {"key": GROUP, "key_type": 0}),
        "JoinGroup": (11, 7, {**JOIN, "group_id": "another"}),
        "JoinGroup of a member": (11, 7, {**JOIN, "member_id": member_id}),
        "Heartbeat": (12, 3, member),
        "SyncGroup": (14, 3, {**member, "assignments": [{"member_id": member_id, "assignment": b"all"}]}),
        "LeaveGroup": (13, 3, {"group_id": "left", "members": [{"member_id": "m", "group_instance_id": None}]}),
        "DescribeGroups": (15, 4, {"groups": [GROUP, "other", "another"], "include_authorized_operations": False}),
        "ListGroups": (16, 3, {}),
        "CreateTopics": (19, 5, {"topics": [new], "timeout_ms": 5_000, "validate_only": False}),
        "DeleteTopics": (20, 4, {"topic_names": [UNOPENED], "timeout_ms": 5_000}),
        "DeleteRecords": (21, 1, {"topics": _places(TOPIC, offset=0), "timeout_ms": 5_000}),
        "InitProducerId": (
            22,
            4,
            {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1},
        ),
        "OffsetForLeaderEpoch": (23, 3, {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [epoch]}]}),
        "DescribeConfigs": (
            32,
            3,
            {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}]},
        ),
        "AlterConfigs": (33, 1, {"resources": [of_topic], "validate_only": False}),
        "DescribeLogDirs": (35, 1, {"topics": None}),
        "CreatePartitions": (
            37,
            1,
            {"topics": [{"name": TOPIC, "count": 2, "assignments": None}], "timeout_ms": 5_000, "validate_only": False},
        ),
        "DeleteGroups": (42, 1, {"groups_names": ["gone", "other"]}),
        "IncrementalAlterConfigs": (44, 1, {"resources": [of_topic], "validate_only": False}),
        "OffsetDelete": (47, 0, {"group_id": "other", "topics": _places(TOPIC)}),
        "DescribeCluster": (60, 0, {"include_cluster_authorized_operations": False}),
    }


def test_every_request_is_answered_while_the_store_is_not_there(started: Callable[..., Survivor], minio: Minio) -> None:
    bmq = started("--store", minio.store_url("silent"), environment=minio.environment)
    bmq.start()
    with BareClient(bmq.servers) as peer:
        for topic in (TOPIC, UNOPENED):
            create_topic(peer, topic)
        assert produce(peer, TOPIC, 0, batch_of(b"first"))[0] == 0
        given = peer.ask(11, 7, JOIN)
        member_id = given.member_id
        joined = peer.ask(11, 7, {**JOIN, "member_id": member_id})
        assert (joined.error_code, joined.leader) == (0, member_id)

        def answered(asked: tuple[int, int, dict[str, Any]]) -> tuple[float, Message | None]:
            began = monotonic()
            answer = None
            with BareClient(bmq.servers, timeout_s=ANSWERED_WITHIN_S) as own, suppress(TimeoutError):
                answer = own.ask(*asked)
            return monotonic() - began, answer

        requests = _requests(member_id)
        pid = int((minio._folder / "pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(len(requests)) as pool:
                found = dict(zip(requests, pool.map(answered, requests.values()), strict=True))
        finally:
            os.kill(pid, signal.SIGCONT)
        for name, (seconds, answer) in found.items():
            print(f"{name}: {'no answer' if answer is None else first_error(answer)} after {seconds:.1f} s")
        assert [name for name, (_, answer) in found.items() if answer is None] == []
        assert produce(peer, TOPIC, 0, batch_of(b"afterwards"))[0] == 0
    assert bmq.stop() == 0
