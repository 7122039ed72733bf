"""Why pods are not ready, as the status of a pod tells it."""

from typing import Any

import pytest

from bmq_operator.clusters.troubles import last_words, trouble


def pod(name: str = "demo-broker-0", *, ready: bool = False, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}, *status.pop("conditions", [])]
    return {"metadata": {"name": name}, "status": {"conditions": conditions, **status}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"image": "bmq:nope", "state": {"waiting": {"reason": reason, "message": message}}}]}


def ended(message: str, *, code: int = 1, reason: str = "Error") -> dict[str, Any]:
    last = {"exitCode": code, "reason": reason, "message": message}
    return {
        "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": last}}]
    }


REFUSED = (
    "error: store s3://b?endpoint=http://m:9000: SignatureDoesNotMatch: the server refuses the keys: check "
    "AWS_ACCESS_KEY_ID"
)
OTHER = "error: cluster_id 'a': the store s3://b belongs to cluster 'b': name that cluster's own store, or its id"
BAD_KEY = "error: BMQ_FLUSH_BYTES 'huge': set a size such as 4MiB"
UNREACHED = "error: store s3://b?endpoint=http://m:9000: it is not reached: connection refused"


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (waiting("ImagePullBackOff", "no such host"), "ImageUnavailable", "bmq:nope cannot be pulled"),
        (waiting("CreateContainerConfigError", 'secret "x" not found'), "Misconfigured", 'secret "x" not found'),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too big."}
                ]
            },
            "Unschedulable",
            "too big. Free",
        ),
        (ended(REFUSED), "StoreRefusesKeys", "ended: store s3://b"),
        (ended(OTHER, code=2), "StoreOfAnotherCluster", "belongs to cluster 'b'"),
        (ended(BAD_KEY, code=2), "Misconfigured", "BMQ_FLUSH_BYTES 'huge'"),
        (ended(UNREACHED), "StoreUnavailable", "is not reached"),
        (ended("", code=137, reason="OOMKilled"), "OutOfMemory", "raise its memory limit, or leave it out"),
        (
            ended("error: lagging", code=137, reason="OOMKilled"),
            "OutOfMemory",
            "out of memory: raise its memory limit, or leave it out; the last that it",
        ),
        (ended("Traceback\n  File x\nKeyError: 1"), "Crashing", "ended: KeyError: 1"),
    ],
)
def test_what_keeps_a_pod_from_being_ready_is_named_with_what_helps(
    status: dict[str, Any], reason: str, words: str
) -> None:
    found = trouble([pod(**status)])
    assert found is not None
    assert found.reason == reason
    assert words in found.message


def test_what_a_minio_may_do_that_finds_no_node_is_what_its_spec_can_say() -> None:
    nowhere = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too big."}]
    }
    minio = pod("demo-minio-0", **nowhere)
    minio["metadata"]["labels"] = {"app.kubernetes.io/component": "minio"}
    found = trouble([minio])
    assert found is not None and found.message.endswith("too big. Free resources, or change store.minio.resources")
    node = trouble([pod(**nowhere)])
    assert node is not None and node.message.endswith("or change its resources and placement")


def test_of_several_troubles_the_one_that_says_most_is_told() -> None:
    found = trouble(
        [pod("a", **ended("error: no controller")), pod("b", **ended(REFUSED)), pod("c", **waiting("ImagePullBackOff"))]
    )
    assert found is not None
    assert found.reason == "StoreRefusesKeys"


def test_a_pod_that_is_ready_again_is_no_trouble() -> None:
    assert trouble([pod(ready=True, **ended(REFUSED))]) is None


def test_a_pod_that_starts_is_no_trouble() -> None:
    assert trouble([pod(**waiting("ContainerCreating"))]) is None


def test_a_clean_end_is_no_trouble() -> None:
    assert trouble([pod(**ended("", code=0))]) is None


DUE = "2026-01-01T00:00:00Z"
DUE_MS = 1_767_225_600_000


def going(*, ready: bool = False, **status: Any) -> dict[str, Any]:
    """To be gone by DUE, on a machine."""
    one = pod(ready=ready, **status)
    one["metadata"] |= {"namespace": "shop", "deletionTimestamp": DUE}
    return one | {"spec": {"nodeName": "machine-3"}}


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("status", [{}, ended(REFUSED)], ids=["it ran", "it had ended once"])
def test_a_pod_of_a_machine_that_is_lost_is_named_with_what_helps(ready: bool, status: dict[str, Any]) -> None:
    found = trouble([going(ready=ready, **status)], now_ms=DUE_MS + 60_000)
    assert found is not None and found.reason == "PodNotGone"
    assert found.message == (
        "demo-broker-0 was to be gone by 2026-01-01T00:00:00Z and is still there: its machine machine-3 is likely "
        "lost, and Kubernetes makes no other pod of that name before. Bring the machine back, or, once it is surely "
        "off, kubectl -n shop delete pod demo-broker-0 --force --grace-period=0"
    )


def test_what_kubernetes_says_of_a_lost_machine_is_quoted() -> None:
    why = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
    }
    found = trouble([going(conditions=[why])], now_ms=DUE_MS + 600_000)
    assert found is not None
    assert "lost (DeletionByTaintManager: Taint manager: deleting due to NoExecute taint), and" in found.message


@pytest.mark.parametrize("late_ms", [-30_000, 0, 59_999])
def test_a_pod_that_takes_its_time_to_end_is_no_trouble(late_ms: int) -> None:
    assert trouble([going()], now_ms=DUE_MS + late_ms) is None


def test_a_minio_whose_machine_is_lost_says_more_than_the_nodes_that_miss_it() -> None:
    found = trouble([pod("a", **ended(UNREACHED)), going()], now_ms=DUE_MS + 60_000)
    assert found is not None and found.reason == "PodNotGone"


def test_the_last_words_of_a_structured_log_are_what_happened_and_why() -> None:
    log = (
        '{"event": "starting", "level": "info"}\n{"event": "this process ends", "why": "another boot has its '
        'id", "level": "error"}\n'
    )
    assert last_words(log) == "this process ends: another boot has its id"
