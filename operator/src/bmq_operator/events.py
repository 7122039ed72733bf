"""Kubernetes events: what happened to a resource, for `kubectl describe`."""

import structlog

from bmq_operator.conditions import timestamp
from bmq_operator.context import Context
from bmq_operator.kube import KubeError, Manifest
from bmq_operator.outcome import Event

_log = structlog.get_logger()


async def post_event(context: Context, about: Manifest, event: Event) -> None:
    """Posts it. An event that cannot be posted is logged: nothing depends on it."""
    meta = about["metadata"]
    now = timestamp(context.clock.now_ms())
    body: Manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name'][:200]}.", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "bmq-operator"},
        "reportingComponent": "bmq-operator",
        "reportingInstance": context.settings.identity or "bmq-operator",
    }
    try:
        await context.kube.create(body)
    except KubeError as error:
        _log.info(
            "an event could not be posted",
            resource=f"{about['kind']} {meta['namespace']}/{meta['name']}",
            reason=event.reason,
            why=str(error),
        )
