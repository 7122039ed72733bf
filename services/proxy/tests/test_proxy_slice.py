"""The way of a client through the proxy: versions, metadata, produce, fetch, topics, coordinators."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog
from proxy_in_memory import Client, Running, batch, fetch_request, running_proxy
from tests.waiting import until_async

from bmq.metadata.image import Image
from bmq.values import TopicPartition
from bmq.wire.apis import SERVED
from bmq.wire.batch_headers import read_header
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.calls import Answer
from bmq_proxy.handlers.k03_metadata import AnswerCache
from bmq_proxy.settings import ProxySettings


def run(test: Callable[[Running, Client], Awaitable[None]], settings: ProxySettings | None = None) -> None:
    async def main() -> None:
        async with running_proxy(settings) as proxy:
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


def test_every_api_of_the_table_is_advertised_and_no_other() -> None:
    async def test(_: Running, client: Client) -> None:
        reply = await client.ask(18, 4, {"client_software_name": "test", "client_software_version": "1.0"})
        assert reply.error_code == 0
        found = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
        assert found == {key: (api.advertised_min, api.version_max) for key, api in SERVED.items()}

    run(test)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async def test(proxy: Running, _: Client) -> None:
        client = await proxy.connect()
        client.writer.write(bytes.fromhex("0000000e 0012 0063 00000007 0004 74657374"))
        size = int.from_bytes(await client.reader.readexactly(4), "big")
        frame = await client.reader.readexactly(size)
        assert int.from_bytes(frame[:4], "big") == 7
        assert int.from_bytes(frame[4:6], "big") == ErrorCode.unsupported_version
        assert int.from_bytes(frame[6:10], "big") == len(SERVED)

    run(test)


def test_a_connection_that_was_meant_for_another_cluster_or_node_is_told_so() -> None:
    async def test(_: Running, client: Client) -> None:
        software = {"client_software_name": "test", "client_software_version": "1.0"}
        for cluster_id, node_id, code in (
            ("test-cluster", 1, ErrorCode.none),
            (None, -1, ErrorCode.none),
            ("test-cluster", 2, ErrorCode.rebootstrap_required),
            ("elsewhere", 1, ErrorCode.rebootstrap_required),
        ):
            reply = await client.ask(18, 5, {**software, "cluster_id": cluster_id, "node_id": node_id})
            assert reply.error_code == code, (cluster_id, node_id)
            assert bool(reply.api_keys) == (code == ErrorCode.none)

    run(test)


def test_metadata_creates_a_topic_and_names_this_proxy_as_its_leader() -> None:
    async def test(proxy: Running, client: Client) -> None:
        reply = await client.ask(3, 12, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True})
        [topic] = reply.topics
        assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "orders", 1)
        assert [(one.node_id, one.host, one.port) for one in reply.brokers] == [(1, "127.0.0.1", proxy.role.port)]
        assert (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch) == (1, 3)
        assert reply.cluster_id == "test-cluster"

    run(test)


def test_metadata_creates_nothing_where_client_or_setting_forbid_it() -> None:
    async def test(proxy: Running, client: Client) -> None:
        reply = await client.ask(
            3, 12, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": proxy.role.proxy.settings.node_id == 2}
        )
        assert reply.topics[0].error_code == ErrorCode.unknown_topic_or_partition
        assert not proxy.controller.calls

    run(test)
    run(test, ProxySettings(node_id=2, auto_create_topics=False))


def test_metadata_is_encoded_once_for_each_image() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("orders", 2)
        first = await client.ask(3, 9, {"topics": None})
        again = await client.ask(3, 9, {"topics": None})
        assert first == again
        proxy.metadata.add_topic("bills", 1)
        assert [topic.name for topic in (await client.ask(3, 9, {"topics": None})).topics] == ["orders", "bills"]
        by_id = {"topics": [{"topic_id": proxy.metadata.image.topic_ids["bills"], "name": None}]}
        assert (await client.ask(3, 12, by_id)).topics[0].name == "bills"

    run(test)


def test_an_answer_is_kept_over_images_that_share_topics_and_nodes() -> None:
    cache = AnswerCache(1 << 20)
    image = Image(position=1, cluster_id="c")
    answer = Answer(parts=(b"x",), size_bytes=1)
    assert cache.find(image, 9, b"all") is None
    cache.keep(image, 9, b"all", answer)
    later = replace(image, position=2)
    assert cache.find(later, 9, b"all") is answer
    assert cache.find(later, 8, b"all") is None
    assert cache.find(replace(later, topics={}), 9, b"all") is None
    assert cache.find(later, 9, b"all") is None, "what belonged to other topics came back"


def test_what_is_produced_is_fetched() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("orders", 2)
        client.send_produce("orders", {1: batch(b"a", b"b"), 0: batch(b"c")})
        _, produced = await client.receive()
        assert [(p.index, p.error_code, p.base_offset) for p in produced.responses[0].partition_responses] == [
            (1, 0, 0),
            (0, 0, 0),
        ]
        client.send_produce("orders", {1: batch(b"d")})
        _, produced = await client.receive()
        assert produced.responses[0].partition_responses[0].base_offset == 2
        for version in (4, 7, 11, 12):
            [topic] = (await client.ask(1, version, fetch_request("orders", 1, 1))).responses
            [partition] = topic.partitions
            assert (partition.error_code, partition.high_watermark) == (0, 3)
            assert read_header(partition.records).base_offset == 0
            assert read_header(partition.records, read_header(partition.records).size_bytes).base_offset == 2

    run(test)


def test_fetch_by_id_knows_its_topics_and_says_which_it_does_not() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic("orders", 1)
        client.send_produce("orders", {0: batch(b"a")})
        await client.receive()
        request = fetch_request("", 0, 0)
        request["topics"][0] = {"topic_id": topic.topic_id, "partitions": request["topics"][0]["partitions"]}
        [answer] = (await client.ask(1, 16, request)).responses
        assert (answer.topic_id, answer.partitions[0].error_code, len(answer.partitions[0].records)) == (
            topic.topic_id,
            0,
            len(batch(b"a")),
        )
        await client.ask(20, 6, {"topics": [{"name": None, "topic_id": topic.topic_id}]})
        [answer] = (await client.ask(1, 16, request)).responses
        assert answer.partitions[0].error_code == ErrorCode.unknown_topic_id

    run(test)


def test_a_fetch_that_poses_as_a_replica_is_refused() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic("orders", 1)
        client.send_produce("orders", {0: batch(b"a")})
        await client.receive()
        (part,) = (await client.ask(1, 4, fetch_request("orders", 0, 0, replica_id=0))).responses[0].partitions
        assert (part.error_code, part.records or b"") == (ErrorCode.invalid_request, b"")
        refused = await client.ask(1, 11, fetch_request("orders", 0, 0, replica_id=1))
        assert (refused.error_code, refused.responses) == (ErrorCode.invalid_request, [])
        request = fetch_request("", 0, 0, replica_state={"replica_id": 1, "replica_epoch": 0})
        request["topics"][0] = {"topic_id": topic.topic_id, "partitions": request["topics"][0]["partitions"]}
        refused = await client.ask(1, 16, request)
        assert (refused.error_code, refused.responses) == (ErrorCode.invalid_request, [])

    run(test)


def test_a_fetch_waits_for_records_and_is_answered_when_they_come() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("orders", 1)
        reader = await proxy.connect()
        reader.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=10_000))
        await until_async(lambda: proxy.owner.reads, "a read at the owner")
        client.send_produce("orders", {0: batch(b"a")})
        await client.receive()
        _, reply = await reader.receive()
        assert len(reply.responses[0].partitions[0].records) == len(batch(b"a"))

    run(test)


def test_produce_is_refused_for_each_partition_by_its_own_reason() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("orders", 1)
        proxy.metadata.add_topic("__consumer_offsets", 1)

        async def codes(topic: str, version: int = 9, acks: int = -1) -> list[int]:
            client.send_produce(topic, {0: batch(b"a"), 7: batch(b"a")}, version=version, acks=acks)
            _, reply = await client.receive()
            return [one.error_code for one in reply.responses[0].partition_responses]

        assert await codes("orders") == [0, ErrorCode.unknown_topic_or_partition]
        assert await codes("bills") == [ErrorCode.unknown_topic_or_partition] * 2
        assert await codes("__consumer_offsets") == [
            ErrorCode.invalid_topic_exception,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert await codes("orders", acks=2) == [ErrorCode.invalid_required_acks] * 2
        old = struct.pack(">hiih6sii", -1, 5_000, 1, 6, b"orders", 1, 0) + struct.pack(">i", 3) + b"old"
        client.send(0, 1, raw=old)
        _, body = await client.receive_raw()
        assert int.from_bytes(body[-14:-12], "big") == ErrorCode.unsupported_version

    run(test)


def test_a_topic_that_is_deleted_by_its_id_a_second_time_is_an_unknown_id() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic("orders", 1)
        by_id = {"topics": [{"name": None, "topic_id": topic.topic_id}], "timeout_ms": 1_000}
        codes = [(await client.ask(20, 6, by_id)).responses[0].error_code for _ in range(2)]
        assert codes == [ErrorCode.none, ErrorCode.unknown_topic_id], (
            "whoever got no answer to the first try may take the second for success"
        )

    run(test)


def test_a_topic_to_be_deleted_is_named_once_by_its_name_or_by_its_id() -> None:
    """Where the name was given to another topic since, deleting by it would take the wrong one."""

    async def test(proxy: Running, client: Client) -> None:
        gone, kept = proxy.metadata.add_topic("gone", 1), proxy.metadata.add_topic("orders", 1)
        asked = [{"name": "orders", "topic_id": gone.topic_id}, {"name": "gone", "topic_id": None}]
        twice, once = (await client.ask(20, 6, {"topics": asked, "timeout_ms": 1_000})).responses
        assert (twice.name, twice.error_code, once.error_code) == ("orders", ErrorCode.invalid_request, ErrorCode.none)
        assert set(proxy.metadata.image.topics) == {kept.topic_id}

    run(test)


def test_topics_are_created_described_grown_and_deleted() -> None:
    async def test(proxy: Running, client: Client) -> None:
        reply = await client.ask(
            19,
            7,
            {
                "topics": [
                    {
                        "name": "orders",
                        "num_partitions": 3,
                        "replication_factor": -1,
                        "configs": [{"name": "retention.ms", "value": "5"}],
                    }
                ]
            },
        )
        [topic] = reply.topics
        assert (topic.error_code, topic.num_partitions, topic.topic_id) == (
            0,
            3,
            proxy.metadata.image.topic_ids["orders"],
        )
        assert {one.name: (one.value, one.config_source) for one in topic.configs}["retention.ms"] == ("5", 1)
        reply = await client.ask(
            19, 2, {"topics": [{"name": name, "num_partitions": 1} for name in ("twice", "twice", "orders")]}
        )
        assert [(one.name, one.error_code) for one in reply.topics] == [
            ("twice", ErrorCode.invalid_request),
            ("orders", ErrorCode.topic_already_exists),
        ]
        assert (await client.ask(37, 3, {"topics": [{"name": "orders", "count": 5}]})).results[0].error_code == 0
        first = await client.ask(75, 0, {"topics": [{"name": "orders"}], "response_partition_limit": 3})
        assert (len(first.topics[0].partitions), first.next_cursor.partition_index) == (3, 3)
        assert [(one.eligible_leader_replicas, one.last_known_elr) for one in first.topics[0].partitions] == [
            ([], [])
        ] * 3, "Java takes no null"
        rest = await client.ask(
            75, 0, {"topics": [{"name": "orders"}], "response_partition_limit": 3, "cursor": first.next_cursor}
        )
        assert ([one.partition_index for one in rest.topics[0].partitions], rest.next_cursor) == ([3, 4], None)
        assert (await client.ask(20, 4, {"topic_names": ["orders", "none"]})).responses[1].error_code == 0
        assert proxy.metadata.image.topic("orders") is None

    run(test)


def test_the_first_question_for_a_coordinator_makes_the_offsets_topic() -> None:
    async def test(proxy: Running, client: Client) -> None:
        one = await client.ask(10, 2, {"key": "g", "key_type": 0})
        assert (one.error_code, one.node_id, one.port) == (0, 1, proxy.role.port)
        topic = proxy.metadata.image.topic("__consumer_offsets")
        assert topic is not None
        assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (16, "compact")
        several = await client.ask(10, 5, {"key_type": 0, "coordinator_keys": ["a", "b"]})
        assert [(one.key, one.error_code) for one in several.coordinators] == [("a", 0), ("b", 0)]
        assert len(proxy.controller.calls) == 1

    run(test)


def test_transactions_are_refused_at_once_with_codes_that_clients_do_not_try_again() -> None:
    """Of all codes librdkafka takes the authorisation's alone for final; it asks by versions 0 to 2. Others show the
    code's own text.
    """

    async def test(_: Running, client: Client) -> None:
        with structlog.testing.capture_logs() as logs:
            for version in (1, 2, 3):
                old = await client.ask(10, version, {"key": "t", "key_type": 1})
                assert old.error_code == ErrorCode.transactional_id_authorization_failed
                assert "transactions are not served" in old.error_message
            for version in (4, 5, 6):
                [new] = (await client.ask(10, version, {"key_type": 1, "coordinator_keys": ["t"]})).coordinators
                assert new.error_code == ErrorCode.unsupported_version
                assert "transactions are not served" in new.error_message
            [share] = (await client.ask(10, 6, {"key_type": 2, "coordinator_keys": ["g:topic:0"]})).coordinators
            assert (share.error_code, share.error_message.partition(":")[0]) == (
                ErrorCode.invalid_request,
                "Key type 2",
            )
            assert (await client.ask(22, 4, {"transactional_id": "t"})).error_code == ErrorCode.unsupported_version
        assert [(line["event"], line["client"]) for line in logs] == [
            ("transactional producer refused: this version of bmq has no transactions", client.client_id)
        ]

    run(test)


def test_producer_ids_are_taken_in_blocks_and_known_ones_get_a_new_epoch() -> None:
    async def test(proxy: Running, client: Client) -> None:
        ids = [(await client.ask(22, 4, {"transactional_id": None})).producer_id for _ in range(3)]
        assert ids == [10_000, 10_001, 10_002]
        assert proxy.controller.calls == [("allocate_producer_ids", 1_000)]
        again = await client.ask(22, 4, {"transactional_id": None, "producer_id": 4_999, "producer_epoch": 4})
        assert (again.producer_id, again.producer_epoch) == (4_999, 5)
        never_given = await client.ask(22, 4, {"transactional_id": None, "producer_id": 7_000_000, "producer_epoch": 4})
        assert (never_given.producer_id, never_given.producer_epoch) == (10_003, 0)

    run(test)


def test_the_smaller_administration_is_answered() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic("orders", 1, {"retention.ms": "5"})
        client.send_produce("orders", {0: batch(b"a", b"b")})
        await client.receive()
        latest = await client.ask(
            2,
            7,
            {"replica_id": -1, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        )
        assert latest.topics[0].partitions[0].offset == 2
        for replica_id in (0, 1):  # kafka-python 3.0 says 0
            asked = {
                "replica_id": replica_id,
                "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
            }
            posing = (await client.ask(2, 7, asked)).topics[0].partitions[0]
            assert (posing.error_code, posing.offset) == (0, 2)
        ends = await client.ask(
            23,
            4,
            {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": 3}]}]},
        )
        assert (ends.topics[0].partitions[0].leader_epoch, ends.topics[0].partitions[0].end_offset) == (3, 2)
        cut = await client.ask(
            21,
            2,
            {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout_ms": 1_000},
        )
        assert (cut.topics[0].partitions[0].low_watermark, cut.topics[0].partitions[0].error_code) == (1, 0)
        cluster = await client.ask(60, 1, {"endpoint_type": 1})
        assert (cluster.cluster_id, [one.broker_id for one in cluster.brokers]) == ("test-cluster", [1])
        assert (await client.ask(60, 1, {"endpoint_type": 2})).error_code == ErrorCode.unsupported_endpoint_type
        dirs = await client.ask(35, 4, {"topics": None})
        assert dirs.results[0].topics[0].partitions[0].partition_size == 42
        configs = await client.ask(
            32,
            4,
            {"resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": ["retention.ms"]}]},
        )
        assert [(row.name, row.value, row.config_source) for row in configs.results[0].configs] == [
            ("retention.ms", "5", 1)
        ]
        unknown = await client.ask(32, 4, {"resources": [{"resource_type": 2, "resource_name": "none"}]})
        assert unknown.results[0].error_code == ErrorCode.unknown_topic_or_partition
        change = {"name": "retention.ms", "config_operation": 0, "value": "6"}
        await client.ask(44, 1, {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": [change]}]})
        await client.ask(
            33,
            2,
            {
                "resources": [
                    {"resource_type": 4, "resource_name": "1", "configs": [{"name": "num.partitions", "value": "2"}]}
                ]
            },
        )
        assert [call[0] for call in proxy.controller.calls] == ["alter_configs", "replace_configs"]
        assert proxy.controller.calls[1][1].name == ""
        assert proxy.owner.log(TopicPartition(topic.topic_id, 0)).log_start == 1

    run(test)
