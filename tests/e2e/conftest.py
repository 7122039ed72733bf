"""The cluster, the images and the namespaces of the tests on Kubernetes.

With no cluster to be had they are skipped, and one line at the end says so; with BMQ_E2E=required (`make e2e`) they
fail. BMQ_E2E_KEEP=1 leaves what they made.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from e2e_cluster import Kubernetes, NoCluster, find
from e2e_images import Images, SparkImages, loaded, spark_loaded
from e2e_kubectl import Kubectl
from e2e_release import Release, kept
from e2e_running import Running

PREFIX = os.environ.get("BMQ_E2E_PREFIX", "e2e")
HERE = Path(__file__).parent
T = TypeVar("T")
TEST_S_MAX = 900
"""For a test with all that it waits for: the first one may build the images, beside other tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that name no time of their own."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))


def _had(what: Callable[[], T]) -> T:
    """What a cluster is needed for; without one the test is skipped, or fails."""
    try:
        return what()
    except NoCluster as problem:
        if os.environ.get("BMQ_E2E") == "required":
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(f"The Kubernetes tests (tests/e2e) were NOT run: {problem}")


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    """The cluster."""
    found = _had(find)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def images(kubernetes: Kubernetes) -> Images:
    """bmq's image and MinIO's, loaded."""
    return _had(lambda: loaded(kubernetes))


@pytest.fixture(scope="session")
def spark_images(kubernetes: Kubernetes) -> SparkImages:
    """Spark's image and the Spark Operator's, loaded; apart, as they are large and few tests need them."""
    return _had(lambda: spark_loaded(kubernetes))


@pytest.fixture(scope="session")
def namespace(kubernetes: Kubernetes) -> Callable[[str], AbstractContextManager[Kubectl]]:
    """Makes namespaces, each for as long as a `with`."""
    return lambda name: _namespace(kubernetes, name)


@pytest.fixture
def kubectl(kubernetes: Kubernetes, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own."""
    with _namespace(kubernetes, request.node.name.removeprefix("test_")) as within:
        yield within


@pytest.fixture(scope="module")
def release(kubernetes: Kubernetes, images: Images, request: pytest.FixtureRequest) -> Iterator[Release]:
    """The chart, installed in a namespace of the test module's own."""
    with _namespace(kubernetes, request.module.__name__.removeprefix("test_e2e_")) as within:
        installed = Release(kubectl=within, images=images)
        installed.install()
        yield installed
        if not kept():
            installed.leave()


@pytest.fixture(scope="session")
def running(kubernetes: Kubernetes, images: Images) -> Iterator[Running]:
    """A Cluster that is Ready, with clients outside, which several test modules use one after the other; and a second
    namespace for what is to go.
    """
    with _namespace(kubernetes, "running") as within, _namespace(kubernetes, "doomed") as doomed:
        installed = Release(kubectl=within, images=images)
        installed.install({"watchNamespaces": [within.namespace, doomed.namespace]})
        yield Running.started(installed, doomed)
        if not kept():
            installed.leave()


@contextmanager
def _namespace(kubernetes: Kubernetes, name: str) -> Iterator[Kubectl]:
    """A namespace whose pods have to be restricted, and which is gone afterwards."""
    name = f"{PREFIX}-{re.sub('[^a-z0-9]+', '-', name.lower())}"[:50].rstrip("-")
    _forget(kubernetes.kubectl, name)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubernetes.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield kubernetes.kubectl.within(name)
    if not kept():
        kubernetes.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def _forget(kubectl: Kubectl, namespace: str) -> None:
    """What an earlier run left."""
    kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s", timeout_s=150)
