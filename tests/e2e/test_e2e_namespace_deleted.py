"""A namespace is deleted with all that is in it: no finalizer holds it up, whatever the policies say. The operator is in another one."""

from collections.abc import Iterator

import pytest
from e2e_kubectl import Kubectl, Manifest
from e2e_release import Release, kept


@pytest.fixture
def other(release: Release) -> Iterator[Kubectl]:
    """kubectl in a second namespace that the operator looks after."""
    name = f"{release.namespace}-other"
    everywhere = release.kubectl.within("")
    everywhere.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    release.install({"watchNamespaces": [release.namespace, name]})
    yield everywhere.within(name)
    if not kept():
        everywhere("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def resource(kind: str, name: str, spec: Manifest) -> Manifest:
    """A resource that wants to take its records along, without the annotation that says that they may go."""
    return {"apiVersion": "bmq.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": {"deletionPolicy": "Delete", **spec}}


def held(kubectl: Kubectl, name: str) -> bool:
    """Whether a finalizer is on it."""
    return bool(kubectl.json("get", name)["metadata"].get("finalizers"))


def test_a_namespace_goes_though_its_resources_have_a_finalizer(other: Kubectl) -> None:
    other.apply(resource("Cluster", "bmq", {"store": {"minio": {"embedded": True}}}), resource("Topic", "orders", {}))
    other.until("the finalizer is on the Cluster", lambda: held(other, "clusters.bmq.io/bmq"))
    everywhere = other.within("")
    everywhere("delete", "namespace", other.namespace, "--timeout=90s", timeout_s=120)
    assert not everywhere("get", "namespace", other.namespace, "--ignore-not-found")
