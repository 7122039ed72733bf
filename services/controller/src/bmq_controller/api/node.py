"""`/v1/self` and `/v1/debug/`: what one node knows and sees, for who looks for a fault. No record data, no secrets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Query, Response

from bmq.errors import BmqError, ObjectMissing, StoreUnavailable
from bmq.fairness.turns import Places
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, decode_records
from bmq.metadata.image import Image
from bmq.storage.durable import together
from bmq.storage.flatlog import decode_entry
from bmq.storage.numbered import just_before, numbered_key
from bmq_controller.api.node_models import LogEntryView, LogView, SelfView, StoreStep, StoreView
from bmq_controller.api.own_pages import self_document, without_secrets
from bmq_controller.api.parameters import Address
from bmq_controller.api.sources import ApiSources, in_thread

STORE_WITHIN_S: Final = 10.0
GETS_AT_ONCE: Final = 8
ENTRIES_MAX: Final = 1_000


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the pages of what the node that is asked knows and sees."""
    whole = Places(1)  # each is long work of the one thread of all pages: others come between two of them

    @app.get("/v1/self", tags=["node"])
    async def get_self() -> SelfView:
        """The node that is asked: version, configuration without secrets."""
        return SelfView.model_validate(self_document(sources))

    @app.get("/v1/debug/image", tags=["node"])
    async def get_image(address: Address) -> Response:
        """All metadata as the node that is asked has it, as JSON."""
        async with whole.holding(party=address):
            image = sources.image
            return Response(await in_thread(lambda: encode_image(image)), media_type="application/json")

    @app.get("/v1/debug/log", tags=["node"], response_model=LogView)
    async def get_log(
        address: Address,
        limit: Annotated[int, Query(ge=1, le=ENTRIES_MAX, description="How many entries at most")] = 200,
    ) -> Response:
        """The newest entries of the metadata log, read from the store by the node that is asked."""
        async with whole.holding(party=address):
            found = await _log(sources, limit)
            return Response(await in_thread(lambda: encode_log(found)), media_type="application/json")

    @app.get("/v1/debug/store", tags=["node"])
    async def get_store() -> StoreView:
        """Whether the store answers the node that is asked, and how quickly. Reads only."""
        return await _store(sources)


def encode_image(image: Image) -> bytes:
    """As JSON, for people and tools: everything but what is derived."""
    document = {
        "position": image.position,
        "cluster_id": image.cluster_id,
        "controller": {
            "epoch": image.controller_epoch,
            "node_id": image.controller_id,
            "host": image.controller_host,
            "port": image.controller_port,
        },
        "nodes": list(image.nodes.values()),
        "cordoned": list(image.cordoned),
        "fencing": dict(image.fencing),
        "last_epochs": dict(image.last_epochs),
        "features": dict(image.features),
        "next_producer_id": image.next_producer_id,
        "configs": [
            {"kind": kind, "name": name, "configs": without_secrets(configs)}
            for (kind, name), configs in image.configs.items()
        ],
        "topics": [
            {
                "topic_id": topic.topic_id,
                "name": topic.name,
                "created_ms": topic.created_ms,
                "configs": without_secrets(topic.configs),
                "partitions": [
                    {
                        "owner": meta.node_id,
                        "owner_epoch": meta.broker_epoch,
                        "leader_epoch": meta.leader_epoch,
                        "moving_to": meta.moving_to,
                        "ranges": [msgspec.structs.asdict(part) for part in meta.ranges],
                    }
                    for meta in topic.partitions
                ],
            }
            for topic in image.topics.values()
        ],
        "tombstones": dict(image.tombstones),
        "deleted": [{"topic_id": topic_id, "name": name} for topic_id, name in image.deleted.items()],
        "sealed": [
            {"node_id": stream.node_id, "epoch": stream.broker_epoch, "end": end}
            for stream, end in image.sealed.items()
        ],
        "dropped": [
            {"node_id": stream.node_id, "epoch": stream.broker_epoch, "end": end}
            for stream, end in image.dropped.items()
        ],
    }
    return msgspec.json.encode(document)


def encode_log(found: list[tuple[int, bytes]]) -> bytes:
    """As JSON, of entries by number as they are stored."""
    return LogView(entries=[_entry(data, number) for number, data in found]).model_dump_json().encode()


async def _log(sources: ApiSources, limit: int) -> list[tuple[int, bytes]]:
    newest = sources.image.position
    at_once = asyncio.Semaphore(GETS_AT_ONCE)

    async def read(number: int) -> tuple[int, bytes] | None:
        async with at_once:
            try:
                return number, await sources.store.get(numbered_key(LOG_PREFIX, number))
            except ObjectMissing:
                return None  # a snapshot covers it

    try:
        async with asyncio.timeout(STORE_WITHIN_S):
            found = await together(read(number) for number in range(max(1, newest - limit + 1), newest + 1))
    except TimeoutError:
        raise StoreUnavailable(
            f"the object store did not give {limit} entries within {STORE_WITHIN_S:g} s: ask for fewer"
        ) from None
    return [one for one in found if one is not None]


def _entry(data: bytes, number: int) -> LogEntryView:
    entry = decode_entry(data, what=f"metadata log entry {number}")
    records = decode_records(entry.payload, what=f"metadata log entry {number}")
    named = [{"record": record.__struct_config__.tag, **_plain(msgspec.structs.asdict(record))} for record in records]
    return LogEntryView(position=entry.number, epoch=entry.epoch, claim=entry.claim, records=named)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(dict(fields))
    return without_secrets(built)


async def _store(sources: ApiSources) -> StoreView:
    image = sources.image
    newest = numbered_key(LOG_PREFIX, max(1, image.position))

    async def head() -> str:
        meta = await sources.store.head(newest)
        return (
            f"{newest}: {meta.size_bytes} bytes, {sources.clock.now_ms() - meta.modified_ms} ms old by this "
            "node's clock"
        )

    async def get() -> str:
        return f"{newest}: {len(await sources.store.get(newest))} bytes"

    async def listing() -> str:
        first = max(1, image.position - 10)
        keys = [meta.key async for meta in sources.store.list(LOG_PREFIX, after=just_before(LOG_PREFIX, first))]
        return f"{len(keys)} entries of the metadata log from {first} on"

    async def snapshots() -> str:
        keys = [meta.key async for meta in sources.store.list(SNAPSHOT_PREFIX)]
        return f"{len(keys)} snapshots, the newest {keys[-1] if keys else 'is missing'}"

    named: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
        ("head", head),
        ("get", get),
        ("list log", listing),
        ("list snapshots", snapshots),
    )
    steps = [await _timed(name, ask) for name, ask in named]
    return StoreView(ok=all(step.ok for step in steps), steps=steps)


async def _timed(name: str, ask: Callable[[], Awaitable[str]]) -> StoreStep:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        async with asyncio.timeout(STORE_WITHIN_S):
            ok, detail = True, await ask()
    except TimeoutError:
        ok, detail = False, f"no answer within {STORE_WITHIN_S:g} s"
    except BmqError as error:
        ok, detail = False, f"{type(error).__name__}: {error}"
    return StoreStep(name=name, ok=ok, seconds=round(loop.time() - began_s, 4), detail=detail)
