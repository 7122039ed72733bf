"""What reaches an API server of what the operator writes."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio import client

from bmq_operator.kube import Kube

TEXTS = ("plain", "\U0001f680 and \U00020bb7", "ümläut \u2028 \x7f\x85 \ufffe", 'quotes " and \\ud83d\\ude80')


@pytest.mark.parametrize("text", TEXTS)
def test_a_server_side_apply_is_read_as_yaml_with_whatever_text_it_has(text: str) -> None:
    got: list[tuple[str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        got.append((request.headers["Content-Type"], await request.read()))
        return web.json_response({})

    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b"},
            "data": {"text": text},
        }
        async with client.ApiClient(client.Configuration(host=f"http://{host}:{port}")) as api:
            await Kube(api).apply(manifest)
        await runner.cleanup()
        [(kind, body)] = got
        assert kind.startswith("application/apply-patch+yaml")
        assert json.loads(body) == manifest
        assert yaml.safe_load(body.decode()) == manifest

    asyncio.run(main())
