"""Bugs of a cluster to plant in the real code: between a broker and its heirs, between controllers, between a proxy and
an owner.

As in bmq_sim.planted: each patches the real function and is what a hurried change would do.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

from bmq.errors import BmqError, Conflict, ObjectMissing, OffsetOutOfRange, StoreError
from bmq.internal.framing import refusals
from bmq.roles.controller import Heartbeat
from bmq.roles.owner import TailAnswer, TailRequest
from bmq.storage import stream_seal
from bmq.storage.durable import TroubleLog
from bmq.storage.numbered import wal_key
from bmq.storage.wal import Seal, encode_seal
from bmq.values import StreamId
from bmq_broker import broker
from bmq_broker import main as broker_main
from bmq_controller import collector
from bmq_controller.machine import leases
from bmq_node import member, owners
from bmq_proxy import appends
from bmq_proxy.fetch import manifests, reader, tails
from bmq_proxy.origins import Origin

Plant = Callable[[], AbstractContextManager[Any]]


def _fenced_goes_on_deleting() -> AbstractContextManager[Any]:
    """A broker that was replaced lets go of its partitions, so that nothing pins its WAL any more, and its deleter goes
    on.
    """
    real = broker_main.BrokerRole._fenced

    async def delete(role: broker_main.BrokerRole) -> None:
        writer = role._writer
        for number in range(writer._deleted_below, min(writer._durable_below, writer._deletable_below)):
            with contextlib.suppress(StoreError):
                await role._store.delete(wal_key(writer._stream, number))

    def fenced(self: broker_main.BrokerRole, error: Any) -> None:
        is_new = not self._ended.is_over
        real(self, error)
        if is_new:
            asyncio.get_running_loop().create_task(delete(self), name="a fenced broker deletes")

    return patch.object(broker_main.BrokerRole, "_fenced", autospec=True, side_effect=fenced)


def _deposed_sweeps_unknown() -> AbstractContextManager[Any]:
    """A controller deletes the objects of topics that are not in its image, which may be old."""
    real = collector.Collector.collect

    async def collect(self: collector.Collector) -> None:
        await real(self)
        image = self._image()
        known = {str(topic_id) for topic_id in (*image.topics, *image.deleted)}
        with contextlib.suppress(StoreError):
            for key in [meta.key async for meta in self._store.list("topics/")]:
                if key.split("/")[1] not in known:
                    await self._delete(key)

    return patch.object(collector.Collector, "collect", autospec=True, side_effect=collect)


def _each_sealer_its_own() -> AbstractContextManager[Any]:
    """A second sealer does not take the first one's seal for the end of the stream: it makes one of its own."""

    async def seal_stream(store: Any, stream: StreamId, *, cluster_id: str, rng: Any) -> int:
        surveyor = stream_seal._Surveyor(store, stream, rng=rng, trouble=TroubleLog("seal"))
        own: set[int] = set()
        while True:
            survey = await surveyor.survey()
            if standing := sorted(number for number in own & survey.seals if number >= survey.durable_below):
                return standing[0]
            [number] = survey.free(1)
            if await _make_seal(store, stream, number, cluster_id=cluster_id, rng=rng):
                own.add(number)

    return _with_seal_stream(seal_stream)


def _seal_in_the_deleted_past() -> AbstractContextManager[Any]:
    """A seal counts because its create succeeded: nobody looks whether its number had been deleted meanwhile."""

    async def seal_stream(store: Any, stream: StreamId, *, cluster_id: str, rng: Any) -> int:
        surveyor = stream_seal._Surveyor(store, stream, rng=rng, trouble=TroubleLog("seal"))
        while True:
            survey = await surveyor.survey()
            if (seal := survey.seal()) is not None:
                return seal
            [number] = survey.free(1)
            if await _make_seal(store, stream, number, cluster_id=cluster_id, rng=rng):
                return number

    return _with_seal_stream(seal_stream)


def _seal_at_first_sight() -> AbstractContextManager[Any]:
    """A look counts whatever it shows: also with a seal that came while it lasted, and with a newest object that is
    gone by its end.
    """

    async def seal_stream(store: Any, stream: StreamId, *, cluster_id: str, rng: Any) -> int:
        trouble = TroubleLog("seal")
        durable_below = 0
        while True:
            listed = await stream_seal.list_stream(store, stream, at_least=durable_below, rng=rng, trouble=trouble)
            seals = frozenset(number for number, meta in listed if stream_seal.is_seal(meta))
            data = frozenset(number for number, _ in listed) - seals
            if data:
                with contextlib.suppress(ObjectMissing):
                    head = await stream_seal.read_head(store, stream, max(data), rng=rng, trouble=trouble)
                    durable_below = max(durable_below, getattr(head, "durable_below", 0))
            survey = stream_seal._Survey(durable_below, data, seals)
            if (seal := survey.seal()) is not None:
                return seal
            [number] = survey.free(1)
            await _make_seal(store, stream, number, cluster_id=cluster_id, rng=rng)

    return _with_seal_stream(seal_stream)


async def _make_seal(store: Any, stream: StreamId, number: int, *, cluster_id: str, rng: Any) -> bool:
    seal = Seal(
        cluster_id=cluster_id,
        node_id=stream.node_id,
        broker_epoch=stream.broker_epoch,
        number=number,
        nonce=rng.nonce(),
    )
    try:
        await store.create(wal_key(stream, number), encode_seal(seal))
    except (Conflict, StoreError):
        await asyncio.sleep(0.05)
        return False
    return True


def _with_seal_stream(seal_stream: Any) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(patch("bmq_controller.fencer.seal_stream", new=seal_stream))
    stack.enter_context(patch("bmq_controller.controller.seal_stream", new=seal_stream))
    return stack


def _owners_in_their_order() -> AbstractContextManager[Any]:
    """A Fetch of partitions of several owners puts their answers one behind the other, as they were asked: not as the
    client did.
    """
    real = tails.read_tails

    async def read_tails(
        owner_for: Callable[[Any], Any], requests: Sequence[TailRequest], **how: Any
    ) -> list[TailAnswer]:
        answers = await real(owner_for, requests, **how)
        owners: dict[int, list[TailAnswer]] = {}
        for request, answer in zip(requests, answers, strict=True):
            try:
                owners.setdefault(id(owner_for(request.tp)), []).append(answer)
            except BmqError:
                owners.setdefault(0, []).append(answer)
        return [answer for of_one in owners.values() for answer in of_one]

    return patch.object(reader, "read_tails", read_tails)


def _stale_manifest_is_the_truth() -> AbstractContextManager[Any]:
    """A proxy takes whatever manifest it has, and what lies between that one's end and the owner's tail for out of
    range.
    """
    real_get, real_run = manifests.ManifestCache.get, reader.FetchReader._run_through

    async def get(self: manifests.ManifestCache, tp: Any, version: Any) -> Any:
        kept = self._manifests.get(tp)
        return kept.manifest if kept is not None else await real_get(self, tp, version)

    async def run_through(self: reader.FetchReader, read: Any, manifest: Any, limit: int, **how: Any) -> Any:
        try:
            return await real_run(self, read, manifest, limit, **how)
        except ObjectMissing:
            if read.offset >= manifest.next_offset:
                raise OffsetOutOfRange(f"{read.tp}: {read.offset} is not below {manifest.next_offset}") from None
            raise

    stack = ExitStack()
    stack.enter_context(patch.object(manifests.ManifestCache, "get", autospec=True, side_effect=get))
    stack.enter_context(patch.object(reader.FetchReader, "_run_through", autospec=True, side_effect=run_through))
    return stack


def _latest_without_asking() -> AbstractContextManager[Any]:
    """A broker says "latest" without making sure that it was not replaced."""

    async def offset_for_time(
        self: broker.Broker,
        tp: Any,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> Any:
        partition = await self._ownership.open(tp)
        partition.check_leader_epoch(current_leader_epoch)
        return await self._lookups.offset_for_time(partition, timestamp_ms, committed=committed, address=address)

    return patch.object(broker.Broker, "offset_for_time", autospec=True, side_effect=offset_for_time)


def _overtake_in_retry() -> AbstractContextManager[Any]:
    """A proxy sends a batch at once although an earlier one of the same connection and partition waits to be sent
    again.
    """
    real = appends.Appends.submit

    def submit(self: appends.Appends, tp: Any, records: Any, *, origin: Origin | None = None, **how: Any) -> Any:
        queue = self._queues.get((origin, how["named"]))
        waiting = queue.waiting if queue is not None else []
        if queue is not None:
            queue.waiting = []
        append = real(self, tp, records, origin=origin, **how)
        if queue is not None and waiting:
            queue.waiting = sorted((*waiting, *queue.waiting))
            self._queues[queue.key] = queue
        return append

    return patch.object(appends.Appends, "submit", autospec=True, side_effect=submit)


def _remade_topic_overtakes() -> AbstractContextManager[Any]:
    """A proxy keeps the order of each topic, not of each name: a batch for a topic that was made again goes before what
    its predecessor refuses.
    """
    real = appends.Appends.submit

    def submit(self: appends.Appends, tp: Any, records: Any, *, named: Any = None, **how: Any) -> Any:
        return real(self, tp, records, **how)

    return patch.object(appends.Appends, "submit", autospec=True, side_effect=submit)


def _refusal_holds_up_nobody() -> AbstractContextManager[Any]:
    """An owner takes what came behind a batch that it refused because it had yet to hear of its topic, or of being its
    owner.
    """
    return patch.object(refusals.Refusals, "admits", autospec=True, side_effect=lambda *_: True)


def _copies_are_one_cluster() -> AbstractContextManager[Any]:
    """Nodes say which cluster they belong to, and not over which copy of its store they run."""
    real = member.Member._identity

    def identity(self: member.Member, cluster_id: str, copy: str) -> Any:
        return real(self, cluster_id, "")

    return patch.object(member.Member, "_identity", autospec=True, side_effect=identity)


def _leases_run_in_sleep() -> AbstractContextManager[Any]:
    """Leases run out although the leader slept and could hear nobody."""
    real = leases.Leases.tick

    def tick(self: leases.Leases, registered: Any, *, now_s: float) -> Any:
        self._ticked_s = now_s
        return real(self, registered, now_s=now_s)

    return patch.object(leases.Leases, "tick", autospec=True, side_effect=tick)


def _first_address_for_ever() -> AbstractContextManager[Any]:
    """A proxy calls a broker where that was found first, wherever it is registered since."""
    real = owners._place
    first: dict[tuple[str, int], Any] = {}

    def place(image: Any, node_id: Any) -> Any:
        found = real(image, node_id)
        return found if found is None else first.setdefault((image.cluster_id, node_id), found)

    return patch("bmq_node.owners._place", new=place)


def _listeners_told_once() -> AbstractContextManager[Any]:
    """A proxy says where clients reach it when it registers, and never that this has changed."""

    def heartbeat(**fields: Any) -> Heartbeat:
        return Heartbeat(**{**fields, "listeners": None})

    return patch("bmq_node.membership.Heartbeat", new=heartbeat)


PLANTED_IN_CLUSTERS: Final[Mapping[str, Plant]] = {
    "fenced-goes-on-deleting": _fenced_goes_on_deleting,
    "deposed-sweeps-unknown": _deposed_sweeps_unknown,
    "each-sealer-its-own": _each_sealer_its_own,
    "seal-in-the-deleted-past": _seal_in_the_deleted_past,
    "seal-at-first-sight": _seal_at_first_sight,
    "stale-manifest-is-the-truth": _stale_manifest_is_the_truth,
    "owners-in-their-order": _owners_in_their_order,
    "latest-without-asking": _latest_without_asking,
    "overtake-in-retry": _overtake_in_retry,
    "remade-topic-overtakes": _remade_topic_overtakes,
    "refusal-holds-up-nobody": _refusal_holds_up_nobody,
    "copies-are-one-cluster": _copies_are_one_cluster,
    "leases-run-in-sleep": _leases_run_in_sleep,
    "first-address-for-ever": _first_address_for_ever,
    "listeners-told-once": _listeners_told_once,
}
