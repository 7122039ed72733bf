"""What an operator tells of itself once it leads no more: it goes on to be scraped, and another one counts the same
resources.
"""

import asyncio
from typing import Any

from kube_of_a_test import KubeOfATest, TestClock, context_of
from prometheus_client import generate_latest

from bmq_operator.lease import Lease
from bmq_operator.main import Operator
from bmq_operator.metrics import LEADER
from bmq_operator.resync import resync
from bmq_operator.settings import OperatorSettings

TOPIC: dict[str, Any] = {
    "apiVersion": "bmq.io/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders", "namespace": "shop", "resourceVersion": "1"},
    "spec": {"parquet": {"schedule": "@daily"}},
    "status": {"conditions": [{"type": "Ready", "status": "False"}]},
}


def told(name: str) -> list[str]:
    """Its samples that are not 0."""
    lines = generate_latest().decode().splitlines()
    return [line for line in lines if line.startswith((f"{name}{{", f"{name} ")) and not line.endswith(" 0.0")]


def test_a_lease_is_found_by_its_label_also_one_that_an_operator_before_made() -> None:
    async def main() -> None:
        kube = KubeOfATest()
        lease = Lease(kube, TestClock(), namespace="bmq-system", name="bmq", identity="a")  # type: ignore[arg-type]
        assert await lease._try_once()
        made = kube.manifests["Lease", "bmq-system", "bmq"]
        assert made["metadata"]["labels"] == {"app.kubernetes.io/name": "bmq-operator"}
        made["metadata"]["labels"] = {"team": "queues"}
        assert lease._held(made)["metadata"]["labels"] == {"app.kubernetes.io/name": "bmq-operator", "team": "queues"}

    asyncio.run(main())


def test_who_leads_no_more_counts_no_resources_and_has_none_that_are_due() -> None:
    async def main() -> None:
        kube = KubeOfATest(TOPIC)
        operator = Operator(OperatorSettings(namespaces=()), kube)  # type: ignore[arg-type]
        LEADER.set(1)
        await resync(context_of(kube, "", {}), operator.queue, operator.hearing, "Topic")
        assert told("bmq_operator_resources") == ['bmq_operator_resources{kind="Topic",ready="False"} 1.0']
        assert told("bmq_operator_tables") and told("bmq_operator_queue_depth") == ["bmq_operator_queue_depth 1.0"]
        operator.begin()
        for name in ("bmq_operator_resources", "bmq_operator_tables", "bmq_operator_queue_depth"):
            assert told(name) == []

    asyncio.run(main())
