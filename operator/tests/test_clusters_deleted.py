"""What the deletion of a Cluster takes with it: nothing by a spec that was refused, nothing of another's, and nothing
but what it ran over.
"""

from typing import Any

import pytest
from clusters_world import World, cluster, doomed, run

from bmq_operator.allowed import Allowed
from bmq_operator.workqueue import Key

ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "prod", "namespace": "shop"}}
SECRET = {"kind": "Secret", "metadata": {"name": "db-admin", "namespace": "shop"}, "data": {"password": "aHVudGVyMg=="}}
KEYS = {"secretName": "db-admin", "accessKeyIdKey": "password", "secretAccessKeyKey": "password"}
EMBEDDED: dict[str, Any] = {"minio": {"embedded": True}}
OF_MINIO = {"bmq.io/cluster": "prod", "app.kubernetes.io/component": "minio", "bmq.io/lane": ""}


def claim(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-prod-minio-0", "namespace": "shop", "labels": labels},
    }


def stateful_set(name: str, labels: dict[str, str], **meta: Any) -> dict[str, Any]:
    template: dict[str, Any] = {"metadata": {"labels": {}}, "spec": {"containers": []}}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "shop", "labels": labels, **meta},
        "spec": {"replicas": 0, "template": template},
    }


async def goes(world: World, name: str = "prod") -> tuple[str, str, str]:
    """Until it is gone, or nothing more happens."""
    world.begins_deletion(name)
    for _ in range(4):
        said = await world.look(name)
        world.pods_are_made()
    return said


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ({"image": {"repository": "evil.example/steal"}}, "NotAllowed"),
        ({"store": {"url": "s3://b", "credentials": KEYS}}, "NotAllowed"),
        ({"image": {"pullSecrets": ["db-admin"]}}, "NotAllowed"),
    ],
    ids=["image", "keys to the store", "keys to images"],
)
def test_a_cluster_that_was_refused_from_its_first_day_has_no_job_run_when_it_goes(
    refused: dict[str, Any], reason: str
) -> None:
    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] == reason
        _, why, text = await goes(world)
        assert why == reason
        assert "the records are not erased" in text and "deletionPolicy: Retain" in text
        assert not world.has("Job", "prod-erase") and world.held("prod")
        world.there("Cluster", "prod")["spec"]["deletionPolicy"] = "Retain"
        await world.look("prod")
        assert not world.held("prod")

    run(use, doomed(**refused), SECRET)


def test_a_cluster_that_cannot_go_is_looked_at_ever_more_rarely() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        assert (await goes(world))[1] == "NotAllowed"
        key = Key("Cluster", "shop", "prod")
        assert (await world._runner._reconcile(key))[1] == 2
        world.context.clock.ms += 600_000  # type: ignore[attr-defined]
        assert (await world._runner._reconcile(key))[1] == 10

    run(use, doomed(image={"repository": "evil.example/steal"}))


def test_a_cluster_that_is_refused_only_when_it_goes_has_no_job_run_either() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.there("Cluster", "prod")["spec"]["image"] = {"repository": "evil.example/steal"}
        assert (await goes(world))[1] == "NotAllowed"
        assert not world.has("Job", "prod-erase")

    run(use, doomed())


def test_the_records_of_another_cluster_stay_when_one_goes_that_only_named_its_store() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        assert (await world.look("copy"))[1] == "StoreShared"
        assert (await goes(world, "copy"))[1] == "StoreShared"
        assert not world.has("Job", "copy-erase")

    run(use, cluster(), doomed("copy", created="2002-01-01T00:00:00Z", clusterId="shop-prod"))


def test_an_older_cluster_erases_nothing_over_which_a_younger_one_has_run() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.kube.keep(doomed("elder", created="2000-01-01T00:00:00Z"))
        await world.look("elder")
        assert (await goes(world, "elder"))[1] == "StoreShared"
        assert not world.has("Job", "elder-erase")

    run(use, cluster())


def test_a_cluster_that_never_had_nodes_erases_nothing() -> None:
    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] == "NameTaken"
        world.kube.drop("ServiceAccount", "shop", "prod")
        _, reason, text = await goes(world)
        assert reason == "NeverRan"
        assert "s3://b" in text and "deletionPolicy: Retain" in text
        assert not world.has("Job", "prod-erase")

    run(use, doomed(), ACCOUNT)


def test_a_cluster_none_of_whose_nodes_was_ever_ready_erases_nothing() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made(ready=False)
        await world.look("prod")
        _, reason, text = await goes(world)
        assert reason == "NeverRan" and "none of its controllers was ever ready" in text
        assert not world.has("Job", "prod-erase")

    run(use, doomed())


def test_a_cluster_that_was_ready_only_while_no_operator_looked_is_known_to_have_run() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await goes(world)
        assert world.has("Job", "prod-erase")

    run(use, doomed())


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "made by an operator that did not note it"])
def test_a_cluster_that_ran_is_erased_by_the_store_that_it_ran_over(noted: bool) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        status = world.there("Cluster", "prod")["status"]
        assert status["store"] == "s3://b"
        if not noted:
            status["store"] = ""
        world.kube.drop("ServiceAccount", "shop", "prod")
        world.begins_deletion("prod")
        await world.look("prod")
        await world.look("prod")
        assert not world.has("Job", "prod-erase"), "its nodes have yet to end"
        assert "prod-broker-0" in world.ready("prod")[2]
        world.pods_are_made()
        await world.look("prod")
        job = world.there("Job", "prod-erase")
        assert job["spec"]["template"]["spec"]["containers"][0]["args"][:4] == ["store", "erase", "--store", "s3://b"]
        assert world.there("ServiceAccount", "prod")["metadata"]["ownerReferences"][0]["uid"] == "uid-of-prod"
        job["status"] = {"succeeded": 1}
        await world.look("prod")
        assert not world.held("prod")

    run(use, doomed())


@pytest.mark.parametrize("kind", ["Job", "ServiceAccount"])
def test_another_ones_job_or_account_is_not_used_to_erase(kind: str) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        name = "prod-erase" if kind == "Job" else "prod"
        world.kube.keep({"kind": kind, "metadata": {"name": name, "namespace": "shop"}, "status": {"succeeded": 1}})
        assert (await goes(world))[1] == "NameTaken"
        assert world.held("prod")
        assert "spec" not in world.kube.manifests.get(("Job", "shop", "prod-erase"), {})

    run(use, doomed())


def test_another_ones_stateful_set_and_volume_stay_when_a_cluster_goes_that_wanted_their_names() -> None:
    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] == "NameTaken"
        await goes(world)
        assert world.has("StatefulSet", "prod-minio") and world.has("PersistentVolumeClaim", "data-prod-minio-0")
        assert world.kube.deleted == []
        assert not world.held("prod")

    run(use, doomed(store=EMBEDDED), stateful_set("prod-minio", {"app": "minio"}), claim({"app": "minio"}))


def test_what_has_a_clusters_label_alone_stays_when_it_goes() -> None:
    owner = [{"controller": True, "uid": "other", "kind": "Thing", "name": "t"}]
    labels = {"bmq.io/cluster": "prod", "app.kubernetes.io/component": "broker"}

    async def use(world: World) -> None:
        await world.look("prod")
        await goes(world)
        assert world.has("StatefulSet", "theirs") and world.has("StatefulSet", "nobodys")
        assert "StatefulSet prod-broker" in world.kube.deleted

    run(
        use,
        doomed(),
        stateful_set("theirs", labels, ownerReferences=owner),
        stateful_set("nobodys", labels | {"bmq.io/lane": "dev"}),
    )


def test_a_claim_that_was_there_before_is_not_mounted_unless_it_is_an_earlier_clusters_of_the_name() -> None:
    async def refused(world: World) -> None:
        _, reason, text = await world.look("prod")
        assert reason == "NameTaken" and "data-prod-minio-0" in text
        assert not world.has("StatefulSet", "prod-minio")

    async def taken(world: World) -> None:
        await world.look("prod")
        assert world.has("StatefulSet", "prod-minio")

    run(refused, cluster(store=EMBEDDED), claim({"app": "minio", "release": "prod"}))
    run(taken, cluster(store=EMBEDDED), claim(OF_MINIO))


def test_the_embedded_minios_own_volume_goes_with_it() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.kube.keep(claim(OF_MINIO))
        await goes(world)
        assert world.kube.deleted[:2] == ["PersistentVolumeClaim data-prod-minio-0", "StatefulSet prod-minio"]
        assert not world.held("prod")

    run(use, doomed(store=EMBEDDED))


def test_a_volume_of_the_name_stays_when_a_cluster_goes_that_never_used_it() -> None:
    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] == "NotAllowed"
        await goes(world)
        assert world.has("PersistentVolumeClaim", "data-prod-minio-0")

    run(use, doomed(store=EMBEDDED, image={"repository": "evil.example/steal"}), claim(OF_MINIO))


def taken_by_the_garbage_collector(world: World) -> None:
    """As Kubernetes does at once where a Cluster is deleted in the foreground: finalizers hold the Cluster alone."""
    for (kind, _, name), one in list(world.kube.manifests.items()):
        owners = one["metadata"].get("ownerReferences", [])
        if kind != "Pod" and any(owner["uid"] == "uid-of-prod" for owner in owners):
            world.kube.drop(kind, "shop", name)
    world.pods_are_made()


@pytest.mark.parametrize("paused", [False, True])
def test_a_cluster_that_is_deleted_in_the_foreground_says_that_its_nodes_are_gone_though_nobody_confirmed_it(
    paused: bool,
) -> None:
    reason = "Paused" if paused else "DeletionUnconfirmed"

    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        world.there("Cluster", "prod")["spec"]["paused"] = paused
        world.begins_deletion("prod")
        _, why, text = await world.look("prod")
        status = world.there("Cluster", "prod")["status"]
        assert why == reason and "gone" not in text, "in the background it holds its nodes, too"
        assert [status[role]["ready"] for role in ("controllers", "brokers", "proxies")] == [2, 3, 2]
        taken_by_the_garbage_collector(world)
        _, why, text = await world.look("prod")
        status = world.there("Cluster", "prod")["status"]
        assert why == reason and text.startswith("its nodes are gone, and nothing serves: ")
        assert "The records stay" in text and "deletionPolicy: Retain" in text and "anew" in text
        none = {"desired": 0, "replicas": 0, "ready": 0, "updated": 0}
        assert [status[role] for role in ("controllers", "brokers", "proxies", "lanes")] == [none] * 4
        assert world.held("prod") and not world.has("Job", "prod-erase")
        assert status["store"] == "s3://b", "so that they are erased once that is confirmed"

    run(use, doomed() if paused else cluster(deletionPolicy="Delete"))


def test_a_cluster_that_never_had_nodes_is_not_said_to_have_lost_them() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.begins_deletion("prod")
        _, reason, text = await world.look("prod")
        assert reason == "DeletionUnconfirmed" and "gone" not in text

    run(use, cluster(deletionPolicy="Delete", image={"repository": "evil.example/steal"}))


async def erases(world: World) -> dict[str, Any]:
    await world.look("prod")
    world.pods_are_made()
    await world.look("prod")
    await goes(world)
    return world.there("Job", "prod-erase")


def image_of(job: dict[str, Any]) -> str:
    return str(job["spec"]["template"]["spec"]["containers"][0]["image"])


def test_the_job_that_erases_runs_where_controllers_do_and_with_what_they_reach_the_store_by() -> None:
    """A region, a label of workload identity, a taint, a quota: without them it would never end, and the Cluster would
    never go.
    """
    placement = {
        "env": [{"name": "AWS_REGION", "value": "eu-west-1"}, {"name": "BMQ_FLUSH_BYTES", "value": "8MiB"}],
        "labels": {"azure.workload.identity/use": "true", "app.kubernetes.io/component": "broker"},
        "annotations": {"prometheus.io/scrape": "false"},
        "nodeSelector": {"pool": "queues"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "priorityClassName": "high",
    }
    resources = {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}

    async def use(world: World) -> None:
        everything = Allowed(labels=("*",), tolerations=("*",), priority_classes=("*",))
        object.__setattr__(world.context, "settings", world.context.settings.model_copy(update={"allow": everything}))
        template = (await erases(world))["spec"]["template"]
        pod = template["spec"]
        (container,) = pod["containers"]
        plain = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        assert plain == {"AWS_REGION": "eu-west-1"}, "keys of bmq server are none of bmq store"
        assert template["metadata"]["labels"]["azure.workload.identity/use"] == "true"
        assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "erase"
        assert template["metadata"]["annotations"] == placement["annotations"]
        assert pod["nodeSelector"] == {"pool": "queues"} and pod["priorityClassName"] == "high"
        assert pod["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
        assert container["resources"] == resources

    run(use, doomed(controllers={"placement": placement, "resources": resources}))


def test_the_job_that_erases_is_made_anew_once_the_spec_that_it_was_made_by_is_corrected() -> None:
    async def use(world: World) -> None:
        first = await erases(world)
        assert image_of(first) == "bmq:typo"
        await world.look("prod")
        assert world.there("Job", "prod-erase")["metadata"]["uid"] == first["metadata"]["uid"], (
            "as long as nothing is changed it stays"
        )
        world.there("Cluster", "prod")["spec"]["image"] = {"tag": "right"}
        assert "is made anew" in (await world.look("prod"))[2]
        await world.look("prod")
        assert image_of(world.there("Job", "prod-erase")) == "bmq:right"
        world.there("Job", "prod-erase")["status"] = {"succeeded": 1}
        world.there("Cluster", "prod")["spec"]["image"] = {"tag": "again"}
        await world.kube.merge("Cluster", "shop", "prod", {"metadata": {"finalizers": ["bmq.io/operator"]}})
        await world._runner._reconcile(Key("Cluster", "shop", "prod"))
        assert not world.held("prod"), "one that has erased everything is not begun anew"

    run(use, doomed(image={"tag": "typo"}))


def test_the_job_that_erases_stays_while_the_spec_is_one_that_is_refused() -> None:
    async def use(world: World) -> None:
        first = await erases(world)
        world.there("Cluster", "prod")["spec"]["image"] = {"repository": "evil.example/steal"}
        assert (await world.look("prod"))[1] == "NotAllowed"
        assert world.there("Job", "prod-erase") == first

    run(use, doomed())


def test_a_job_that_kubernetes_gave_up_is_made_anew() -> None:
    async def use(world: World) -> None:
        first = await erases(world)
        first["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
        await world.look("prod")
        await world.look("prod")
        again = world.there("Job", "prod-erase")
        assert again["metadata"]["uid"] != first["metadata"]["uid"] and "status" not in again

    run(use, doomed())


def test_what_keeps_the_job_that_erases_from_running_is_told() -> None:
    async def use(world: World) -> None:
        job = await erases(world)
        waiting = {
            "name": "bmq",
            "image": "bmq:typo",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
        }
        owner = {"controller": True, "uid": job["metadata"]["uid"], "kind": "Job", "name": "prod-erase"}
        meta = {
            "name": "prod-erase-x",
            "namespace": "shop",
            "labels": job["metadata"]["labels"],
            "ownerReferences": [owner],
        }
        world.kube.keep(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {},
                "status": {"containerStatuses": [waiting]},
            }
        )
        _, reason, text = await world.look("prod")
        assert reason == "EraseFailed"
        assert "bmq:typo cannot be pulled" in text and "Correct image" in text

    run(use, doomed(image={"tag": "typo"}))
