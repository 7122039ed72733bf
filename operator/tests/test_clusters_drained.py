"""What was drained for a roll gets partitions again, whatever becomes of the objects meanwhile; what somebody else
cordoned is told, and stays.
"""

import copy
from typing import Any

import pytest
from clusters_world import World, cluster, run

from bmq_admin.errors import AdminProblem
from bmq_operator.clusters import reconcile
from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.drained import unused_note
from bmq_operator.clusters.existing import read_existing
from bmq_operator.clusters.nodes import ClusterState, Node, Pod, pods_seen
from bmq_operator.clusters.report import Found, report
from bmq_operator.clusters.steps import DRAINED, _mark, marked, taken
from bmq_operator.clusters.upgrade import Drain, Step, Uncordon, Wait, next_step
from bmq_operator.heirless import AGAIN_MS
from bmq_operator.understood import understood
from bmq_resources.cluster import Cluster

DRAIN = Drain(reason="Upgrading", message="prod-broker-1 is drained", node_id=1001, pod="prod-broker-1")
LEAVES = Drain(reason="Scaling", message="broker 1002 is drained before it goes", node_id=1002)


def resource(world: World) -> Cluster:
    return understood(Cluster, world.there("Cluster", "prod"))


async def drained(world: World, wanted: Drain = DRAIN) -> Step:
    """The operator has begun to drain a broker; whether the controller heard of it is not known."""
    await world.look("prod")
    world.pods_are_made()
    brokers = copy.deepcopy(world.there("StatefulSet", "prod-broker"))
    return await taken(world.context, resource(world), brokers, wanted)


async def steps(world: World, **cordoned: Any) -> Any:
    """What is done next where all nodes live, and broker 1001 is cordoned."""
    found = resource(world)
    sets = (await read_existing(world.kube, found)).stateful_sets()  # type: ignore[arg-type]
    pods = pods_seen((await read_existing(world.kube, found)).pods, sets, now_ms=world.context.clock.now_ms())  # type: ignore[arg-type]
    nodes = {
        pod.node_id: Node(node_id=pod.node_id, alive=True, leads=pod.node_id == 0, cordoned=pod.node_id == 1001)
        for pod in pods
    }
    view = reconcile._view(found, sets, Answer(state=ClusterState(nodes=nodes, store_ok=True)), pods)
    assert view is not None
    return next_step(view)


def sets_are_deleted(world: World) -> None:
    """As our own messages say where keys are lost."""
    for role in ("controller", "broker", "proxy"):
        world.kube.drop("StatefulSet", "shop", f"prod-{role}")
    world.pods_are_made()


def test_a_broker_whose_stateful_set_was_deleted_while_it_was_drained_gets_partitions_again() -> None:
    async def use(world: World) -> None:
        await drained(world)
        sets_are_deleted(world)
        await world.look("prod")
        world.pods_are_made()
        step = await steps(world)
        assert isinstance(step, Uncordon) and step.node_id == 1001

    run(use, cluster())


def noted(world: World) -> tuple[str | None, str | None]:
    """At the Cluster, and where an older operator looks."""
    metas = (world.there("Cluster", "prod")["metadata"], world.there("StatefulSet", "prod-broker")["metadata"])
    at_cluster, at_set = ((one.get("annotations") or {}).get(DRAINED) for one in metas)
    return at_cluster, at_set


def test_what_an_older_operator_noted_at_the_stateful_set_counts() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        brokers = world.there("StatefulSet", "prod-broker")
        brokers["metadata"].setdefault("annotations", {})[DRAINED] = "1002"
        await taken(world.context, resource(world), brokers, DRAIN)
        assert noted(world) == ("1001,1002", "1001,1002")
        assert marked(resource(world), world.there("StatefulSet", "prod-broker")) == {1001, 1002}

    run(use, cluster())


def test_an_older_operator_that_comes_back_in_the_middle_of_a_roll_finds_what_was_drained() -> None:
    """By its own place for it, as what is drained would stay without partitions else."""

    async def use(world: World) -> None:
        await drained(world)
        assert noted(world) == ("1001", "1001")
        await _mark(world.context, resource(world), world.there("StatefulSet", "prod-broker"), frozenset())
        assert noted(world) == (None, None), "what is in use again is noted nowhere"

    run(use, cluster())


@pytest.mark.parametrize(("code", "goes"), [("NoHeir", False), ("NoHeirInPool", True), ("NotABroker", True)])
def test_what_cannot_be_drained_is_noted_nowhere_and_goes_unless_others_ought_to_take_its_partitions_and_do_not(
    monkeypatch: pytest.MonkeyPatch, code: str, goes: bool
) -> None:
    """As where the newest settings put the brokers that have them into a pool that no topic is in. What is left of
    another pool's topics keeps nothing from being replaced: those are their owners' affair."""

    async def refused(*_: Any) -> AdminProblem:
        return AdminProblem(status=409, code=code, what="it", why="no other broker takes partitions", remedy="mend it")

    async def use(world: World) -> None:
        monkeypatch.setattr("bmq_operator.clusters.steps.drain", refused)
        step = await drained(world)
        assert noted(world) == (None, None)
        assert ("Pod prod-broker-1" in world.kube.deleted) is goes
        if not goes:
            assert isinstance(step, Wait)
            assert "no other broker takes partitions. Where the newest settings put brokers into" in step.message

    run(use, cluster())


@pytest.mark.parametrize(("code", "wanted"), [("NoHeir", DRAIN), ("NoHeir", LEAVES), ("NoHeirInPool", LEAVES)])
def test_a_drain_that_nobody_can_be_heir_of_is_asked_for_and_noted_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, code: str, wanted: Drain
) -> None:
    asked = 0

    async def refused(*_: Any) -> AdminProblem:
        nonlocal asked
        asked += 1
        return AdminProblem(status=409, code=code, what="it", why="nobody takes partitions", remedy="mend it")

    async def use(world: World) -> None:
        monkeypatch.setattr("bmq_operator.clusters.steps.drain", refused)
        await drained(world, wanted)
        version = world.there("Cluster", "prod")["metadata"]["resourceVersion"]
        for _ in range(10):
            step = await taken(world.context, resource(world), world.there("StatefulSet", "prod-broker"), wanted)
            assert isinstance(step, Wait) and "nobody takes partitions" in step.message
        assert asked == 1 and world.there("Cluster", "prod")["metadata"]["resourceVersion"] == version
        world.context.clock.ms += AGAIN_MS  # type: ignore[attr-defined]
        await taken(world.context, resource(world), world.there("StatefulSet", "prod-broker"), wanted)
        assert asked == 2

    run(use, cluster())


def found(*, marks: frozenset[int] = frozenset(), cordoned: tuple[int, ...], alive: bool = True) -> Found:
    pods = [
        Pod(name=f"prod-broker-{number}", component="broker", ordinal=number, ready=True, outdated=False)
        for number in range(3)
    ]
    nodes = {pod.node_id: Node(node_id=pod.node_id, alive=alive, cordoned=pod.node_id in cordoned) for pod in pods}
    answer = Answer(state=ClusterState(nodes=nodes, store_ok=True))
    note = unused_note(pods, answer, marks)
    return Found(
        pods=tuple(pods),
        wanted={"broker": 3, "controller": 0, "proxy": 0},
        answer=answer,
        notes=[] if note is None else [note],
    )


def test_a_broker_that_somebody_else_cordoned_is_told_with_how_it_is_taken_back_into_use() -> None:
    status = report(understood(Cluster, cluster()), found(cordoned=(1000, 1002)), now_ms=0)
    told = {one.type: one for one in status.conditions}
    assert (told["BrokersInUse"].status, told["BrokersInUse"].reason) == ("False", "Cordoned")
    for words in ("prod-broker-0, prod-broker-2", "kubectl bmq drain prod-broker-0 --undo"):
        assert words in told["BrokersInUse"].message
    assert told["Ready"].status == "True" and told["BrokersInUse"].message in told["Ready"].message


@pytest.mark.parametrize(
    "seen",
    [found(cordoned=()), found(cordoned=(1001,), marks=frozenset((1001,))), found(cordoned=(1001,), alive=False)],
)
def test_what_the_operator_drains_and_what_is_away_is_not_told_so(seen: Found) -> None:
    assert not seen.notes
