"""`kubectl scale` from one broker to three and back, under load: nothing is lost, and no segment is copied."""

from time import monotonic

from e2e_clients import write
from e2e_kubectl import Kubectl
from e2e_load import load
from e2e_release import status_of
from e2e_running import RESOURCE, Running

HISTORY_BYTES = 36_000_000
HISTORY_TAIL_BYTES_MAX = 3 << 20
"""What of it may not be in segments yet."""
RECORD_BYTES_MAX = 400


def scale(kubectl: Kubectl, replicas: int) -> None:
    """Until the Cluster has so many brokers and says that it is ready."""
    started = monotonic()
    kubectl("scale", RESOURCE, f"--replicas={replicas}")

    def done() -> bool:
        shown = status_of(kubectl, RESOURCE)
        brokers = shown["brokers"]
        return bool(brokers["replicas"] == brokers["ready"] == brokers["desired"] == replicas)

    kubectl.until(f"{replicas} brokers", done, timeout_s=150)
    kubectl.until_ready(RESOURCE)
    print(f"{replicas} brokers after {monotonic() - started:.1f} s")


def segments(running: Running) -> dict[str, tuple[str, int]]:
    """ETag and size by key of those of one partition and of those that several share."""
    return {key: value for key, value in running.objects().items() if "/segment/" in key or key.startswith("shared/")}


def history(running: Running) -> None:
    """A topic whose records are in several segments."""
    running.bmq("topics", "create", "history", "--config", "segment.bytes=1048576")
    write(running.outside, "history", *(["h" * 1000] * (HISTORY_BYTES // 1000)))
    running.kubectl.until("segments", lambda: sum(size for _, size in segments(running).values()) > HISTORY_BYTES // 2)


def test_brokers_come_and_go_under_load_and_no_segment_is_copied(running: Running) -> None:
    kubectl = running.kubectl
    scale(kubectl, 1)
    history(running)
    with load(running) as producing:
        before = segments(running)
        scale(kubectl, 3)
        producing.goes_on()
        scale(kubectl, 1)
        producing.goes_on()
        after = segments(running)
    made = {key: size for key, (_, size) in after.items() if key not in before}
    print(f"{len(before)} segments before, {len(made)} more after, of {sum(made.values())} bytes")
    assert {key: after.get(key) for key in before} == before
    rolled = HISTORY_TAIL_BYTES_MAX + producing.result["sent"] * RECORD_BYTES_MAX
    assert sum(made.values()) <= rolled, f"{made}: more than what was not yet in segments"
    assert rolled < HISTORY_BYTES // 2
    scale(kubectl, 2)
