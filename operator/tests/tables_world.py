"""A ParquetSink in front of an API server, which is the test's own, and so is what the Spark Operator would write into
statuses.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from kube_of_a_test import CLUSTER, KubeOfATest, TestClock, auth_secret, context_of, selected
from real_bmq import TOKEN

from bmq_admin.client import AdminClient
from bmq_operator.conditions import condition, timestamp
from bmq_operator.context import Context
from bmq_operator.kube import FIELD_MANAGER, KubeProblem
from bmq_operator.outcome import Outcome
from bmq_operator.tables.existing import KINDS
from bmq_operator.tables.reconcile import reconcile
from bmq_resources.base import Condition
from bmq_resources.parquet_sink import ParquetSink

ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "bmq-spark", "namespace": "shop"}}
KEYS = {"kind": "Secret", "metadata": {"name": "keys", "namespace": "shop", "labels": {"bmq.io/use": "allowed"}}}
"""The bucket's, as tables of the tests name them."""
NOBODY = "http://127.0.0.1:1"


class SparkKube(KubeOfATest):
    """`spark`: whether the Spark Operator's CRDs are there; `refuses`: names of objects that its webhook refuses."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        super().__init__(*manifests)
        self.spark = True
        self.refuses: set[str] = set()
        self.refusal = KubeProblem(status=400, reason="Forbidden", message="failed to validate resource quota")
        self.writes: list[str] = []
        self.clock = TestClock()

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        if kind in KINDS and not self.spark:
            raise KubeProblem(status=404, reason="NotFound", message="the server could not find the requested resource")
        found = await super().list(kind, namespace, fields=fields)
        return [one for one in found if selected(one, labels)]

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._may(manifest)
        self.writes.append(f"apply {manifest['kind']} {manifest['metadata']['name']}")
        applied = await super().apply(manifest)
        by = {"manager": FIELD_MANAGER, "operation": "Apply", "time": timestamp(self.clock.ms)}
        self.manifests[manifest["kind"], manifest["metadata"]["namespace"], manifest["metadata"]["name"]]["metadata"][
            "managedFields"
        ] = [by]
        return applied

    async def create(self, manifest: dict[str, Any], *, manager: str = "") -> dict[str, Any]:
        self._may(manifest)  # and an apply follows
        return await super().create(manifest, manager=manager)

    def _may(self, manifest: dict[str, Any]) -> None:
        if manifest["metadata"]["name"] in self.refuses:
            raise self.refusal

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        self.writes.append(f"delete {kind} {name}")
        await super().delete(kind, namespace, name, uid=uid)

    async def merge(
        self, kind: str, namespace: str, name: str, body: dict[str, Any], *, part: str = "", uid: str = ""
    ) -> dict[str, Any]:
        self.writes.append(f"merge {kind} {name} {part}")
        return await super().merge(kind, namespace, name, body, part=part, uid=uid)

    def says(self, kind: str, name: str, **status: Any) -> None:
        """What the Spark Operator writes."""
        self.manifests[kind, "shop", name]["status"] = status

    def names(self, kind: str) -> set[str]:
        return {name for found, _, name in self.manifests if found == kind}


def sink(
    spec: dict[str, Any], *, topics: tuple[str, ...] = ("orders",), status: Any = None, **more: Any
) -> ParquetSink:
    meta = {
        "name": "lake",
        "namespace": "shop",
        "uid": "uid-lake",
        "generation": 1,
        "creationTimestamp": "2001-09-09T01:46:40Z",
    }
    written = {"topics": list(topics), **spec, **more}
    return ParquetSink.model_validate(
        {"metadata": meta, "spec": written, "status": {} if status is None else status.written()}
    )


async def closed(clients: dict[tuple[str, str], AdminClient]) -> None:
    for one in clients.values():
        await one.close()


class World:
    """A ParquetSink in front of an API server, without a cluster that answers."""

    def __init__(self) -> None:
        self.kube = SparkKube(CLUSTER, auth_secret(TOKEN), ACCOUNT, KEYS)
        self.clock = self.kube.clock
        self.clients: dict[tuple[str, str], AdminClient] = {}
        self.context: Context = context_of(self.kube, NOBODY, self.clients, clock=self.clock)
        self.status: Any = None

    async def look(self, spec: dict[str, Any], **more: Any) -> Outcome:
        self.kube.writes.clear()
        outcome = await reconcile(self.context, sink(spec, status=self.status, **more))
        self.status = outcome.status
        return outcome

    def ended(self, name: str, *, after_s: int, state: str = "FAILED") -> None:
        began, end = timestamp(self.clock.ms), timestamp(self.clock.ms + after_s * 1000)
        self.kube.says(
            "SparkApplication",
            name,
            applicationState={"state": state},
            lastSubmissionAttemptTime=began,
            terminationTime=end,
        )
        self.clock.ms += after_s * 1000


def run(use: Any) -> None:
    async def main() -> None:
        world = World()
        try:
            await use(world)
        finally:
            await closed(world.clients)

    asyncio.run(main())


def ready(outcome: Outcome, type_: str = "Ready") -> Condition:
    assert outcome.status is not None
    found = condition(outcome.status.conditions, type_)
    assert found is not None
    return found
