"""Why pods are not ready, in words that say what helps. Pure."""

from collections.abc import Iterable
from typing import Final

from bmq_operator.answers import parsed
from bmq_operator.clusters.names import COMPONENT_LABEL
from bmq_operator.clusters.nodes import PULLING, UNSTARTED, is_ready, late_s, unschedulable
from bmq_operator.conditions import Finding
from bmq_operator.kube import Manifest

MISCONFIGURED: Final = 2
"""The exit code of `bmq server` for a key or value that cannot be used."""
LATE_S: Final = 60.0
"""How long after its time to end a pod is taken for one that nobody ends."""
_STORE_REASONS: Final = (
    ("belongs to cluster", "StoreOfAnotherCluster"),
    ("refuses the keys", "StoreRefusesKeys"),
    ("check the keys", "StoreRefusesKeys"),
    ("AccessDenied", "StoreRefusesKeys"),
    ("self-test of the object store", "StoreUnavailable"),
    ("cannot be used: s3:// has the options", "Misconfigured"),
    ("store s3://", "StoreUnavailable"),
    ("is not reached", "StoreUnavailable"),
)
STORE_REASONS: Final = frozenset(("StoreOfAnotherCluster", "StoreRefusesKeys", "StoreUnavailable"))
_RANK: Final = (
    "StoreOfAnotherCluster",
    "StoreRefusesKeys",
    "ImageUnavailable",
    "Misconfigured",
    "Unschedulable",
    "OutOfMemory",
    "PodNotGone",
    "StoreUnavailable",
    "Crashing",
)


def trouble(pods: Iterable[Manifest], *, now_ms: int | None = None) -> Finding | None:
    """What keeps a pod from being ready, the one that says most; None: nothing is known to. Without a time no pod is
    one that does not go.
    """
    found = [_stuck(pod) if _is_stuck(pod, now_ms) else None if is_ready(pod) else _of(pod) for pod in pods]
    return min((one for one in found if one is not None), key=lambda one: _RANK.index(one.reason), default=None)


def _is_stuck(pod: Manifest, now_ms: int | None) -> bool:
    return now_ms is not None and late_s(pod, now_ms=now_ms) >= LATE_S


def _stuck(pod: Manifest) -> Finding:
    """Its kubelet would have said that it is gone: what its containers were is of no interest any more."""
    meta = pod["metadata"]
    machine = pod.get("spec", {}).get("nodeName", "")
    conditions = pod.get("status", {}).get("conditions", ())
    told: Manifest = next((one for one in conditions if one["type"] == "DisruptionTarget"), {})
    why = f" ({told['reason']}: {told.get('message', '').rstrip('. ')})" if told.get("reason") else ""
    text = (
        f"{meta['name']} was to be gone by {meta['deletionTimestamp']} and is still there: its machine {machine} is "
        f"likely lost{why}, and Kubernetes makes no other pod of that name before. Bring the machine back, or, once it "
        f"is surely off, kubectl -n {meta['namespace']} delete pod {meta['name']} --force --grace-period=0"
    )
    return _finding("PodNotGone", text)


def _of(pod: Manifest) -> Finding | None:
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    if (why := unschedulable(pod)) is not None:
        of_minio = pod["metadata"].get("labels", {}).get(COMPONENT_LABEL) == "minio"
        change = "store.minio.resources" if of_minio else "its resources and placement"
        text = f"{name} finds no node: {why.get('message', '').rstrip('. ')}. Free resources, or change {change}"
        return _finding("Unschedulable", text)
    for container in status.get("containerStatuses", ()):
        if (found := _of_container(name, container)) is not None:
            return found
    return None


def _of_container(pod: str, status: Manifest) -> Finding | None:
    waiting = status.get("state", {}).get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in PULLING:
        text = (
            f"{pod}: the image {status.get('image', '')} cannot be pulled ({reason}: {message}). Correct image, "
            "or image.pullSecrets"
        )
        return _finding("ImageUnavailable", text)
    if reason in UNSTARTED:
        return _finding("Misconfigured", f"{pod} cannot be started: {message}")
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
    if not ended or ended.get("exitCode", 0) == 0:
        return None
    said = last_words(ended.get("message", ""))
    if ended.get("reason") == "OOMKilled":
        last = f"; the last that it said: {said}" if said else ""
        return _finding(
            "OutOfMemory",
            f"{pod} was ended by Kubernetes (OOMKilled), as it was out of memory: raise its memory limit, or leave "
            f"it out{last}",
        )
    said = said or f"exit code {ended.get('exitCode')}: see its log"
    return _finding(_reason_of(said, exit_code=ended.get("exitCode", 0)), f"{pod} ended: {said}")


def last_words(log: str) -> str:
    """The last line that a node said before it ended, without what surrounds it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        entry = parsed(lines[-1].encode(errors="surrogatepass"))
    except ValueError:
        return lines[-1].removeprefix("error: ")
    if not isinstance(entry, dict):
        return lines[-1]
    told = (entry.get(key) for key in ("event", "why", "error", "exception"))
    return ": ".join(str(part) for part in told if part)


def _reason_of(said: str, *, exit_code: int) -> str:
    rest = "Misconfigured" if exit_code == MISCONFIGURED else "Crashing"
    return next((reason for words, reason in _STORE_REASONS if words in said), rest)


def _finding(reason: str, message: str) -> Finding:
    return Finding(status="False", reason=reason, message=message)
