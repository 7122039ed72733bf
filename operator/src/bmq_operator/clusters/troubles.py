"""Why pods are not ready, in words that say what helps. Pure."""

from collections.abc import Iterable
from typing import Final

from bmq_operator.answers import parsed
from bmq_operator.clusters.names import COMPONENT_LABEL
from bmq_operator.clusters.nodes import PULLING, UNSTARTED, is_ready, unschedulable
from bmq_operator.conditions import Finding
from bmq_operator.kube import Manifest

MISCONFIGURED: Final = 2
"""The exit code of `bmq server` for a key or value that cannot be used."""
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
    "StoreUnavailable",
    "Crashing",
)


def trouble(pods: Iterable[Manifest]) -> Finding | None:
    """What keeps a pod from being ready, the one that says most; None: nothing is known to."""
    found = [one for one in (_of(pod) for pod in pods if not is_ready(pod)) if one is not None]
    return min(found, key=lambda one: _RANK.index(one.reason), default=None)


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
