"""`kubectl scale` from one broker to three and back, under load: nothing is lost, and no segment is copied."""

import base64
from time import monotonic

from e2e_kubectl import Kubectl
from e2e_load import load, ready_cluster
from e2e_release import CLUSTER, Release, status_of
from minio import Minio

HISTORY_BYTES = 12_000_000
HISTORY_TAIL_BYTES_MAX = 3 << 20
"""What of it may not be in segments yet."""
RECORD_BYTES_MAX = 400
RESOURCE = f"clusters.bmq.io/{CLUSTER}"


def objects(kubectl: Kubectl) -> dict[str, tuple[str, int]]:
    """What is in the bucket: ETag and size by key."""
    secret = {name: base64.b64decode(text).decode() for name, text in kubectl.json("get", "secret", f"{CLUSTER}-minio")["data"].items()}
    with kubectl.forwarded(f"service/{CLUSTER}-minio", [":9000"]) as [port]:
        store = Minio(f"127.0.0.1:{port}", access_key=secret["user"], secret_key=secret["password"], secure=False)
        return {one.object_name: (one.etag or "", one.size or 0) for one in store.list_objects("bmq", recursive=True) if one.object_name}


def scale(kubectl: Kubectl, replicas: int) -> None:
    """Until the Cluster has so many brokers and says that it is ready."""
    started = monotonic()
    kubectl("scale", RESOURCE, f"--replicas={replicas}")

    def done() -> bool:
        shown = status_of(kubectl, RESOURCE)
        brokers = shown["brokers"]
        return brokers["replicas"] == brokers["ready"] == brokers["desired"] == replicas

    kubectl.until(f"{replicas} brokers", done, timeout_s=150)
    kubectl.until_ready(RESOURCE)
    print(f"{replicas} brokers after {monotonic() - started:.1f} s")


def segments(found: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Those of the objects that are segments, of one partition or shared by several."""
    return {key: value for key, value in found.items() if "/segment/" in key or key.startswith("shared/")}


def history(kubectl: Kubectl) -> None:
    """A topic whose records are in several segments."""
    kubectl.exec("client", "bmq", "topics", "create", "history", "--config", "segment.bytes=1048576")
    kubectl.exec("client", "bmq", "produce", "history", given=(("h" * 999 + "\n") * (HISTORY_BYTES // 1000)))
    kubectl.until("segments", lambda: sum(size for _, size in segments(objects(kubectl)).values()) > HISTORY_BYTES // 2)


def test_brokers_come_and_go_under_load_and_no_segment_is_copied(release: Release) -> None:
    kubectl = ready_cluster(release, brokers={"replicas": 1})
    history(kubectl)
    with load(kubectl, release) as running:
        before = segments(objects(kubectl))
        scale(kubectl, 3)
        running.goes_on()
        scale(kubectl, 1)
        running.goes_on()
        after = segments(objects(kubectl))
    made = {key: size for key, (_, size) in after.items() if key not in before}
    print(f"{len(before)} segments before, {len(made)} more after, of {sum(made.values())} bytes")
    assert {key: after.get(key) for key in before} == before
    rolled = HISTORY_TAIL_BYTES_MAX + running.result["sent"] * RECORD_BYTES_MAX
    assert sum(made.values()) <= rolled, f"{made}: more than what was not yet in segments"
    assert rolled < HISTORY_BYTES // 2
