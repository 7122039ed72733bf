"""What DescribeConfigs shows of the cluster is what happens: each key, by default, by the command line, and set while
it runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import pytest
from nodes_in_one_loop import Cluster, run, until
from tests.waiting import until_async

from bmq.config.cluster_config import CLUSTER_KEYS
from bmq.config.topic_config import TOPIC_KEYS
from bmq.errors import PolicyViolation
from bmq.metadata.image import Topic
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq.values import NodeId, TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.messages import decode_response, encode_request
from bmq_broker.main import BrokerRole
from bmq_node.configuration.node_settings import NodeSettings
from bmq_node.node import Node
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.calls import Call, Lease
from bmq_proxy.handlers import k32_describe_configs
from bmq_proxy.proxy import Proxy

BROKER: Final = 4
CLUSTER: Final = ConfigResource(kind="broker", name="")


def call_of_nobody(api_key: int = ApiKey.FIND_COORDINATOR) -> Call:
    lease = Lease(MemoryBudget(1_000), 1)
    return Call(
        api_key=api_key, version=4, correlation_id=1, client_id="", client_host="/127.0.0.1", lease=lease, arrived=0.0
    )


class Roles:
    """A proxy and a broker of one cluster."""

    def __init__(self, proxy: Proxy, broker: BrokerRole) -> None:
        self.proxy = proxy
        self.broker = broker
        self._names = 0

    async def described(self) -> dict[str, str]:
        this = {"resource_type": BROKER, "resource_name": str(self.proxy.settings.node_id), "configuration_keys": None}
        call = call_of_nobody(ApiKey.DESCRIBE_CONFIGS)
        fields = {"resources": [this], "include_synonyms": True, "include_documentation": True}
        body = encode_request(call.api_key, call.version, fields)
        pending = k32_describe_configs.route(self.proxy).begin(call, body)
        assert isinstance(pending, asyncio.Future)
        parts = (await pending).parts
        assert parts is not None
        [answer] = decode_response(call.api_key, call.version, b"".join(parts)).results
        assert answer.error_code == 0, answer
        return {row.name: row.value for row in answer.configs}

    async def set(self, name: str, value: str) -> None:
        await self.proxy.controller.alter_configs(CLUSTER, [ConfigChange(name=name, operation="set", value=value)])
        for metadata in (self.proxy.metadata,):
            await until(metadata, lambda image: image.configs.get(("broker", ""), {}).get(name) == value)

    async def made(self) -> Topic:
        self._names += 1
        name = f"made-{self._names}"
        [result] = await self.proxy.controller.create_topics([NewTopic(name=name)])
        assert result.error is None
        image = await until(self.proxy.metadata, lambda image: image.topic(name) is not None)
        topic = image.topic(name)
        assert topic is not None
        return topic


def of_topics(field: str) -> Callable[[Roles], Awaitable[str]]:
    async def read(roles: Roles) -> str:
        topic = await roles.made()
        partition = await roles.broker._ownership.open(TopicPartition(topic.topic_id, 0))
        return _text(getattr(partition.config, field))

    return read


def of_groups(field: str, factor: int = 1) -> Callable[[Roles], Awaitable[str]]:
    """As a coordinator that was there before has it."""

    async def read(roles: Roles) -> str:
        topic = await roles.proxy.coordinators.offsets_topic(call_of_nobody())
        partition = await roles.broker._ownership.open(TopicPartition(topic.topic_id, 0))
        shard = await roles.broker._coordinators._shard(partition)
        return str(getattr(shard.settings, field) // factor)

    return read


async def auto_creates(roles: Roles) -> str:
    return _text(roles.proxy.auto_creates_topics)


async def deletes(roles: Roles) -> str:
    [result] = await roles.proxy.controller.delete_topics([(await roles.made()).topic_id])
    assert result.error is None or isinstance(result.error, PolicyViolation)
    return _text(result.error is None)


async def partitions_of_topics(roles: Roles) -> str:
    return str(len((await roles.made()).partitions))


async def partitions_of_offsets(roles: Roles) -> str:
    topic = roles.proxy.metadata.image.topic(CONSUMER_OFFSETS)
    if topic is not None:
        await roles.proxy.controller.delete_topics([topic.topic_id])
    return str(len((await roles.proxy.coordinators.offsets_topic(call_of_nobody())).partitions))


async def retention_interval(roles: Roles) -> str:
    return str(roles.broker.values.broker.retention_interval_ms)


async def producer_expiry(roles: Roles) -> str:
    return str(roles.broker.values.broker.producer_expiry_ms)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


READ: Final[dict[str, tuple[str, Callable[[Roles], Awaitable[str]]]]] = {
    "auto.create.topics.enable": ("false", auto_creates),
    "delete.topic.enable": ("false", deletes),
    "group.initial.rebalance.delay.ms": ("7", of_groups("initial_rebalance_delay_ms")),
    "group.max.session.timeout.ms": ("70000", of_groups("session_timeout_ms_max")),
    "group.max.size": ("17", of_groups("group_size_max")),
    "group.min.session.timeout.ms": ("700", of_groups("session_timeout_ms_min")),
    "log.message.timestamp.after.max.ms": ("71", of_topics("timestamp_after_max_ms")),
    "log.message.timestamp.before.max.ms": ("72", of_topics("timestamp_before_max_ms")),
    "log.message.timestamp.type": ("LogAppendTime", of_topics("timestamp_type")),
    "log.retention.bytes": ("73", of_topics("retention_bytes")),
    "log.retention.check.interval.ms": ("7400", retention_interval),
    "log.retention.ms": ("75", of_topics("retention_ms")),
    "log.roll.ms": ("76", of_topics("segment_ms")),
    "log.segment.bytes": ("77000", of_topics("segment_bytes")),
    "message.max.bytes": ("78", of_topics("max_message_bytes")),
    "num.partitions": ("3", partitions_of_topics),
    "offsets.retention.minutes": ("79", of_groups("offsets_retention_ms", 60_000)),
    "offsets.topic.num.partitions": ("2", partitions_of_offsets),
    "producer.id.expiration.ms": ("80", producer_expiry),
}
"""By key: another value than the default, and what happens, in the same words."""
ONE_VALUE: Final = {"log.cleanup.policy"}
"""Only the default is accepted so far."""
LAST: Final = "offsets.topic.num.partitions"
"""It counts when the topic is made."""


def has_no_effect(name: str) -> bool:
    return "No effect in bmq" in CLUSTER_KEYS[name].doc


async def one_process(cluster: Cluster, configs: dict[str, str], test: Callable[[Roles], Awaitable[None]]) -> None:
    """As `bmq up` runs it."""
    store = open_store("memory://")
    settings = NodeSettings(listen="127.0.0.1:0", cluster_configs=configs)
    node = Node(store, clock=SystemClock(), rng=SystemRng(), settings=settings)
    try:
        await node.start()
        assert node.proxy is not None and node.broker is not None
        await test(Roles(node.proxy.proxy, node.broker))
    finally:
        await node.stop(grace_s=0)
        store.close()


async def of_a_cluster(cluster: Cluster, configs: dict[str, str], test: Callable[[Roles], Awaitable[None]]) -> None:
    """As `bmq server` runs it."""
    given = ",".join(f"{name}={value}" for name, value in configs.items())
    node = await cluster.start(1, "controller,broker,proxy", **({"cluster_config": given} if given else {}))
    assert node.proxy is not None
    await until(node.proxy.proxy.metadata, lambda image: NodeId(1) in image.nodes)
    assert node.broker is not None
    await test(Roles(node.proxy.proxy, node.broker))


@pytest.fixture(params=[one_process, of_a_cluster], ids=["up", "server"])
def running(request: pytest.FixtureRequest) -> Callable[[dict[str, str], Callable[[Roles], Awaitable[None]]], None]:
    def run_with(configs: dict[str, str], test: Callable[[Roles], Awaitable[None]]) -> None:
        run(lambda cluster: request.param(cluster, configs, test))

    return run_with


def test_every_key_is_read_or_says_that_it_has_no_effect() -> None:
    for name in CLUSTER_KEYS:
        assert (name in READ or name in ONE_VALUE) != has_no_effect(name), name
    for key in TOPIC_KEYS.values():
        assert key.synonym is None or key.synonym in CLUSTER_KEYS


async def assert_effective(roles: Roles, wanted: dict[str, str]) -> None:
    described = await roles.described()
    for name in sorted(READ, key=lambda name: name == LAST):
        assert described[name] == wanted[name], name
        assert await READ[name][1](roles) == described[name], name


Running = Callable[[dict[str, str], Callable[[Roles], Awaitable[None]]], None]


def test_the_defaults_that_are_described_are_in_force(running: Running) -> None:
    running({}, lambda roles: assert_effective(roles, {name: CLUSTER_KEYS[name].default for name in READ}))


def test_what_the_command_line_sets_is_described_and_in_force(running: Running) -> None:
    configs = {name: value for name, (value, _) in READ.items()}
    running(configs, lambda roles: assert_effective(roles, configs))


def test_what_is_set_while_it_runs_is_described_and_in_force(running: Running) -> None:
    async def test(roles: Roles) -> None:
        for name, (value, read) in sorted(READ.items(), key=lambda item: item[0] == LAST):
            if name != LAST:
                assert await read(roles) == CLUSTER_KEYS[name].default, name
            await roles.set(name, value)
            await asyncio.sleep(0)
            assert (await roles.described())[name] == value
            if name not in ("delete.topic.enable", LAST):
                assert await read(roles) == value, name
        await roles.set("delete.topic.enable", "false")
        assert await deletes(roles) == "false"

    running({}, test)


def test_a_partition_that_is_open_takes_up_what_is_set(running: Running) -> None:
    async def test(roles: Roles) -> None:
        partitions = [
            await roles.broker._ownership.open(TopicPartition((await roles.made()).topic_id, 0)) for _ in range(2)
        ]
        for value in (75, 76):
            await roles.set("log.retention.ms", str(value))
            in_force = partial(lambda wanted: all(one.config.retention_ms == wanted for one in partitions), value)
            await until_async(in_force, f"{value} ms in force")

    running({}, test)
