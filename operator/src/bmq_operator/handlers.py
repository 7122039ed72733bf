"""What kopf watches: every event of a resource, or of what belongs to a Cluster, makes that resource due. Nothing is
decided here.

kopf's `on.event` is used, and none of its handlers with state: those would write annotations and finalizers of their
own into resources.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import kopf

from bmq_operator.allowed import USE
from bmq_operator.clusters.names import CLUSTER_LABEL, OF_LANE, OF_NAMESPACE
from bmq_operator.due import Due
from bmq_operator.hearing import Hearing, referred_by, taken_by
from bmq_operator.metrics import EVENTS
from bmq_operator.tables.places import KIND_LABEL, NAME_LABEL
from bmq_operator.watches import LeanSession
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources import KINDS
from bmq_resources.base import GROUP, VERSION

CHILDREN: Final = (("apps", "v1", "statefulsets"), ("", "v1", "pods"), ("", "v1", "services"), ("batch", "v1", "jobs"))
"""What is watched of what belongs to Clusters."""
SECRETS: Final = ("", "v1", "secrets")
"""Those alone that are the operator's own, or say that resources may use them."""
SPARK: Final = tuple(
    ("sparkoperator.k8s.io", "v1beta2", plural) for plural in ("sparkapplications", "scheduledsparkapplications")
)
"""What is watched of what belongs to tables, once the Spark Operator's CRDs are there."""
OWN: Final = tuple((GROUP, VERSION, model.naming.plural) for model in KINDS)
"""bmq's resources."""
PLURALS: Final = frozenset(plural for _, _, plural in (*OWN, *CHILDREN, SECRETS, *SPARK))
HEARD: Final = frozenset((CLUSTER_LABEL, USE, KIND_LABEL, NAME_LABEL, OF_LANE, OF_NAMESPACE))
"""Labels and annotations that say who is due."""
_OF_TABLES: Final = frozenset(("Topic", "ParquetSink"))
RETRY_S: Final = 30.0


class Backoffs:
    """Seconds between the tries of a request that failed. Without end: kopf ends the operator where they do, and so a
    namespace that was deleted, and whose watches are refused since, would keep all others from being looked after."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 1, 2, 3, 5, 8, 13, 21), itertools.repeat(RETRY_S))


def kopf_settings(*, namespaced: bool) -> kopf.OperatorSettings:
    """Bounded times, and no traces of kopf in resources. An operator of some namespaces may list neither CRDs nor
    namespaces, and does not.
    """
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = namespaced
    # Not the one that `runner` puts on: kopf takes away its own where none of its handlers needs it, and none does.
    settings.persistence.finalizer = "bmq.io/kopf"
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 20
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    for child in CHILDREN:
        settings.watching.label_selectors[child] = CLUSTER_LABEL
    settings.watching.label_selectors[SECRETS] = USE
    for child in SPARK:
        settings.watching.label_selectors[child] = KIND_LABEL
    return settings


def register(
    registry: kopf.OperatorRegistry,
    queue: WorkQueue,
    hearing: Hearing,
    due: Due,
    *,
    spark: bool,
    namespaces: tuple[str, ...] = (),
) -> None:
    """Has kopf watch all that matters; `spark`: applications of tables too. `namespaces`: those that are looked after;
    none: all.
    """

    @kopf.on.login(registry=registry)
    async def _login(**known: Any) -> Any:
        info = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
        if info is None:
            return None
        session = LeanSession(info, plurals=PLURALS, names=HEARD)
        return kopf.AiohttpSession(
            server=info.server,
            priority=info.priority,
            default_namespace=info.default_namespace,
            expiration=info.expiration,
            aiohttp_session=session,  # type: ignore[arg-type]  # all of one that kopf asks for
        )

    for model in KINDS:
        _watch_resources(registry, queue, hearing, due, kind=model.__name__, plural=model.naming.plural)
    for group, version, plural in CHILDREN:
        _watch_children(registry, queue, namespaces, group=group, version=version, plural=plural)
    _watch_secrets(registry, due)
    for group, version, plural in SPARK if spark else ():
        _watch_applications(registry, queue, group=group, version=version, plural=plural)


def _watch_resources(
    registry: kopf.OperatorRegistry, queue: WorkQueue, hearing: Hearing, due: Due, *, kind: str, plural: str
) -> None:
    @kopf.on.event(group=GROUP, version=VERSION, plural=plural, id=f"hear-{plural}", registry=registry)
    async def _hear(event: Any, meta: Any, spec: Any, **_: Any) -> None:
        key = Key(kind, meta["namespace"], meta["name"])
        EVENTS.labels(kind).inc()
        hearing.heard(
            key,
            meta["resourceVersion"],
            now_s=asyncio.get_running_loop().time(),
            gone=event["type"] == "DELETED",
            refers=referred_by(key, spec),
            takes=taken_by(spec),
        )
        queue.add(key)
        if kind == "Cluster":
            due.by_cluster(key, meta, gone=event["type"] == "DELETED")


def _watch_secrets(registry: kopf.OperatorRegistry, due: Due) -> None:
    group, version, plural = SECRETS

    @kopf.on.event(
        group=group, version=version, plural=plural, id="hear-secrets", labels={USE: kopf.PRESENT}, registry=registry
    )
    async def _hear(meta: Any, **_: Any) -> None:
        EVENTS.labels(plural).inc()
        due.by_secret(meta)


def due_by_child(meta: Mapping[str, Any], namespaces: tuple[str, ...]) -> list[Key]:
    """The Cluster and the Lane that an object says it is of. A Lane may have another name than its lane, and be in
    another namespace, unless that is not looked after: anybody may have written what stands at an object, and by it
    this operator would speak for another one."""
    found = [Key("Cluster", meta["namespace"], meta["labels"][CLUSTER_LABEL])]
    annotations = meta.get("annotations", {})
    if lane := annotations.get(OF_LANE):
        namespace = annotations.get(OF_NAMESPACE, meta["namespace"])
        found += [Key("Lane", namespace, lane)] if not namespaces or namespace in namespaces else []
    return found


def _watch_children(
    registry: kopf.OperatorRegistry,
    queue: WorkQueue,
    namespaces: tuple[str, ...],
    *,
    group: str,
    version: str,
    plural: str,
) -> None:
    @kopf.on.event(
        group=group,
        version=version,
        plural=plural,
        id=f"hear-{plural}",
        labels={CLUSTER_LABEL: kopf.PRESENT},
        registry=registry,
    )
    async def _hear(meta: Any, **_: Any) -> None:
        EVENTS.labels(plural).inc()
        for key in due_by_child(meta, namespaces):
            queue.add(key)


def _watch_applications(
    registry: kopf.OperatorRegistry, queue: WorkQueue, *, group: str, version: str, plural: str
) -> None:
    @kopf.on.event(
        group=group,
        version=version,
        plural=plural,
        id=f"hear-{plural}",
        labels={KIND_LABEL: kopf.PRESENT},
        registry=registry,
    )
    async def _hear(meta: Any, **_: Any) -> None:
        EVENTS.labels(plural).inc()
        labels = meta["labels"]
        if labels[KIND_LABEL] in _OF_TABLES and (name := labels.get(NAME_LABEL)):
            queue.add(Key(labels[KIND_LABEL], meta["namespace"], name))
