"""The largest resources that the rules take keep nobody else's work waiting: no turn of a look at one takes long."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import clusters_world
import pytest
import tables_world
from clusters_world import Strict, cluster
from kinds_of_a_test import KINDS
from tables_world import SparkKube, sink
from turns_of_a_test import Suspends, Turns

from bmq_operator.applied import digest
from bmq_operator.kube import _yaml
from bmq_operator.runner import Runner
from bmq_operator.tables.reconcile import reconcile
from bmq_operator.understood import understood
from bmq_operator.workqueue import Key
from bmq_resources import KINDS as MODELS
from bmq_resources.checks import check

TURN_S_MAX: Final = 0.12
"""Of CPU, on a machine that is slow and busy; it is 0.05 s at most on others."""
LOOKS: Final = 3
"""The first makes all objects; of the others, and of what others do beside it, the best counts."""
TABLES: Final = 6
"""Of a sink whose tables have all that they may; a look keeps no more of them in memory."""
LETTERS: Final = ("x", "\x7f", "ü", "\U0001f600")
"""Each costs another thing: YAML writes a code of its own for all but the first, JSON for the last two."""


def texts(prefix: str, letter: str, chars: int) -> dict[str, str]:
    """Sixty-four settings that have so many characters in all."""
    return {f"{prefix}{number:02}": letter * (chars // 64 - len(prefix) - 2) for number in range(64)}


def placement(letter: str) -> dict[str, Any]:
    values = [letter * 60 for _ in range(960)]
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}
    return {
        "env": [{"name": name, "value": value} for name, value in texts("BMQ_", letter, 65_536).items()],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "value": letter * 63}] * 32,
    }


def of_cluster(letter: str, *, proxies: int, listeners: int) -> dict[str, Any]:
    role = {"placement": placement(letter)}
    outside = {
        "type": "LoadBalancer",
        "annotations": {"service.beta.kubernetes.io/aws-load-balancer-type": letter * 8_000},
        "sourceRanges": ["9" * 64] * 64,
    }
    return {
        "store": {"url": f"s3://b/{'a' * 2_000}"},
        "config": texts("k", letter, 32_768),
        "settings": {"env": texts("BMQ_", letter, 32_768)},
        "controllers": role,
        "brokers": role,
        "proxies": role | {"replicas": proxies},
        "listeners": [
            outside | {"name": f"l{chr(ord('a') + number)}", "port": 9_200 + number} for number in range(listeners)
        ],
        "topicsFrom": {"namespaces": ["n" * 63] * 256},
    }


def of_table(letter: str) -> dict[str, Any]:
    return {
        "output": "s3a://warehouse/t",
        "continuous": {},
        "format": "avro",
        "schema": {"text": letter * 131_072},
        "store": {"secretName": "keys"},
        "consumerConfig": texts("max.", letter, 32_768),
        "sparkConf": texts("spark.task.", letter, 32_768),
        "placement": placement(letter),
        "compact": {"mode": "Always"},
    }


SPECS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "Cluster": lambda letter: of_cluster(letter, proxies=24, listeners=8),
    "Lane": lambda letter: {
        "proxies": {"placement": placement(letter)},
        "brokers": {"replicas": 1, "placement": placement(letter)},
        "reads": {"base": {"enabled": True, "topics": [letter * 249] * 64}},
    },
    "ParquetSink": lambda letter: of_table(letter) | {"topics": ["orders"]},
    "Topic": lambda letter: {"config": texts("k", letter, 32_768), "parquet": of_table(letter)},
}


@pytest.mark.parametrize("name", SPECS)
def test_the_largest_resources_are_ones_that_the_rules_take(name: str) -> None:
    kind = next(one for one in MODELS if one.__name__ == name)
    meta = {"name": "a", "namespace": "shop"}
    for letter in LETTERS:
        spec = SPECS[name](letter)
        found = check(kind, {"apiVersion": "bmq.io/v1alpha1", "kind": name, "metadata": meta, "spec": spec})
        assert isinstance(found, kind), found


def took_s(work: Callable[[], Any]) -> float:
    """The best of some."""

    def once() -> float:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s

    return min(once() for _ in range(LOOKS))


@pytest.mark.measures
@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("name", SPECS)
def test_objects_of_the_largest_resources_are_made_and_written_in_short_turns(name: str, letter: str) -> None:
    kind = next(one for one in KINDS if one.name == name)
    model = next(one for one in MODELS if one.__name__ == name)
    spec = SPECS[name](letter)
    manifest = {"apiVersion": "bmq.io/v1alpha1", "kind": name, "metadata": {"name": "a", "uid": "u"}, "spec": spec}
    assert took_s(lambda: understood(model, manifest)) < TURN_S_MAX
    assert took_s(lambda: kind.made(spec, "shop")) < TURN_S_MAX
    for one in kind.made(spec, "shop").objects:
        assert took_s(lambda one=one: digest(one)) < TURN_S_MAX  # type: ignore[misc]
        assert took_s(lambda one=one: _yaml(one)) < TURN_S_MAX  # type: ignore[misc]


class SuspendingStrict(Suspends, Strict):
    pass


class SuspendingSpark(Suspends, SparkKube):
    pass


@pytest.mark.measures
@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize(("proxies", "listeners"), [(24, 8), (1_000, 0)])
def test_no_turn_of_a_look_at_the_largest_cluster_takes_long(letter: str, proxies: int, listeners: int) -> None:
    async def main() -> float:
        world = clusters_world.World()
        manifest = cluster(**of_cluster(letter, proxies=proxies, listeners=listeners))
        kube = SuspendingStrict({"kind": "Namespace", "metadata": {"name": "shop", "namespace": ""}}, manifest)
        world.context = replace(world.context, kube=kube)  # type: ignore[arg-type]
        runner = Runner(world.context, world._runner._queue, world._runner._kinds)
        longest = []
        for _ in range(LOOKS):
            kube.turns = turns = Turns()
            asyncio.get_running_loop().set_task_factory(turns.task)
            await asyncio.create_task(runner._reconcile(Key("Cluster", "shop", "prod")))
            longest.append(turns.longest_s)
        made = {kind for kind, _, _ in kube.manifests}
        assert {"StatefulSet", "ConfigMap", "Service"} <= made, manifest["status"]
        return min(longest)

    assert asyncio.run(main()) < TURN_S_MAX


@pytest.mark.measures
@pytest.mark.parametrize("letter", LETTERS)
def test_no_turn_of_a_look_at_the_largest_sink_takes_long(letter: str) -> None:
    async def main() -> float:
        world = tables_world.World()
        kube = SuspendingSpark(*world.kube.manifests.values())
        context = replace(world.context, kube=kube)  # type: ignore[arg-type]
        written = sink(of_table(letter), topics=tuple(f"t{number}" for number in range(TABLES)))
        longest = []
        for _ in range(LOOKS):
            kube.turns = turns = Turns()
            asyncio.get_running_loop().set_task_factory(turns.task)
            await asyncio.create_task(reconcile(context, written))
            longest.append(turns.longest_s)
        assert len(kube.names("SparkApplication")) == TABLES
        await tables_world.closed(world.clients)
        return min(longest)

    assert asyncio.run(main()) < TURN_S_MAX
