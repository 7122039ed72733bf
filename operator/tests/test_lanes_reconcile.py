"""Lanes declared in a started bmq; the API server alone is the test's own."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kube_of_a_test import context_of
from real_bmq import bmq_with_token
from reconciled_world import World, Worlds, message, said
from tests.started_bmq import StartedBmq

from bmq_admin import pages
from bmq_admin.errors import AdminProblem
from bmq_operator.conditions import timestamp
from bmq_operator.intents import Intents
from bmq_operator.lanes.reconcile import holds, reconcile
from bmq_resources.lane import Lane

BASE = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "bmq-proxy", "namespace": "shop", "uid": "s"},
    "spec": {"template": {"metadata": {}, "spec": {"containers": [{"image": "bmq:1"}]}}},
}


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


WORLDS = Worlds("Lane", BASE)


def pods_are_ready(world: World) -> None:
    """Those of lanes, as Kubernetes would say it."""
    for (kind, _, name), manifest in world.kube.manifests.items():
        if kind == "StatefulSet" and "-lane-" in name:
            manifest["status"] = {
                "replicas": manifest["spec"]["replicas"],
                "readyReplicas": manifest["spec"]["replicas"],
            }


async def lane(world: World, name: str) -> Any:
    """As the cluster has it, if it does."""
    try:
        return await world.client.get("lanes", name)
    except AdminProblem as problem:
        assert problem.code == "UnknownLane", problem
        return None


def test_a_lane_is_declared_gets_its_pods_is_changed_and_goes(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("life", laneName="feature-1", ttlSeconds=3600)
        assert said(await world.look("life")) == ("False", "ProxiesStarting")
        assert holds(Lane.model_validate(world.manifest("life")))
        assert (await lane(world, "feature-1"))["ttl_seconds"] == 3600
        pods_are_ready(world)
        outcome = await world.look("life")
        assert said(outcome) == ("True", "AsWritten")
        status = outcome.status
        assert status is not None
        assert (status.lane_name, status.node_ids_from, status.expires_at) == (
            "feature-1",
            20_000,
            "2001-09-09T02:46:40Z",
        )
        assert status.bootstrap_servers == "bmq-lane-feature-1.shop.svc:9092"
        assert status.selector == "bmq.io/cluster=bmq,app.kubernetes.io/component=proxy,bmq.io/lane=feature-1"

        world.write(
            "life", laneName="feature-1", reads={"base": {"enabled": True, "topics": ["cat-*"], "bytesPerSecond": 2048}}
        )
        assert said(await world.look("life")) == ("True", "AsWritten")
        changed = await lane(world, "feature-1")
        assert (changed["ttl_seconds"], changed["reads_base"]) == (
            0,
            {"enabled": True, "topics": ["cat-*"], "bytes_per_second": 2048},
        )

        assert (await world.look("life", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "feature-1") is None
        assert [key for key in world.kube.manifests if "lane" in key[2]] == []

    WORLDS.run(bmq, use)


def test_a_lane_that_reaches_for_what_is_not_its_own_stays_as_it_was_and_says_what_allows_it(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        webhook = {"vault.hashicorp.com/agent-inject": "true"}
        world.write("reaching", proxies={"placement": {"annotations": webhook}})
        outcome = await world.look("reaching")
        assert said(outcome) == ("False", "NotAllowed")
        assert message(outcome) == (
            "proxies.placement.annotations: vault.hashicorp.com/agent-inject is none that the operator takes: "
            "leave it out, or have it added to allow.annotations of bmq's chart"
        )
        assert await lane(world, "reaching") is None
        assert [key for key in world.kube.manifests if "lane" in key[2]] == []
        world.write("reaching")
        await world.look("reaching")
        pods_are_ready(world)
        assert said(await world.look("reaching")) == ("True", "AsWritten")
        before = dict(world.kube.manifests["StatefulSet", "shop", "bmq-lane-reaching-proxy"])
        world.write("reaching", proxies={"replicas": 3, "placement": {"priorityClassName": "system-node-critical"}})
        assert said(await world.look("reaching")) == ("False", "NotAllowed")
        assert world.kube.manifests["StatefulSet", "shop", "bmq-lane-reaching-proxy"] == before
        assert (await world.look("reaching", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "reaching") is None

    WORLDS.run(bmq, use)


def test_a_lane_waits_for_the_one_that_it_is_nested_in_and_that_one_goes_after_it(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        nested = {"fallback": "base", "parent": "outer", "proxies": {"replicas": 0}}
        world.write("inner", **nested)
        refused = await world.look("inner")
        assert said(refused) == ("False", "Refused")
        assert "there is no such lane: create it first" in message(refused)
        assert refused.again_after_s is not None
        world.write("outer", fallback="base", proxies={"replicas": 0})
        for name in ("outer", "inner"):
            assert said(await world.look(name)) == ("True", "AsWritten")
        assert (await lane(world, "inner"))["parent"] == "outer"

        staying = await world.look("outer", deletionTimestamp="2001-09-09T01:46:40Z")
        assert (staying.finished, said(staying)) == (False, ("False", "ChangeRefused"))
        assert "in 'outer' there are nested inner" in message(staying)
        assert staying.again_after_s is not None
        assert (await world.look("inner", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert (await world.look("outer", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "outer") is None

    WORLDS.run(bmq, use)


def test_lanes_made_at_once_have_slots_of_their_own_and_one_that_went_is_given_again(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        names = [f"many-{index}" for index in range(20)]
        for name in names:
            world.write(name, proxies={"replicas": 0})
        outcomes = await asyncio.gather(*(world.look(name) for name in names))
        assert {said(outcome) for outcome in outcomes} == {("True", "AsWritten")}
        slots = [outcome.status.node_ids_from for outcome in outcomes if outcome.status is not None]
        assert sorted(slots) == [20_000 + 200 * index for index in range(20)]

        await world.look("many-3", deletionTimestamp="2001-09-09T01:46:40Z")
        free = world.manifest("many-3")["status"]["nodeIdsFrom"]
        world.kube.drop("Lane", "shop", "many-3")
        world.context.known.slots.clear()  # another operator leads since
        world.write("after", proxies={"replicas": 0})
        after = await world.look("after")
        assert after.status is not None and after.status.node_ids_from == free

        copied = world.manifest("many-5")
        copied["status"]["nodeIdsFrom"] = world.manifest("many-4")["status"]["nodeIdsFrom"]
        world.context.known.slots.clear()
        mended = await world.look("many-5")
        assert mended.status is not None and mended.status.node_ids_from not in (
            -1,
            world.manifest("many-4")["status"]["nodeIdsFrom"],
        )

    WORLDS.run(bmq, use)


@pytest.mark.parametrize("written", [0, 1_000, 10_000, 20_100, 20_001, 20_000 + 200 * 100_000, 1 << 62])
def test_a_status_with_node_ids_that_are_no_slots_gives_the_lane_none_of_them(bmq: StartedBmq, written: int) -> None:
    async def use(world: World) -> None:
        odd, even = f"odd-{written}", f"even-{written}"
        world.write(odd, proxies={"replicas": 0})
        await world.look(odd)
        slot = world.manifest(odd)["status"]["nodeIdsFrom"]
        world.manifest(odd)["status"]["nodeIdsFrom"] = written
        world.context.known.slots.clear()
        await world.look(odd)
        assert world.manifest(odd)["status"]["nodeIdsFrom"] == slot

        world.manifest(odd)["status"]["nodeIdsFrom"] = written
        world.context.known.slots.clear()
        world.context.known.lane_claims.forget("claims")
        world.write(even, proxies={"replicas": 0})
        await world.look(even)
        assert world.manifest(even)["status"]["nodeIdsFrom"] == 20_000, "what is no slot is nobody's"

    WORLDS.run(bmq, use)


def test_who_loses_a_lane_to_another_resource_leaves_it_none_of_its_objects(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("younger", laneName="both", created="2001-09-09T02:00:00Z")
        await world.look("younger")
        world.write("elder", laneName="both")
        # as a backup restores it
        world.manifest("elder")["status"] = world.manifest("younger")["status"] | {"nodeIdsFrom": 20_200}
        assert said(await world.look("elder")) == ("False", "NameTaken")
        world.context.known.lane_claims.forget("claims")
        assert said(await world.look("younger")) == ("False", "Collision")
        assert [key for key in world.kube.manifests if "-lane-" in key[2]] == []
        assert said(await world.look("elder")) == ("False", "ProxiesStarting")
        world.context.known.lane_claims.forget("claims")
        assert said(await world.look("younger")) == ("False", "Collision")
        assert ("StatefulSet", "shop", "bmq-lane-both-proxy") in world.kube.manifests, "those are the other one's"
        for name in ("younger", "elder"):
            await world.look(name, deletionTimestamp="2001-09-09T01:46:40Z")

    WORLDS.run(bmq, use)


def test_a_lane_that_somebody_else_makes_between_the_intent_and_the_declaration_is_not_its_own_though_it_looks_the_same(
    bmq: StartedBmq,
) -> None:
    async def use(world: World) -> None:
        world.write("meanwhile", proxies={"replicas": 0})
        await world.intends("meanwhile")
        await world.client.post("lanes", body={"name": "meanwhile"})
        assert said(await world.look("meanwhile")) == ("False", "AlreadyExists")
        assert (await world.look("meanwhile", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "meanwhile") is not None

    WORLDS.run(bmq, use)


def test_a_lane_whose_time_is_over_deletes_itself(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("short", ttlSeconds=60, proxies={"replicas": 0})
        assert said(await world.look("short")) == ("True", "AsWritten")
        world.clock.ms += 60_000
        outcome = await world.look("short")
        assert (said(outcome), [event.reason for event in outcome.events]) == (("False", "Expired"), ["Expired"])
        assert ("Lane", "shop", "short") not in world.kube.manifests

    WORLDS.run(bmq, use)


def test_a_lane_that_has_time_left_by_its_clusters_clock_outlives_an_operator_whose_clock_is_ahead(
    bmq: StartedBmq,
) -> None:
    async def use(world: World) -> None:
        now_ms = (await world.client.ask(pages.clock()))["now_ms"]
        world.write("hours", created=timestamp(now_ms), ttlSeconds=8 * 3600, proxies={"replicas": 0})
        world.clock.ms = now_ms
        assert said(await world.look("hours")) == ("True", "AsWritten")
        world.clock.ms += 9 * 3_600_000
        for _ in range(2):
            assert said(await world.look("hours")) == ("True", "AsWritten")
        assert await lane(world, "hours") is not None
        assert ("Lane", "shop", "hours") in world.kube.manifests

    WORLDS.run(bmq, use)


def test_a_time_to_live_that_is_over_already_is_refused_and_the_lane_stays(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("old", proxies={"replicas": 0})
        assert said(await world.look("old")) == ("True", "AsWritten")
        world.clock.ms += 3_600_000
        world.write("old", proxies={"replicas": 0}, ttlSeconds=60)
        for _ in range(2):
            outcome = await world.look("old")
            assert (said(outcome), outcome.status.expires_at) == (("False", "TtlTooShort"), "")  # type: ignore[union-attr]
        assert await lane(world, "old") is not None
        world.write("old", proxies={"replicas": 0}, ttlSeconds=7_200)
        outcome = await world.look("old")
        assert (said(outcome), outcome.status.expires_at) == (("True", "AsWritten"), "2001-09-09T03:46:40Z")  # type: ignore[union-attr]

    WORLDS.run(bmq, use)


def test_a_lane_that_is_there_already_is_left_alone_also_when_the_resource_goes(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        await world.client.post("lanes", body={"name": "foreign"})
        world.write("foreign")
        assert said(await world.look("foreign")) == ("False", "AlreadyExists")
        assert not holds(Lane.model_validate(world.manifest("foreign")))
        assert (await world.look("foreign", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "foreign") is not None

    WORLDS.run(bmq, use)


def test_a_lane_that_is_there_already_is_adopted_where_that_is_written_and_then_goes_with_the_resource(
    bmq: StartedBmq,
) -> None:
    async def use(world: World) -> None:
        await world.client.post("lanes", body={"name": "restored"})
        world.write("restored", existing="Adopt", reads={"base": {"enabled": True}})
        assert said(await world.look("restored")) == ("False", "ProxiesStarting")
        assert holds(Lane.model_validate(world.manifest("restored")))
        assert (await lane(world, "restored"))["reads_base"]["enabled"]
        pods_are_ready(world)
        assert said(await world.look("restored")) == ("True", "AsWritten")
        assert (await world.look("restored", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "restored") is None

    WORLDS.run(bmq, use)


def test_a_lane_deleted_behind_our_back_is_declared_again_and_told(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("lost", proxies={"replicas": 0})
        await world.look("lost")
        await world.client.delete("lanes", "lost")
        assert [event.reason for event in (await world.intends("lost")).events] == ["LaneLost"]
        outcome = await world.look("lost")
        assert (said(outcome), outcome.events) == (("True", "AsWritten"), ())
        assert await lane(world, "lost") is not None

    WORLDS.run(bmq, use)


def test_another_lane_of_its_name_is_not_its_own_although_it_had_one(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("replaced", proxies={"replicas": 0})
        assert said(await world.look("replaced")) == ("True", "AsWritten")
        await world.client.delete("lanes", "replaced")
        await world.client.post("lanes", body={"name": "replaced", "ttl_seconds": 86_400})
        outcome = await world.look("replaced")
        assert (said(outcome), "is not the one that this resource declared" in message(outcome)) == (
            ("False", "AlreadyExists"),
            True,
        )
        assert (await world.look("replaced", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert (await lane(world, "replaced"))["ttl_seconds"] == 86_400

    WORLDS.run(bmq, use)


def test_a_lane_deleted_behind_our_back_and_declared_again_goes_with_its_resource(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("again", proxies={"replicas": 0})
        await world.look("again")
        await world.client.delete("lanes", "again")
        assert said(await world.look("again")) == ("True", "AsWritten")
        assert said(await world.look("again")) == ("True", "AsWritten")
        assert (await world.look("again", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "again") is None

    WORLDS.run(bmq, use)


def test_a_declaration_that_was_refused_and_is_corrected_makes_the_lane_its_own(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("corrected", proxies={"replicas": 0}, reads={"base": {"enabled": True, "topics": [""]}})
        assert said(await world.look("corrected")) == ("False", "Refused")
        world.write("corrected", proxies={"replicas": 0})
        assert said(await world.look("corrected")) == ("True", "AsWritten")
        assert (await world.look("corrected", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "corrected") is None

    WORLDS.run(bmq, use)


def test_what_the_cluster_refuses_is_quoted(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("refused", reads={"base": {"enabled": True, "topics": [""]}})
        outcome = await world.look("refused")
        assert (said(outcome), "characters" in message(outcome)) == (("False", "Refused"), True)
        assert (await world.look("refused")).status == outcome.status, (
            "a status that changes would have it looked at again at once"
        )
        assert ("StatefulSet", "shop", "bmq-lane-refused-proxy") not in world.kube.manifests
        await world.client.post("lanes", body={"name": "refused", "ttl_seconds": 77})
        assert said(await world.look("refused")) == ("False", "AlreadyExists")
        await world.look("refused", deletionTimestamp="2001-09-09T01:46:40Z")
        assert await lane(world, "refused") is not None

    WORLDS.run(bmq, use)


def test_an_object_of_somebody_else_is_not_taken(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        taken = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "bmq-lane-taken", "namespace": "shop", "uid": "x"},
            "spec": {"mine": 1},
        }
        world.kube.keep(taken)
        world.write("taken")
        assert said(await world.look("taken")) == ("False", "NameTaken")
        await world.look("taken", deletionTimestamp="2001-09-09T01:46:40Z")
        assert world.kube.manifests["Service", "shop", "bmq-lane-taken"] == taken

    WORLDS.run(bmq, use)


def test_the_deletion_of_a_lane_never_waits_for_ever(bmq: StartedBmq) -> None:
    async def declared_then_unreachable(world: World) -> None:
        world.write("stuck", proxies={"replicas": 0})
        await world.look("stuck")
        unreachable = context_of(world.kube, "http://127.0.0.1:1", {}, clock=world.clock)
        world.manifest("stuck")["metadata"]["deletionTimestamp"] = "2001-09-09T01:46:40Z"
        manifest = Lane.model_validate(world.manifest("stuck"))
        waiting = await reconcile(unreachable, manifest)
        assert (waiting.finished, said(waiting)) == (False, ("Unknown", "ClusterNotReady"))
        world.clock.ms += 5 * 60_000
        unreachable.known.clusters.forget(("shop", "bmq"))
        assert (await reconcile(unreachable, manifest)).finished

    WORLDS.run(bmq, declared_then_unreachable)


def test_a_lane_without_pods_and_topics_stays_its_own_whatever_was_said_of_it_meanwhile(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("kept", proxies={"replicas": 0})
        assert said(await world.look("kept")) == ("True", "AsWritten")
        world.context.known.intents = Intents()  # another operator leads
        refused = {"replicas": 0, "placement": {"priorityClassName": "system-node-critical"}}
        world.write("kept", ttlSeconds=86_400, proxies=refused)
        assert said(await world.look("kept")) == ("False", "NotAllowed")
        world.write("kept", ttlSeconds=86_400, proxies={"replicas": 0})
        assert said(await world.look("kept")) == ("True", "AsWritten")
        assert (await lane(world, "kept"))["ttl_seconds"] == 86_400
        world.write("kept", proxies=refused)
        assert said(await world.look("kept")) == ("False", "NotAllowed")
        assert (await world.look("kept", deletionTimestamp="2001-09-09T01:46:40Z")).finished
        assert await lane(world, "kept") is None

    WORLDS.run(bmq, use)


def test_a_lane_that_waits_for_something_has_all_lanes_listed_once_in_a_while(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("waits", clusterRef={"name": "missing"})
        world.kube.lists = 0
        for _ in range(5):
            assert said(await world.look("waits")) == ("False", "ClusterMissing")
        assert world.kube.lists == 1

    WORLDS.run(bmq, use)


def test_what_another_lane_took_since_all_were_listed_is_not_taken(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("older", laneName="same", proxies={"replicas": 0}, created="2001-09-09T01:46:39Z")
        world.write("younger", laneName="same", proxies={"replicas": 0})
        await world.client.post("lanes", body={"name": "same"})
        assert said(await world.look("older")) == ("False", "AlreadyExists")
        world.manifest("younger")["status"] = {"laneName": "same", "nodeIdsFrom": 10_000}
        world.write("older", laneName="same", proxies={"replicas": 0}, existing="Adopt", created="2001-09-09T01:46:39Z")
        assert said(await world.look("older")) == ("False", "Collision")

    WORLDS.run(bmq, use)
