"""A Cluster that is a started bmq, resources of one kind, and what each look at them came to; the API server alone is
the tests' own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from kube_of_a_test import CLUSTER, KubeOfATest, TestClock, auth_secret, context_of
from real_bmq import TOKEN
from tests.started_bmq import StartedBmq

from bmq_admin.client import AdminClient
from bmq_admin.requests import Request
from bmq_operator.channels import reconcile as channels
from bmq_operator.context import Context
from bmq_operator.lanes import reconcile as lanes
from bmq_operator.outcome import Outcome
from bmq_operator.topics import reconcile as topics
from bmq_resources.channel import Channel
from bmq_resources.lane import Lane
from bmq_resources.topic import Topic

CREATED = "2001-09-09T01:46:40Z"
"""When a clock of the tests begins."""
LOOKS_MAX = 6


@dataclass
class World:
    """Resources of `kind` in the namespace shop. `asked`: the requests of the operator's client of the admin API."""

    kind: Literal["Topic", "Lane", "Channel"]
    kube: KubeOfATest
    context: Context
    client: AdminClient
    clock: TestClock
    asked: list[str] = field(default_factory=list)

    def write(self, name: str, *, created: str = CREATED, **spec: Any) -> None:
        """Makes a resource or changes it, as a user does."""
        old = self.manifest(name) if (self.kind, "shop", name) in self.kube.manifests else {"metadata": {}}
        generation = old["metadata"].get("generation", 0) + 1
        meta = {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "generation": generation,
            "creationTimestamp": created,
        }
        self.kube.keep(
            {
                "apiVersion": "bmq.io/v1alpha1",
                "kind": self.kind,
                "metadata": meta,
                "spec": spec,
                "status": old.get("status", {}),
            }
        )

    def manifest(self, name: str) -> dict[str, Any]:
        return self.kube.manifests[self.kind, "shop", name]

    async def look(self, name: str, **changes: Any) -> Outcome:
        """Looks until it asks for no further look at once, keeping the status as the operator would."""
        manifest = self.manifest(name)
        manifest["metadata"] |= changes
        for _ in range(LOOKS_MAX):
            outcome = await self._reconciled(manifest)
            if outcome.status is not None:
                manifest["status"] = outcome.status.written()
            if outcome.again_after_s != 0.0:
                return outcome
        raise AssertionError("it never comes to rest")

    async def intends(self, name: str) -> Outcome:
        """The one look that writes down what is to be made."""
        manifest = self.manifest(name)
        outcome = await self._reconciled(manifest)
        assert outcome.status is not None and outcome.again_after_s == 0.0
        manifest["status"] = outcome.status.written()
        return outcome

    async def _reconciled(self, manifest: dict[str, Any]) -> Outcome:
        if self.kind == "Topic":
            return await topics.reconcile(self.context, Topic.model_validate(manifest))
        if self.kind == "Channel":
            return await channels.reconcile(self.context, Channel.model_validate(manifest))
        return await lanes.reconcile(self.context, Lane.model_validate(manifest))


class Worlds:
    """Runs tests in worlds of one kind, each with these manifests besides the Cluster's."""

    def __init__(self, kind: Literal["Topic", "Lane", "Channel"], *manifests: dict[str, Any]) -> None:
        self._kind = kind
        self._manifests = manifests

    def run(
        self, bmq: StartedBmq, use: Callable[[World], Awaitable[None]], *, url: str = "", token: str = TOKEN
    ) -> None:
        """`url` and `token`: where the operator finds the admin API, and what it presents there; as they should be, if
        nothing else is said.
        """

        async def main() -> None:
            async with self._world(url or bmq.admin, token=token) as found:
                await use(found)

        asyncio.run(main())

    @asynccontextmanager
    async def _world(self, url: str, *, token: str) -> AsyncIterator[World]:
        clients: dict[tuple[str, str], AdminClient] = {}
        clock = TestClock()
        kube = KubeOfATest(CLUSTER, auth_secret(token), *self._manifests)
        found = World(
            self._kind, kube, context_of(kube, url, clients, clock=clock), AdminClient(url, token=TOKEN), clock
        )

        async def watched(request: Request) -> Any:
            path, _, _ = request.target.removeprefix("/v1/").partition("?")
            found.asked.append(f"{request.method} {path}")
            return await ask(request)

        client = found.context.admin(url, token)
        ask, client.ask = client.ask, watched  # type: ignore[method-assign]
        try:
            yield found
        finally:
            for one in (*clients.values(), found.client):
                await one.close()


def said(outcome: Outcome) -> tuple[str, str]:
    """Its one condition's status and reason."""
    assert outcome.status is not None
    [condition] = outcome.status.conditions
    return condition.status, condition.reason


def message(outcome: Outcome) -> str:
    """Its condition's."""
    assert outcome.status is not None
    return outcome.status.conditions[0].message
