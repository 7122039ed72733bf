"""An idempotent producer's client sends ahead: what it sent behind a batch that was refused is not taken before that
batch.
"""

from collections.abc import Sequence

from admin_api_asked import ask
from nodes_in_one_loop import Cluster, run, until
from tests.bare_client import AsyncBareClient

from bmq.errors import ControllerUnavailable
from bmq.roles.controller import NewTopic, TopicResult
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.records import Record, build_batch
from bmq_node.node import Node
from bmq_proxy.lanes.overlays import Overlays

VERSION = 9


def of_producer(sequence: int) -> bytes:
    record = Record(0, 1_700_000_000_000, None, b"record %d" % sequence)
    return build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)


async def produced(node: Node, client_id: str, *batches: bytes) -> list[tuple[ErrorCode, int]]:
    """(code, offset) of each, all sent in one write, by requests that are not alike: those would go on as one."""
    assert node.proxy is not None
    client = await AsyncBareClient.connect("127.0.0.1", node.proxy.port)
    client.client_id = client_id
    for number, batch in enumerate(batches):
        topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
        request = {"transactional_id": None, "acks": -1, "timeout_ms": 5_000 + number, "topic_data": topics}
        client.send(ApiKey.PRODUCE, VERSION, request)
    found = []
    for _ in batches:
        one = (await client.receive())[1].responses[0].partition_responses[0]
        found.append((ErrorCode(one.error_code), one.base_offset))
    client.close()
    return found


def test_what_was_sent_behind_a_first_write_waits_for_it_where_the_topic_could_not_be_made_once() -> None:
    class Unavailable:
        """A controller that changes, for its first call."""

        def __init__(self, overlays: Overlays) -> None:
            self._overlays, self._real = overlays, overlays._controller

        async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
            self._overlays._controller = self._real
            raise ControllerUnavailable("no controller leads")

    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        assert (await ask(node, "POST", "/v1/topics", {"name": "orders", "partitions": 1})).status == 201
        assert (await ask(node, "POST", "/v1/lanes", {"name": "dev"})).status == 201
        assert node.proxy is not None
        await until(node.proxy.proxy.metadata.real, lambda image: "dev" in image.lanes)
        real = Overlays.__init__

        def unavailable_once(self: Overlays, *arguments: object, **named: object) -> None:
            real(self, *arguments, **named)  # type: ignore[arg-type]
            self._controller = Unavailable(self)  # type: ignore[assignment]

        Overlays.__init__ = unavailable_once  # type: ignore[assignment,method-assign]
        try:
            first = await produced(node, "lane=dev", of_producer(0), of_producer(1))
        finally:
            Overlays.__init__ = real  # type: ignore[method-assign]
        assert first == [(ErrorCode.unknown_topic_or_partition, -1), (ErrorCode.not_leader_or_follower, -1)]
        assert await produced(node, "lane=dev", of_producer(0), of_producer(1)) == [
            (ErrorCode.none, 0),
            (ErrorCode.none, 1),
        ]

    run(test)
