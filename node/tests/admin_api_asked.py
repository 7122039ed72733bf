"""Nodes of a cluster in one event loop, asked over the fronts of their admin APIs."""

import asyncio
import json
from typing import Any, NamedTuple

from nodes_in_one_loop import BROKERS, Cluster, until

from bmq_node.node import Node

FAST = 103


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


async def ask(
    node: Node,
    method: str,
    path: str,
    body: Any = None,
    *,
    query: str = "",
    headers: dict[str, str] | None = None,
) -> Answer:
    """Over the front as a server calls it, from this machine. A body of bytes is sent as it is."""
    sent: list[Any] = []
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    messages = [{"type": "http.request", "body": raw, "more_body": False}]

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1:9080", "content-type": "application/json", **(headers or {})}
    await node.admin.front(
        {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
        },
        receive,
        send,
    )
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(part["body"] for part in sent[1:])
    return Answer(
        sent[0]["status"], found, json.loads(text) if "json" in found.get("content-type", "") and text else text
    )


async def started(cluster: Cluster) -> Node:
    """A leading controller, a standby, two brokers (the second one in the pool `fast`) and a proxy; nothing is balanced
    by itself. The proxy.
    """
    await cluster.start(201, "controller", balance_interval_ms="0")
    await asyncio.gather(
        cluster.start(202, "controller", balance_interval_ms="0"),
        *(cluster.start(broker, "broker") for broker in BROKERS),
        cluster.start(FAST, "broker", pool="fast"),
        cluster.start(1, "proxy"),
    )
    nodes = {1, 201, 202, FAST, *BROKERS}
    for node in cluster.nodes.values():
        assert node.admin.front.state.sources is not None
        await until(node.admin.front.state.sources.metadata, lambda image: nodes <= set(image.nodes))
    return cluster.nodes[1]


async def with_topic(cluster: Cluster, *, partitions: int = 4) -> Node:
    proxy = await started(cluster)
    assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "partitions": partitions})).status == 201
    return proxy


async def owners(node: Node) -> list[int]:
    return [one["owner"] for one in (await ask(node, "GET", "/v1/placement", query="topic=orders")).body["items"]]
