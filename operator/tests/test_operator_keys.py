"""Replacing the secret between nodes and the admin API's token: any two nodes let each other in at every moment; at
last the new ones are alone.
"""

import asyncio
import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kube_of_a_test import CLUSTER, KubeOfATest, context_of

from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.existing import Done, bring_about, read_existing
from bmq_operator.clusters.gathering import gather
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import next_list, reference, talk, why_unusable
from bmq_operator.clusters.refused import NotToBe
from bmq_operator.clusters.rotation import replacing
from bmq_resources.cluster import Cluster

OLD, NEW = "an-old-secret-of-24-characters", "a-new-secret-of-24-characters!"
SHOP = Cluster.model_validate(CLUSTER | {"metadata": CLUSTER["metadata"] | {"uid": "uid-bmq"}})


@settings(max_examples=300, deadline=None)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["roll", "change", "restart"]), st.integers(0, 5), st.sampled_from("abc")),
        max_size=40,
    ),
    nodes=st.integers(1, 5),
)
def test_whatever_is_written_and_rolled_when_any_two_nodes_let_each_other_in_and_the_last_word_counts(
    moves: list[tuple[str, int, str]], nodes: int
) -> None:
    lists, wanted, current = [("a",)] * nodes, "a", ("a",)
    for move, which, secret in moves:
        if move == "change":
            wanted = secret
        elif move == "roll":
            lists[which % nodes] = current
        current = next_list(wanted, [*lists, current], current=current)
        assert all(talk(one, other) for one in (*lists, current) for other in (*lists, current))
    for _ in range(4):
        lists = [current] * nodes
        current = next_list(wanted, lists, current=current)
    assert set(lists) == {(wanted,)}


def test_from_one_secret_to_the_next_there_are_three_rolls() -> None:
    seen, current = [], ("old",)
    while current != ("new",):
        current = next_list("new", [current], current=current)
        seen.append(current)
    assert seen == [("old", "new"), ("new", "old"), ("new",)]


@pytest.mark.parametrize(
    "value",
    [
        "short",
        "x" * 1025,
        "a secret with white space in it",
        "a-secret-that-ends-its-line\n",
        "schlüssel-für-prüfer-äöü",
        "abcdefghijklmnop\x01q",
    ],
)
def test_what_nodes_would_refuse_is_told_and_not_shown(value: str) -> None:
    said = why_unusable("bmq-auth", "cluster-secret", value)
    assert "cluster-secret of the Secret bmq-auth has" in said and "openssl" in said
    assert value not in said


class World:
    """A Cluster's Secrets and StatefulSets in front of an API server of the test's own; its pods are what templates
    were when they were rolled.
    """

    def __init__(self) -> None:
        self.kube = KubeOfATest()
        self.kube.keep(SHOP.model_dump(by_alias=True))
        self.context = context_of(self.kube, "http://127.0.0.1:1", {})
        object.__setattr__(self.context, "rng", self)

    def nonce(self) -> bytes:
        return b"0123456789abcdef"

    async def look(self) -> Inputs:
        existing = await read_existing(self.kube, SHOP)  # type: ignore[arg-type]
        inputs = await gather(self.context, SHOP, existing, advertised="")
        await bring_about(self.kube, SHOP, existing, desired(SHOP, inputs), done=Done())  # type: ignore[arg-type]
        return inputs

    def roll(self, *roles: str) -> None:
        for role in roles or ("controller", "broker", "proxy"):
            template = self.kube.manifests["StatefulSet", "shop", f"bmq-{role}"]["spec"]["template"]
            owner = {
                "controller": True,
                "uid": self.kube.manifests["StatefulSet", "shop", f"bmq-{role}"]["metadata"]["uid"],
            }
            meta = {
                "name": f"bmq-{role}-0",
                "namespace": "shop",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner],
            }
            self.kube.keep({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})

    def write(self, **values: str) -> None:
        secret = self.kube.manifests["Secret", "shop", "bmq-auth"]
        data = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.kube.keep(secret | {"data": secret["data"] | data})

    def template(self, name: str) -> dict[str, Any]:
        return dict(self.kube.manifests["StatefulSet", "shop", name]["spec"]["template"])

    def secrets(self) -> list[str]:
        return sorted(name for kind, _, name in self.kube.manifests if kind == "Secret" and "keys" in name)

    def used_by(self, pod: str) -> str:
        return reference(self.kube.manifests["Pod", "shop", pod]["spec"])[0]


def run(use: Any) -> None:
    asyncio.run(use(World()))


def test_a_replaced_secret_reaches_nodes_in_three_rolls_and_the_old_one_goes_with_the_last_pod_that_uses_it() -> None:
    async def use(world: World) -> None:
        first = await world.look()
        world.roll()
        world.write(cluster_secret=NEW, admin_token=OLD)
        seen = []
        for _ in range(3):
            inputs = await world.look()
            seen.append(inputs.keys[inputs.keys_name].cluster)
            note = replacing(inputs)
            assert (note is None) == (seen[-1] == (NEW,))
            world.roll("controller")
            assert inputs.keys_name == (await world.look()).keys_name, "nothing goes on before all nodes have it"
            assert world.used_by("bmq-proxy-0") in world.secrets(), "what a pod starts again with is there"
            world.roll("broker", "proxy")
        assert seen == [(first.cluster_secret, NEW), (NEW, first.cluster_secret), (NEW,)]
        await world.look()
        assert world.secrets() == ["bmq-keys-4"]
        assert world.used_by("bmq-broker-0") == "bmq-keys-4"

    run(use)


def test_a_secret_that_is_deleted_under_running_nodes_is_what_they_have_again() -> None:
    async def use(world: World) -> None:
        first = await world.look()
        world.roll()
        world.kube.drop("Secret", "shop", "bmq-auth")
        again = await world.look()
        assert (again.cluster_secret, again.admin_token, again.keys_name) == (
            first.cluster_secret,
            first.admin_token,
            first.keys_name,
        )

    run(use)


def test_keys_that_are_deleted_under_running_nodes_are_not_invented_and_restoring_them_heals() -> None:
    async def use(world: World) -> None:
        await world.look()
        world.roll()
        kept = world.kube.manifests["Secret", "shop", "bmq-keys-1"]
        world.kube.drop("Secret", "shop", "bmq-keys-1")
        with pytest.raises(NotToBe) as told:
            await world.look()
        assert told.value.finding.reason == "SecretMissing"
        assert "bmq-keys-1" in told.value.finding.message and "restore it" in told.value.finding.message
        world.kube.keep(kept)
        assert (await world.look()).keys_name == "bmq-keys-1"

    run(use)


def test_keys_of_minio_that_are_deleted_under_it_are_not_invented_and_other_ones_start_it_and_its_nodes_anew() -> None:
    async def use(world: World) -> None:
        await world.look()
        kept = world.kube.manifests["Secret", "shop", "bmq-minio"]
        before = {one: world.template(one) for one in ("bmq-minio", "bmq-broker")}
        world.kube.drop("Secret", "shop", "bmq-minio")
        with pytest.raises(NotToBe) as told:
            await world.look()
        assert told.value.finding.reason == "SecretMissing"
        assert "'bmq-minio'" in told.value.finding.message
        world.kube.keep(kept)
        await world.look()
        assert before == {one: world.template(one) for one in before}
        world.kube.keep(kept | {"data": kept["data"] | {"password": base64.b64encode(NEW.encode()).decode()}})
        await world.look()
        assert all(world.template(one) != before[one] for one in before)
        world.kube.drop("Secret", "shop", "bmq-minio")
        world.kube.drop("StatefulSet", "shop", "bmq-minio")
        assert (await world.look()).minio_password not in ("", NEW)

    run(use)


def test_one_that_cannot_be_used_changes_nothing_and_says_so() -> None:
    async def use(world: World) -> None:
        await world.look()
        world.roll()
        world.write(cluster_secret="short")
        with pytest.raises(NotToBe) as told:
            await world.look()
        assert told.value.finding.reason == "SecretUnusable"

    run(use)


def test_a_secret_that_somebody_made_is_used_and_left_alone() -> None:
    async def use(world: World) -> None:
        data = {key: base64.b64encode(NEW.encode()).decode() for key in ("cluster-secret", "admin-token")}
        theirs = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "bmq-auth", "namespace": "shop", "uid": "theirs"},
            "data": data,
        }
        world.kube.keep(theirs)
        inputs = await world.look()
        assert inputs.keys[inputs.keys_name].cluster == (NEW,)
        assert world.kube.manifests["Secret", "shop", "bmq-auth"] is theirs

    run(use)
