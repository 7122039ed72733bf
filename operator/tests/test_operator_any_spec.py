"""Whatever an API server may hold, the operator makes objects of it or says why not; nothing ends in an exception, to
be tried for ever.
"""

import asyncio
import copy
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from any_spec import any_spec
from kinds_of_a_test import KINDS, KindOfATest
from kube_of_a_test import KubeOfATest, context_of
from pydantic import ValidationError
from tables_of_a_test import claims_of
from tables_world import World, ready, run

from bmq.runtime.system import SystemRng
from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.gathering import gather
from bmq_operator.clusters.refused import NotToBe
from bmq_resources import KINDS as MODELS
from bmq_resources.checks import check
from bmq_resources.cluster import Cluster
from bmq_resources.parquet_sink import ParquetSinkSpec
from bmq_resources.schema import structural
from bmq_resources.topic import Topic

SPECS = 600
ONE_OF_TWO = frozenset(("output", "iceberg", "schedule", "continuous"))
"""Of a table: the base has what is needed of them."""


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_objects_are_made_of_whatever_the_rules_take(kind: KindOfATest) -> None:
    rng, schema = Random(1), structural(kind.spec)
    model = next(one for one in MODELS if one.__name__ == kind.name)
    taken = 0
    for _ in range(SPECS):
        base = copy.deepcopy(dict(kind.base(rng.choice(["", *kind.bases]))))
        spec = {"topics": ["orders"]} if kind.name == "ParquetSink" else {}
        spec |= base | any_spec(schema, rng, share=0.2, without=ONE_OF_TWO | {"store"})
        document = {
            "apiVersion": "bmq.io/v1alpha1",
            "kind": kind.name,
            "metadata": {"name": "a", "namespace": "shop"},
            "spec": spec,
        }
        if not isinstance(check(model, document), list):
            taken += 1
            kind.made(spec, "shop")
    assert taken > SPECS / 10


def test_a_cluster_is_made_or_refused_with_a_reason() -> None:
    rng, schema, reasons = (
        Random(2),
        structural(next(kind.spec for kind in KINDS if kind.name == "Cluster")),
        Counter[str](),
    )
    for _ in range(SPECS):
        spec = {"store": {"minio": {"embedded": True}}} | any_spec(schema, rng, share=rng.choice([0.1, 0.5]))
        meta = {"name": "bmq", "namespace": "shop", "uid": "u"}
        found = check(Cluster, {"apiVersion": "bmq.io/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec})
        if isinstance(found, list):
            continue
        assert isinstance(found, Cluster)
        context = replace(context_of(KubeOfATest(), "", {}), rng=SystemRng())
        try:
            desired(found, asyncio.run(gather(context, found, Existing(objects={}, pods=()), advertised="")))
            reasons["made"] += 1
        except NotToBe as why:
            assert why.finding.message
            reasons[why.finding.reason] += 1
    assert reasons["made"] > 20 and reasons["NotAllowed"] > 20


def test_a_sink_is_written_or_says_why_not() -> None:
    async def use(world: World) -> None:
        rng, schema, kind = (
            Random(3),
            structural(ParquetSinkSpec),
            next(one for one in KINDS if one.name == "ParquetSink"),
        )
        reasons = Counter[str]()
        for _ in range(SPECS):
            base = copy.deepcopy(dict(kind.base(rng.choice(["", *kind.bases]))))
            world.status = None
            try:
                found = ready(
                    await world.look(
                        base | any_spec(schema, rng, share=0.1, without=ONE_OF_TWO | {"topics", "clusterRef"})
                    )
                )
            except ValidationError:
                continue  # an API server would not hold it
            assert found.message
            reasons[found.reason] += 1
        assert reasons["NotAllowed"] > 10 and sum(reasons.values()) > SPECS / 10

    run(use)


def test_what_one_resource_names_keeps_nobody_elses_table_from_being_known() -> None:
    rng, schema = Random(4), structural(next(kind.spec for kind in KINDS if kind.name == "Topic"))
    meta = {"namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"}
    table = {"output": "s3a://b/t", "schedule": "@hourly"}
    whole = {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {**meta, "name": "mine", "uid": "u"},
        "spec": {"parquet": table},
    }
    for number in range(SPECS):
        spec = any_spec(schema, rng, share=0.3) | {
            "clusterRef": {"name": rng.choice(["..", "A", "a/b", " ", "bmq"])},
            "parquet": table,
        }
        other = {
            "apiVersion": "bmq.io/v1alpha1",
            "kind": "Topic",
            "metadata": {**meta, "name": f"t{number}", "uid": f"u{number}"},
            "spec": spec,
        }
        found = claims_of(topics=[other, whole], sinks=[], clusters=[])
        assert any(rival.name == "mine" for rivals in found.values() for rival in rivals), spec
    assert Topic.model_validate(whole).spec.parquet is not None
