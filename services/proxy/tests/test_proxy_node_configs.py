"""What tools of Kafka ask of a broker's configuration and no key of the cluster is: where it listens, which it is, what
its threads are.
"""

from uuid import UUID

import pytest
from one_connection import run
from proxy_in_memory import Client, Running

from bmq.config.cluster_config import validate_cluster
from bmq.config.kafka_keys import NODE_KEYS, VOID_KEYS
from bmq.errors import InvalidConfig
from bmq.metadata.image import Node
from bmq.values import BrokerEpoch, NodeId
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings


async def described(client: Client, name: str, *keys: str) -> dict[str, str]:
    answer = await client.ask(
        32, 4, {"resources": [{"resource_type": 4, "resource_name": name, "configuration_keys": list(keys) or None}]}
    )
    assert answer.results[0].error_code == 0
    assert all(row.read_only == (row.name in NODE_KEYS) for row in answer.results[0].configs)
    return {row.name: row.value for row in answer.results[0].configs}


def test_a_node_is_described_with_its_addresses_and_what_it_is() -> None:
    async def test(proxy: Running, client: Client) -> None:
        other = Node(
            node_id=NodeId(7),
            broker_epoch=BrokerEpoch(1),
            boot=UUID(int=7),
            roles=("proxy",),
            host="seven",
            port=9097,
            rack="b",
            listeners={"external": ("example.org", 31007)},
        )
        proxy.metadata.change(nodes={other.node_id: other})
        own = await described(client, "1")
        assert own["advertised.listeners"] == own["listeners"] == f"PLAINTEXT://127.0.0.1:{proxy.role.port}"
        assert (own["broker.id"], own["node.id"], own["broker.rack"], own["log.dirs"]) == ("1", "1", "", "object-store")
        assert own["num.partitions"] == "1"
        assert sorted(own) == list(own)
        assert await described(client, "7", *NODE_KEYS) == {
            "advertised.listeners": "PLAINTEXT://seven:9097,EXTERNAL://example.org:31007",
            "broker.id": "7",
            "broker.rack": "b",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "listeners": "PLAINTEXT://seven:9097,EXTERNAL://example.org:31007",
            "log.dirs": "object-store",
            "node.id": "7",
            "process.roles": "proxy",
        }
        assert not set(NODE_KEYS) & set(await described(client, ""))
        unknown = await client.ask(32, 4, {"resources": [{"resource_type": 4, "resource_name": "8"}]})
        assert unknown.results[0].error_code == ErrorCode.invalid_request

    run(test, ProxySettings(node_id=1))


def test_keys_of_kafka_without_effect_can_be_set_and_those_of_a_process_cannot() -> None:
    validate_cluster({key.name: key.default for key in VOID_KEYS})
    for name in NODE_KEYS:
        with pytest.raises(InvalidConfig, match="each process's own"):
            validate_cluster({name: "1"})
    with pytest.raises(InvalidConfig, match=r"did you mean num\.io\.threads"):
        validate_cluster({"num.io.thread": "1"})
