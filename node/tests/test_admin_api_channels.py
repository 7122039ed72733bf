"""Channels of Databus by the admin API of a cluster's nodes."""

import asyncio
import json
from typing import Any

from admin_api_asked import ask, started
from nodes_in_one_loop import Cluster, run

from bmq.naming.bearer import watching_token
from bmq.runtime.bearer_tokens import BearerTokens
from bmq_controller.api.bodies import DEPTH_MAX
from bmq_controller.api.channel_watch import WATCH_PATH
from bmq_node.node import Node

LARGE = {"allOf": [{"pattern": f"\\p{{L}}{{22}}{number}"} for number in range(560)]}
"""17 KB, which were compiled into 600 MiB."""


def test_a_channel_is_made_read_changed_and_deleted_by_its_version() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        dry = await ask(proxy, "POST", "/v1/channels", {"name": "orders", "spec": {}}, query="validate_only=true")
        assert (dry.status, dry.body["name"], dry.body["spec"]) == (200, "orders", {})
        assert (await ask(proxy, "GET", "/v1/channels")).body["items"] == []
        made = await ask(proxy, "POST", "/v1/channels", {"name": "orders", "spec": {"topic": "shop.orders"}})
        assert (made.status, made.headers["location"]) == (201, "/v1/channels/orders")
        assert (made.body["name"], made.body["spec"]) == ("orders", {"topic": "shop.orders"})
        again = await ask(proxy, "POST", "/v1/channels", {"name": "orders"})
        assert (again.status, again.body["code"]) == (409, "ChannelExists")
        seen = {"if-match": made.headers["etag"]}
        wanted = {"spec": {"acknowledgement": "accepted", "enabled": True, "spool": {"maxBytes": 1 << 21}}}
        tried = await ask(proxy, "PUT", "/v1/channels/orders", wanted, query="validate_only=true", headers=seen)
        assert (tried.status, tried.body["version"]) == (200, made.body["version"])
        changed = await ask(proxy, "PUT", "/v1/channels/orders", wanted, headers=seen)
        assert (changed.status, changed.body["spec"]) == (
            200,
            {"acknowledgement": "accepted", "spool": {"maxBytes": 1 << 21}},
        )
        for method, body in (("PUT", {}), ("DELETE", None)):
            refused = await ask(proxy, method, "/v1/channels/orders", body, headers=seen)
            assert (refused.status, refused.body["code"]) == (412, "VersionMismatch"), method
        read = await ask(proxy, "GET", "/v1/channels/orders")
        assert (read.status, read.headers["etag"], read.body) == (200, changed.headers["etag"], changed.body)
        assert (await ask(proxy, "GET", "/v1/channels")).body == {"items": [read.body], "continue": None}
        gone = await ask(proxy, "DELETE", "/v1/channels/orders", headers={"if-match": read.headers["etag"]})
        assert gone.status == 204
        missing = await ask(proxy, "GET", "/v1/channels/orders")
        assert (missing.status, missing.body["code"], missing.body["what"]) == (404, "UnknownChannel", "channel orders")

    run(test)


def test_what_a_channel_cannot_be_is_refused_with_the_field() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        for body, why in (
            ({"name": "a", "spec": {"topc": "x"}}, "spec.topc: "),
            ({"name": "a", "spec": {"acknowledgement": "never"}}, "spec.acknowledgement: "),
            ({"name": "a", "spec": {"spool": {"maxBytes": 1}}}, "spec.spool.maxBytes: "),
            ({"name": "a", "spec": {"topic": "a/b"}}, "spec.topic: The topic name 'a/b' is illegal"),
            ({"name": "a" * 250, "spec": {}}, "spec.topic: "),
            ({"name": "A"}, "The channel name 'A' is illegal"),
            ({"name": "a", "spec": {"topic": "\ud800"}}, ""),
            ({"name": "a", "spec": {"schema": {"json": {"type": "nonsense"}}}}, "spec.schema.json: "),
            ({"name": "a", "spec": {"schema": {"json": LARGE}}}, "spec.schema.json: it has 560 patterns, and 256"),
        ):
            refused = await ask(proxy, "POST", "/v1/channels", body)
            assert (refused.status, refused.body["why"].startswith(why)) == (400, True), refused.body
        assert (await ask(proxy, "PUT", "/v1/channels/none", {})).status == 404
        assert (await ask(proxy, "POST", "/v1/channels", {"name": "b"})).status == 201
        large = {"spec": {"schema": {"json": {"allOf": LARGE["allOf"][:100]}}}}
        refused = await ask(proxy, "PUT", "/v1/channels/b", large)
        assert (refused.status, refused.body["why"][:60]) == (
            400,
            "spec.schema.json: its patterns are compiled into more than 4",
        )
        assert refused.body["remedy"].startswith("lower its repetitions")
        assert (await ask(proxy, "DELETE", "/v1/channels/b")).status == 204
        assert (await ask(proxy, "GET", "/v1/channels")).body["items"] == []

    run(test)


def test_every_node_tells_who_waits_what_changes_from_its_own_image_and_forgets_who_is_gone() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        waiting = {}
        for node_id, node in cluster.nodes.items():
            first = await ask(node, "GET", WATCH_PATH)
            assert (first.status, first.body["complete"], first.body["channels"]) == (200, True, [])
            waiting[node_id] = asyncio.create_task(watched(node, first.body["version"]))
        leaver = asyncio.create_task(watched(proxy, first.body["version"], leaves=True))
        await ask(proxy, "POST", "/v1/channels", {"name": "orders"})
        for task in waiting.values():
            found = await task
            made = await ask(proxy, "GET", "/v1/channels/orders")
            orders = {"name": "orders", "spec": {}, "created_ms": made.body["created_ms"]}
            assert (found["complete"], found["channels"]) == (False, [orders])
        assert await leaver is None

    run(test)


def test_what_a_watch_cannot_be_asked_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        for query in ("wait_seconds=61", "wait_seconds=-1", "wait_seconds=nan", "wait_seconds=x", "watch=true"):
            refused = await ask(proxy, "GET", WATCH_PATH, query=query)
            assert (refused.status, refused.body["code"]) == (400, "InvalidRequest"), query
        assert (await ask(proxy, "POST", WATCH_PATH, {})).status == 405
        crossed = await ask(proxy, "GET", WATCH_PATH, headers={"origin": "http://other"})
        assert (crossed.status, crossed.body["code"]) == (403, "OtherSite")

    run(test)


def test_a_token_that_watches_channels_opens_nothing_else() -> None:
    whole = "a-token-of-the-operators"

    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        for node in cluster.nodes.values():
            node.admin.front.state.tokens = BearerTokens(None, option="admin_token_file", tokens=[whole])
        lesser = {"authorization": f"Bearer {watching_token(whole)}"}
        assert (await ask(proxy, "GET", WATCH_PATH, query="wait_seconds=0")).status == 401
        for headers in (lesser, {"authorization": f"Bearer {whole}"}):
            assert (await ask(proxy, "GET", WATCH_PATH, query="wait_seconds=0", headers=headers)).status == 200
        for method, path in (
            ("GET", "/v1/channels"),
            ("GET", "/v1/self"),
            ("POST", "/v1/channels"),
            ("POST", WATCH_PATH),
        ):
            assert (await ask(proxy, method, path, {}, headers=lesser)).status == 401, path

    run(test)


async def watched(node: Node, after: str, *, leaves: bool = False) -> Any:
    """What the node answers; None: nothing, to who leaves at once."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if not messages and not leaves:
            await asyncio.Event().wait()
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": WATCH_PATH,
        "query_string": f"after={after}&wait_seconds=60".encode(),
        "headers": [(b"host", b"127.0.0.1:9080")],
        "client": ("127.0.0.1", 1),
    }
    await node.admin.front(scope, receive, send)
    body = b"".join(part["body"] for part in sent[1:])
    return json.loads(body) if body else None


def test_a_body_that_is_nested_too_deeply_is_refused_as_such_wherever_somebody_gives_up() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await started(cluster)
        for depth in (DEPTH_MAX - 4, DEPTH_MAX - 3, 500, *range(880, 1_000, 4), 4_900, 100_000):
            deep = b'{"default":' + b"[" * depth + b"]" * depth + b"}"
            body = b'{"name":"d%d","spec":{"schema":{"json":%s}}}' % (depth, deep)
            answer = await ask(proxy, "POST", "/v1/channels", body)
            if depth == 100_000:
                assert (answer.status, answer.body["code"]) == (413, "RequestTooLarge")
                continue
            assert answer.status == 400, (depth, answer)
            is_deep = depth + 4 > DEPTH_MAX
            assert (answer.body["why"] == "its body is nested too deeply") is is_deep, (depth, answer)

    run(test)
