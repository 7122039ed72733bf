"""An image is a repository and what follows its colon: a tag, and behind that perhaps a digest, of which nodes are no
version.
"""

from dataclasses import replace
from typing import Any

import pytest
from kinds_of_a_test import INPUTS

from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.pods import erase_job
from bmq_operator.clusters.report import Found, report
from bmq_operator.lanes.desired import desired as objects_of_lane
from bmq_operator.settings import OperatorSettings
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane

DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32
CASES = [
    ("bmq:1", {}, "bmq:1"),
    ("r:5000/bmq:1", {"tag": "2"}, "r:5000/bmq:2"),
    ("bmq:1", {"tag": f"2@{OTHER}"}, f"bmq:2@{OTHER}"),
    (f"r:5000/bmq:1@{DIGEST}", {}, f"r:5000/bmq:1@{DIGEST}"),
    (f"r:5000/bmq:1@{DIGEST}", {"tag": "2"}, "r:5000/bmq:2"),
    (f"r:5000/bmq:1@{DIGEST}", {"tag": f"2@{OTHER}"}, f"r:5000/bmq:2@{OTHER}"),
    (f"bmq:1@{DIGEST}", {"repository": "r:5000/mirror"}, f"r:5000/mirror:1@{DIGEST}"),
    ("bmq:1", {"repository": "r:5000/mirror", "tag": f"2@{OTHER}"}, f"r:5000/mirror:2@{OTHER}"),
]


def cluster(**image: str) -> Cluster:
    spec = {"store": {"url": "s3://b"}, "image": image}
    return Cluster.model_validate({"metadata": {"name": "bmq", "namespace": "shop", "uid": "uid-bmq"}, "spec": spec})


def image_of(manifest: dict[str, Any]) -> str:
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


@pytest.mark.parametrize(("default", "written", "image"), CASES)
def test_nodes_those_of_lanes_and_the_erasure_run_what_is_written(
    default: str, written: dict[str, str], image: str
) -> None:
    assert OperatorSettings(image=default).image == default
    of = cluster(**written)
    sets = [one for one in desired(of, replace(INPUTS, default_image=default)) if one["kind"] == "StatefulSet"]
    assert {image_of(one) for one in sets} == {image}
    base = next(one for one in sets if one["metadata"]["name"] == "bmq-proxy")
    lane = Lane.model_validate(
        {"metadata": {"name": "dev", "namespace": "shop", "uid": "uid-dev"}, "spec": {"brokers": {"replicas": 1}}}
    )
    of_lane = [
        one
        for one in objects_of_lane(lane, of, base, node_ids_from=20_000, with_brokers=True)
        if one["kind"] == "StatefulSet"
    ]
    assert {image_of(one) for one in of_lane} == {image}
    assert image_of(erase_job(of, image=default)) == image


@pytest.mark.parametrize("image", ["bmq:2", f"r:5000/bmq:2@{DIGEST}"])
def test_a_version_is_a_tag_without_its_digest(image: str) -> None:
    pods = (Pod(name="bmq-broker-0", component="broker", ordinal=0, ready=True, outdated=False, image=image),)
    assert report(cluster(), Found(pods=pods), now_ms=0).version == "2"
