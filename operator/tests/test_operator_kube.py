"""What reaches an API server of what the operator writes, and what it is told."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from aiohttp import web
from served import served

from bmq_operator.kube import KubeProblem

TEXTS = ("plain", "\U0001f680 and \U00020bb7", "ümläut \u2028 \x7f\x85 \ufffe", 'quotes " and \\ud83d\\ude80')


@pytest.mark.parametrize("text", TEXTS)
def test_a_server_side_apply_is_read_as_yaml_with_whatever_text_it_has(text: str) -> None:
    got: list[tuple[str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        got.append((request.headers["Content-Type"], await request.read()))
        return web.json_response({})

    async def main() -> None:
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b"},
            "data": {"text": text},
        }
        async with served(answer) as kube:
            await kube.apply(manifest)
        [(kind, body)] = got
        assert kind.startswith("application/apply-patch+yaml")
        assert json.loads(body) == manifest
        assert yaml.safe_load(body.decode()) == manifest

    asyncio.run(main())


@pytest.mark.parametrize("date", ["Mon, 02 Feb 2026 02:40:00 GMT", "soon", ""])
def test_what_time_it_is_by_the_api_server_is_known_where_it_says_one(date: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({}, headers={"Date": date})

    async def main() -> None:
        async with served(answer) as kube:
            assert kube.now_ms() is None, "nothing was asked"
            await kube.get("Namespace", "", "shop")
            told = kube.now_ms()
            if "2026" in date:
                assert told is not None and told >= 1_770_000_000_000
            else:
                assert told is None

    asyncio.run(main())


def test_what_is_too_large_for_the_api_server_is_refused_with_what_helps() -> None:
    async def answer(request: web.Request) -> web.Response:
        status = {"kind": "Status", "reason": "RequestEntityTooLarge", "message": "limit is 3145728"}
        return web.json_response(status, status=413)

    async def main() -> None:
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "b"},
        }
        async with served(answer) as kube:
            with pytest.raises(KubeProblem) as raised:
                await kube.apply(manifest)
        problem = raised.value
        assert problem.status == 413
        assert not problem.too_large, "that is what the operator has no memory for"
        assert problem.message.startswith("PATCH /api/v1/namespaces/b/configmaps/a: ")
        assert "limit is 3145728" in problem.message
        assert problem.message.endswith("shorten what the resource says, or leave some of it out")

    asyncio.run(main())
