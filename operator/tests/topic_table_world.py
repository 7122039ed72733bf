"""A Topic with a table of a cluster that is a started bmq; the API server is the tests' own, and the Spark Operator
what they say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kube_of_a_test import CLUSTER, auth_secret, context_of
from real_bmq import TOKEN
from tables_world import ACCOUNT, KEYS, SparkKube, closed, ready
from tests.started_bmq import StartedBmq

from bmq_admin.client import AdminClient
from bmq_operator.outcome import Outcome
from bmq_operator.tables.reconcile import reconcile_topic
from bmq_resources.topic import Topic

LOOKS_MAX = 10
OBJECTS = ("SparkApplication", "ScheduledSparkApplication", "ConfigMap")


class World:
    """A Topic and its table, of a cluster that answers."""

    def __init__(self, bmq: StartedBmq, name: str) -> None:
        self.kube = SparkKube(CLUSTER, auth_secret(TOKEN), ACCOUNT, KEYS)
        self.clients: dict[tuple[str, str], AdminClient] = {}
        self.context = context_of(self.kube, bmq.admin, self.clients, clock=self.kube.clock)
        self.client = self.context.admin(bmq.admin, TOKEN)
        self.name = name
        self.meta = {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": "2001-09-09T01:46:40Z",
        }
        self.status: dict[str, Any] = {}

    async def look(self, **spec: Any) -> Outcome:
        manifest = {
            "apiVersion": "bmq.io/v1alpha1",
            "kind": "Topic",
            "metadata": self.meta,
            "spec": spec,
            "status": self.status,
        }
        outcome = await reconcile_topic(self.context, Topic.model_validate(manifest))
        assert outcome.status is not None
        self.status = outcome.status.written()
        return outcome

    async def made(self, **spec: Any) -> Outcome:
        for _ in range(LOOKS_MAX):
            outcome = await self.look(**spec)
            if ready(outcome).reason != "Creating":
                return outcome
        raise AssertionError("the topic is never made")

    def forget(self) -> None:
        """As seconds later."""
        self.context.known.clusters.forget(("shop", "bmq"))
        self.context.known.with_tables.forget("")

    @property
    def objects(self) -> set[str]:
        return {f"{kind} {name}" for kind in OBJECTS for name in self.kube.names(kind)}


def run(bmq: StartedBmq, name: str, use: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(bmq, name)
        try:
            await use(world)
        finally:
            await closed(world.clients)

    asyncio.run(main())


def types(outcome: Outcome) -> list[str]:
    assert outcome.status is not None
    return [one.type for one in outcome.status.conditions]
