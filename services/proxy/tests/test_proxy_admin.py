"""The admin address over a real uvicorn on the loopback."""

import asyncio
import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import uvicorn
from proxy_in_memory import Running, batch, running_proxy

from bmq.wire.message import Message
from bmq_proxy.admin_front import AdminFront, AdminSources


class Admin:
    """A started admin address."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def get(self, path: str) -> tuple[int, str]:
        def fetch() -> tuple[int, str]:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                    return reply.status, reply.read().decode()
            except HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.get_running_loop().run_in_executor(None, fetch)

    async def json(self, path: str) -> Any:
        status, text = await self.get(path)
        assert status == 200, text
        return json.loads(text)


def run(test: Any) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            sources = AdminSources()
            server = uvicorn.Server(uvicorn.Config(AdminFront(sources), port=0, log_config=None, access_log=False, lifespan="off"))
            task = asyncio.create_task(server._serve())
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                await test(proxy, sources, Admin(server.servers[0].sockets[0].getsockname()[1]))
            finally:
                server.should_exit = True
                await task

    asyncio.run(main())


def test_a_node_says_that_it_starts_until_it_serves() -> None:
    async def test(proxy: Running, sources: AdminSources, admin: Admin) -> None:
        assert await admin.get("/livez") == (200, "ok\n")
        assert await admin.get("/readyz") == (503, "starting\n")
        assert (await admin.get("/v1/topics"))[0] == 503
        sources.proxy = proxy.role.proxy
        assert await admin.get("/readyz") == (200, "ok\n")
        sources.readiness.append(lambda: "no controller")
        assert await admin.get("/readyz") == (503, "no controller\n")

    run(test)


def test_docs_need_nothing_from_elsewhere() -> None:
    async def test(_: Running, __: AdminSources, admin: Admin) -> None:
        status, page = await admin.get("/docs")
        assert status == 200
        assert "http" not in page.replace("https://", "http").split("<body>")[1].split("openapi.json")[0]
        assert "src=" not in page
        assert "/v1/groups/{group_id}" in (await admin.json("/openapi.json"))["paths"]

    run(test)


def test_topics_are_shown_with_offsets_and_metrics_count_requests() -> None:
    async def test(proxy: Running, sources: AdminSources, admin: Admin) -> None:
        sources.proxy = proxy.role.proxy
        proxy.metadata.add_topic("orders", 2, {"retention.ms": "5"})
        client = await proxy.connect()
        client.send_produce("orders", {1: batch(b"a", b"b")})
        await client.receive()
        assert (await admin.json("/v1/cluster"))["partitions"] == 2
        assert [one["name"] for one in await admin.json("/v1/topics")] == ["orders"]
        topic = await admin.json("/v1/topics/orders")
        assert (topic["configs"], topic["partitions"][1]["high_watermark"]) == ({"retention.ms": "5"}, 2)
        assert (await admin.get("/v1/topics/none"))[0] == 404
        _, metrics = await admin.get("/metrics")
        assert 'bmq_proxy_requests_total{api="Produce",error="none"}' in metrics

    run(test)


def test_a_groups_lag_is_told_in_records_and_seconds() -> None:
    async def test(proxy: Running, sources: AdminSources, admin: Admin) -> None:
        sources.proxy = proxy.role.proxy
        proxy.metadata.add_topic("orders", 1)
        client = await proxy.connect()
        now_ms = proxy.role.proxy.clock.now_ms()
        client.send_produce("orders", {0: batch(b"a", b"b", timestamp_ms=now_ms - 9_000)})
        await client.receive()
        client.send_produce("orders", {0: batch(b"c", timestamp_ms=now_ms - 4_000)})
        await client.receive()

        def coordinator(partition: int, api_key: int, request: Any, caller: Any) -> Any:
            if api_key == 16:
                return {
                    "error_code": 0,
                    "groups": [{"group_id": "g", "group_state": "Stable", "protocol_type": "consumer"}] if partition == 0 else [],
                }
            if api_key == 15:
                member = Message(member_id="m", group_instance_id=None, client_id="c", client_host="/h")
                groups = [{"group_id": one, "group_state": "Stable" if one == "g" else "Dead", "members": [member]} for one in request.groups]
                return {"groups": groups}
            offset = {"partition_index": 0, "committed_offset": 2, "metadata": "x", "error_code": 0}
            topics = [{"name": "orders", "partitions": [offset]}] if request.groups[0].group_id == "g" else []
            return {"groups": [{"group_id": request.groups[0].group_id, "topics": topics}]}

        proxy.owner.on_group_call = coordinator
        assert await admin.json("/v1/groups") == []
        await client.ask(10, 2, {"key": "g"})
        assert [one["group_id"] for one in await admin.json("/v1/groups")] == ["g"]
        group = await admin.json("/v1/groups/g")
        assert (group["lag_records"], group["lag_seconds"], group["members"][0]["client_host"]) == (1, 4.0, "/h")
        assert group["offsets"][0]["high_watermark"] == 3
        assert (await admin.get("/v1/groups/none"))[0] == 404

    run(test)
