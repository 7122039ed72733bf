"""CRDs that are missing when an operator begins: it is not ready, and watches them once they come."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from served import served_at

from bmq_operator.definitions import OTHERS_AGAIN_S, OWN_AGAIN_S, Definitions
from bmq_operator.handlers import OWN, SPARK
from bmq_operator.health import HealthServer
from bmq_operator.kube import Kube, KubeUnreachable
from bmq_operator.main import Operator
from bmq_operator.settings import OperatorSettings

CORE: dict[str, list[str]] = {
    "/api/v1": ["pods", "services", "secrets", "namespaces", "events"],
    "/apis/apps/v1": ["statefulsets"],
    "/apis/batch/v1": ["jobs"],
}
GROUPS = ("apps/v1", "batch/v1", "bmq.io/v1alpha1")


class Definers:
    """Says which resources there are, and notes how long is waited between two looks."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.down = False
        self.waits_s: list[float] = []

    async def served(self, group: str, version: str) -> frozenset[str]:
        if self.down:
            raise KubeUnreachable("away")
        return frozenset(name.partition(".")[0] for name in self.there if name.partition(".")[2] == group)

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.down = len(self.waits_s) == 1
        if len(self.waits_s) == 3:
            self.there |= {"lanes.bmq.io", "sparkapplications.sparkoperator.k8s.io"}


ALL = {f"{plural}.{group}" for group, _, plural in OWN}


@pytest.mark.parametrize(("there", "pace_s"), [(ALL - {"lanes.bmq.io"}, OWN_AGAIN_S), (ALL, OTHERS_AGAIN_S)])
def test_crds_that_come_later_are_seen_and_until_then_the_operator_lacks_its_own(
    there: set[str], pace_s: float
) -> None:
    async def main() -> None:
        kube = Definers(*there)
        definitions = Definitions(kube, (*OWN, *SPARK), sleep=kube.sleep)  # type: ignore[arg-type]
        assert definitions.why_not_ready() == "", "nobody has looked"
        await definitions.look()
        text = "CRDs are missing: lanes.bmq.io: apply those of bmq's chart"
        assert definitions.why_not_ready() == ("" if there == ALL else text)
        await asyncio.wait_for(definitions.until_one_comes(), 10)
        assert kube.waits_s == [pace_s] * 3, "though the API server was away once"
        definitions.forget()
        kube.down, kube.waits_s = True, []
        await definitions.look()
        kube.there |= {"scheduledsparkapplications.sparkoperator.k8s.io"}
        assert not await asyncio.wait_for(definitions.until_one_comes(), 10), "none was lacking"
        assert kube.waits_s == [OWN_AGAIN_S] * 2, "until the API server said it"
        definitions.lacking = frozenset({"scheduledsparkapplications.sparkoperator.k8s.io"})
        assert definitions.why_not_ready() == ""
        assert definitions.lacking == {"scheduledsparkapplications.sparkoperator.k8s.io"}

    asyncio.run(main())


def test_an_operator_that_lacks_its_own_crds_is_not_ready_and_lives() -> None:
    async def main() -> None:
        why = "CRDs are missing"
        health = HealthServer(
            "127.0.0.1:0", why_dead=lambda: "", why_not_ready=lambda: why, before_metrics=lambda: None
        )
        app = health._runner.app
        async with TestClient(TestServer(app)) as client:
            readyz, livez = await client.get("/readyz"), await client.get("/livez")
            assert (readyz.status, await readyz.text(), livez.status) == (503, "CRDs are missing", 200)
            why = ""
            assert (await client.get("/readyz")).status == 200

    asyncio.run(main())


class ApiServer:
    """With bmq's CRDs once `defined` is set; no objects, and watches that tell nothing until the end."""

    def __init__(self) -> None:
        self.defined = False
        self.looked = asyncio.Event()
        """For what there is of bmq's resources."""
        self.watched: set[str] = set()
        self.pods_watched = asyncio.Event()
        self.all_watched = asyncio.Event()
        self.end = asyncio.Event()

    def _resources(self, path: str) -> list[str] | None:
        if path == "/apis/bmq.io/v1alpha1":
            self.looked.set()
            return [plural for _, _, plural in OWN] if self.defined else None
        return CORE.get(path)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path in ("/api", "/apis"):
            versions = {name: {"version": version} for name, _, version in (one.partition("/") for one in GROUPS)}
            groups = [
                {"name": name, "versions": [version], "preferredVersion": version} for name, version in versions.items()
            ]
            return web.json_response({"versions": ["v1"], "groups": groups})
        if path == "/version":
            return web.json_response({})
        if path.count("/") <= 3 and request.query.get("limit") is None:
            names = self._resources(path)
            if names is None:
                return web.json_response({"kind": "Status", "reason": "NotFound", "message": "no"}, status=404)
            return web.json_response({"resources": [_resource(name) for name in names]})
        if "watch" in request.query:
            self.watched.add(path.rpartition("/")[2])
            if "pods" in self.watched:
                self.pods_watched.set()
            if {plural for _, _, plural in OWN} <= self.watched:
                self.all_watched.set()
            stream = web.StreamResponse()
            await stream.prepare(request)
            await self.end.wait()
            return stream
        return web.json_response({"apiVersion": "v1", "items": [], "metadata": {"resourceVersion": "1"}})


def _resource(name: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    return {"name": name, "kind": name, "singularName": name, "namespaced": name != "namespaces", "verbs": verbs}


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(file))
    yield file


def test_an_operator_of_named_namespaces_ends_for_crds_that_came_after_it_began_and_the_next_one_watches_them(
    kubeconfig: Path,
) -> None:
    async def main() -> None:
        server = ApiServer()
        come = asyncio.Event()

        async def until_they_come(seconds: float) -> None:
            await come.wait()

        async def begun() -> Operator:
            made = Operator(OperatorSettings(namespaces=("shop",)), await Kube.connect(str(kubeconfig)))
            made.definitions = Definitions(made.kube, OWN, sleep=until_they_come)
            return made

        async with served_at(server.answer) as url:
            _write_config(kubeconfig, url)
            operator, stop = await begun(), asyncio.Event()
            leading = asyncio.create_task(operator.lead(stop))
            async with asyncio.timeout(60):
                await server.looked.wait()
                await server.pods_watched.wait()
                assert not server.watched & {plural for _, _, plural in OWN}
                assert "clusters.bmq.io" in operator.definitions.why_not_ready()
                server.defined = True
                come.set()
                await leading
                await operator.close()
                operator = await begun()
                leading = asyncio.create_task(operator.lead(stop))
                await server.all_watched.wait()
                assert operator.definitions.why_not_ready() == ""
                stop.set()
                server.end.set()
                await leading
            await operator.close()

    asyncio.run(main())


def _write_config(file: Path, url: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": url}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
    }
    file.write_text(json.dumps(config))
