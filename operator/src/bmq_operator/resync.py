"""Every resource is looked at once in a while, whatever the watches tell."""

import asyncio
from collections import Counter

import structlog

from bmq_operator.context import Context
from bmq_operator.hearing import Hearing
from bmq_operator.kube import KubeError, Manifest
from bmq_operator.metrics import RESOURCES, TABLES
from bmq_operator.workqueue import Key, WorkQueue

_TABLES = {"Topic": "ParquetReady", "ParquetSink": "Ready"}
"""Which condition says whether tables are written."""

_log = structlog.get_logger()


async def resync_forever(context: Context, queue: WorkQueue, hearing: Hearing, kinds: tuple[str, ...]) -> None:
    """Lists all resources, every so often, until cancelled."""
    while True:
        await asyncio.sleep(context.settings.resync_seconds)
        for kind in kinds:
            try:
                await resync(context, queue, hearing, kind)
            except KubeError as error:
                _log.warning("resources could not be listed", kind=kind, why=str(error))


async def resync(context: Context, queue: WorkQueue, hearing: Hearing, kind: str) -> None:
    """Makes all resources of a kind due. Raises KubeError."""
    versions: dict[Key, str] = {}
    ready, written = Counter[str](), Counter[str]()

    def note(one: Manifest) -> None:
        meta = one["metadata"]
        versions[Key(kind, meta["namespace"], meta["name"])] = meta["resourceVersion"]
        ready[_ready(one)] += 1
        if kind in _TABLES and (kind != "Topic" or one.get("spec", {}).get("parquet")):
            written[_ready(one, _TABLES[kind])] += 1

    hearing.lists(kind)
    for namespace in context.settings.watched_namespaces:
        await context.kube.each(kind, namespace, keep=note)
    hearing.listed(kind, versions, now_s=asyncio.get_running_loop().time())
    for status in ("True", "False", "Unknown"):
        RESOURCES.labels(kind, status).set(ready[status])
    if kind in _TABLES:
        for status in ("True", "False", "Unknown"):
            TABLES.labels(kind, status).set(written[status])
    for key in versions:
        queue.add(key)


def _ready(manifest: Manifest, condition: str = "Ready") -> str:
    conditions = manifest.get("status", {}).get("conditions", [])
    return next((str(one["status"]) for one in conditions if one["type"] == condition), "Unknown")
