"""The examples are what the models take."""

from pathlib import Path

import pytest
import yaml

from bmq_resources import KINDS
from bmq_resources.cluster import Cluster

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
BY_KIND = {kind.__name__: kind for kind in KINDS}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_resource(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        BY_KIND[document["kind"]].model_validate(document)


def test_there_is_an_example_of_every_kind() -> None:
    kinds = {document["kind"] for path in EXAMPLES for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))}

    assert kinds == set(BY_KIND)


def test_the_cluster_to_try_out_fits_on_two_cores_with_the_operator_and_what_kubernetes_runs_itself() -> None:
    cluster = Cluster.model_validate(yaml.safe_load((EXAMPLES[0].parent / "cluster.yaml").read_text()))
    values = yaml.safe_load((EXAMPLES[0].parents[1] / "charts" / "bmq" / "values.yaml").read_text())
    spec = cluster.spec
    asked = [
        part.resources.requests for part in (spec.controllers, spec.brokers, spec.proxies) for _ in range(part.replicas)
    ]
    asked += [spec.store.minio.resources.requests, values["resources"]["requests"]]
    assert (
        sum(int(str(one["cpu"]).removesuffix("m")) for one in asked) <= 1_000
    )  # DNS, network and kubelet of a small node ask for up to the other half
    assert sum(_mebibytes(str(one["memory"])) for one in asked) <= 2_560


def _mebibytes(text: str) -> int:
    return int(text.removesuffix("Mi")) if text.endswith("Mi") else int(text.removesuffix("Gi")) * 1024
