"""Takes resources from the queue and has each looked at by its kind's `reconcile`; owns what is the same for all kinds.

Reading and parsing the resource, its finalizer, its status (written only where it differs), events, backoff, metrics. A
kind's own logic is in `clusters`, `topics`, `lanes`, `channels` and `tables`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from pydantic import ValidationError

from bmq_admin.errors import AdminError
from bmq_operator.answers import part_of
from bmq_operator.conditions import Finding, condition, next_conditions
from bmq_operator.context import Context
from bmq_operator.events import post_event
from bmq_operator.kube import KubeError, KubeProblem, Manifest
from bmq_operator.metrics import RECONCILE_SECONDS, RECONCILES, STATUS_WRITES, WAIT_SECONDS
from bmq_operator.outcome import Event, Outcome
from bmq_operator.pruned import AGAIN_S, Pruned, lost_fields
from bmq_operator.understood import understood, why_not_understood
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.base import Resource, Status

FINALIZER: Final = "bmq.io/operator"
RECONCILE_TIMEOUT_S: Final = 120.0
KEEPS_AGAIN_S: Final = 2.0
TELL_AFTER: Final = 5
"""Looks that fail in a row before the resource tells so: half a minute."""
TELL_S: Final = 20.0
LAST_LOOK_S: Final = 20.0
"""How long the last look at a resource of a namespace that is being deleted may take."""

_log = structlog.get_logger()


async def _nothing_to_keep(context: Context, resource: Resource) -> str:
    return ""


async def _nothing_goes_on(context: Context, manifest: Manifest) -> tuple[str, float | None]:
    return "", None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How resources of a kind are looked after."""

    model: type[Resource]
    reconcile: Callable[[Context, Any], Awaitable[Outcome]]
    """Looks once, takes the next step, says what is the case. Idempotent: it may be called at any time, and be broken
    off at any point."""
    holds: Callable[[Any], bool]
    """Whether a deletion has to wait for something: the finalizer is on the resource only then."""
    keeps: Callable[[Context, Any], Awaitable[str]] = _nothing_to_keep
    """Brings about what has to be so before the finalizer of a resource goes whose data stay; why it is not yet, empty:
    it is."""
    unread: Callable[[Context, Manifest], Awaitable[tuple[str, float | None]]] = _nothing_goes_on
    """Does what has to be done for a resource whose spec is not understood, by its metadata and its `spec.paused`: what
    else is to be told of it, and when to look again."""


class Runner:
    """The workers."""

    def __init__(self, context: Context, queue: WorkQueue, kinds: Mapping[str, Kind]) -> None:
        self._context = context
        self._queue = queue
        self._kinds = kinds
        self._begun_at_s: dict[Key, float] = {}
        self._pruned = Pruned()

    async def work(self) -> None:
        """One worker, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            key, waited_s = await self._queue.take()
            WAIT_SECONDS.labels(key.kind).observe(waited_s)
            self._begun_at_s[key] = loop.time()
            try:
                result = await self._look(key)
            finally:
                RECONCILE_SECONDS.labels(key.kind).observe(loop.time() - self._begun_at_s.pop(key))
            RECONCILES.labels(key.kind, result).inc()

    def longest_s(self) -> float:
        """For how long the look that has gone on longest has gone on."""
        now = asyncio.get_running_loop().time()
        return max((now - begun for begun in self._begun_at_s.values()), default=0.0)

    async def _look(self, key: Key) -> str:
        """One look; its result as the metrics name it. Nothing that goes wrong with one resource ends the others'
        work.
        """
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT_S):
                gone, again_after_s = await self._reconcile(key)
        except (KubeError, AdminError, TimeoutError) as error:
            why = str(error) or "it took too long"
            failures = self._queue.failures(key) + 1
            told = failures >= TELL_AFTER
            if told:
                await self._tell_failed(key, error, why, failures=failures)
            delay_s = self._queue.failed(key, jitter=self._context.rng.random())
            # somebody else wrote: Kubernetes' own controllers do all the time
            meanwhile = isinstance(error, KubeProblem) and error.status == 409
            level = logging.INFO if meanwhile and not told else logging.WARNING
            _log.log(
                level, "a resource could not be looked after", resource=str(key), why=why, again_in_s=round(delay_s, 1)
            )
            return "failed"
        except Exception:  # noqa: BLE001 - a bug met by one resource must not stop the work for all others; it is logged as what it is
            delay_s = self._queue.failed(key, jitter=self._context.rng.random())
            _log.exception("a bug: please report it", resource=str(key), again_in_s=round(delay_s, 1))
            return "bug"
        if gone:
            self._pruned.forget(key)
            self._queue.forget(key)
            return "gone"
        self._queue.done(key, again_after_s=again_after_s)
        return "done"

    async def _tell_failed(self, key: Key, error: Exception, why: str, *, failures: int) -> None:
        """What was told of the resource before may be so no more. That it cannot be told either is likely then, and
        left at that.

        What is written is heard of, and makes the resource due at once. So a missing right is told as each look tells
        it, and what else fails, perhaps with another text each time, is told anew only once there are twice as many.
        """
        text = f"the operator could not look after it several times in a row: {why}. It is tried again"
        found = Finding(status="Unknown", reason="NotLookedAt", message=text)
        if isinstance(error, KubeProblem):
            found = _why_told_at_once(error) or found
        with contextlib.suppress(KubeError, TimeoutError, ValidationError):
            async with asyncio.timeout(TELL_S):
                manifest = await self._context.kube.get(key.kind, key.namespace, key.name)
                if manifest is not None:
                    resource = understood(self._kinds[key.kind].model, manifest)
                    manifest = _told_by(manifest)
                    if _says(resource, found) and failures & (failures - 1):
                        return
                    await self._tell(
                        key, manifest, resource, _instead(resource, found, now_ms=self._context.clock.now_ms())
                    )

    async def _reconcile(self, key: Key) -> tuple[bool, float | None]:
        """Whether the resource is gone, and when to look again."""
        kind = self._kinds[key.kind]
        manifest = await self._context.kube.get(key.kind, key.namespace, key.name)
        if manifest is None:
            return True, None
        resource, why = _understood(kind, manifest)
        unread = _unread(manifest) if resource is None else {}
        manifest = _told_by(manifest)  # its spec may be large, and is not waited with
        if resource is None:
            if "deletionTimestamp" in manifest["metadata"] and await self._namespace_ending(key.namespace):
                await self._let_go(key, manifest)
                return True, None
            return False, await self._refused(key, kind, manifest, unread, why)
        if resource.metadata.deletion_timestamp is not None:
            return await self._delete(key, kind, resource, manifest)
        if (holds := kind.holds(resource)) and not await self._hold(key, resource, wanted=True):
            return True, None
        outcome = await self._reconciled(key, kind, resource, manifest)
        again_after_s = await self._told(key, manifest, resource, outcome)
        if FINALIZER in resource.metadata.finalizers and not holds:
            if await kind.keeps(self._context, resource):
                return False, KEEPS_AGAIN_S
            await self._hold(key, resource, wanted=False)
        return False, again_after_s

    async def _reconciled(self, key: Key, kind: Kind, resource: Resource, manifest: Manifest) -> Outcome:
        """What the kind's `reconcile` finds. That the operator may not do what it has to is told by the resource,
        too.
        """
        try:
            return await kind.reconcile(self._context, resource)
        except KubeProblem as problem:
            if (found := _why_told_at_once(problem)) is not None:
                await self._tell(
                    key, manifest, resource, _instead(resource, found, now_ms=self._context.clock.now_ms())
                )
            raise
        except (KubeError, AdminError, TimeoutError):
            raise
        except Exception as bug:
            text = (
                f"a bug of the operator ({type(bug).__name__}): please report what its log says of it. It is "
                "tried again"
            )
            found = Finding(status="Unknown", reason="NotLookedAt", message=text)
            with contextlib.suppress(KubeError):
                await self._tell(
                    key, manifest, resource, _instead(resource, found, now_ms=self._context.clock.now_ms())
                )
            raise

    async def _delete(self, key: Key, kind: Kind, resource: Resource, manifest: Manifest) -> tuple[bool, float | None]:
        if FINALIZER not in resource.metadata.finalizers:
            return False, None
        if not kind.holds(resource):
            # First the namespace: where it is deleted, the rights that it gave may be gone already.
            if not await self._namespace_ending(key.namespace) and (why := await kind.keeps(self._context, resource)):
                found = Finding(status="False", reason="Deleting", message=why)
                await self._tell(
                    key, manifest, resource, _instead(resource, found, now_ms=self._context.clock.now_ms())
                )
                return False, KEEPS_AGAIN_S
            await self._hold(key, resource, wanted=False)
            return True, None
        if await self._namespace_ending(key.namespace):
            try:
                async with asyncio.timeout(LAST_LOOK_S):
                    await kind.reconcile(replace(self._context, namespace_ending=True), resource)
            except (KubeError, AdminError, TimeoutError) as error:
                _log.warning("a namespace goes without waiting for this resource", resource=str(key), why=str(error))
            await self._hold(key, resource, wanted=False)
            return True, None
        outcome = await self._reconciled(key, kind, resource, manifest)
        if outcome.finished:
            await self._post(manifest, outcome.events)
            await self._hold(key, resource, wanted=False)
            return True, None
        return False, await self._told(key, manifest, resource, outcome)

    async def _let_go(self, key: Key, manifest: Manifest) -> None:
        """Takes the finalizer off a resource that is not understood, so that its namespace goes."""
        meta = manifest["metadata"]
        others = [one for one in meta.get("finalizers", ()) if one != FINALIZER]
        await self._context.kube.merge(
            key.kind,
            key.namespace,
            key.name,
            {"metadata": {"finalizers": others, "resourceVersion": meta["resourceVersion"]}},
        )

    async def _namespace_ending(self, namespace: str) -> bool:
        found = await self._context.kube.get("Namespace", "", namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    async def _hold(self, key: Key, resource: Resource, *, wanted: bool) -> bool:
        """Puts the finalizer on or takes it off; over this version of the resource only, as the list is written as a
        whole. False: it is gone.
        """
        finalizers = resource.metadata.finalizers
        if (FINALIZER in finalizers) == wanted:
            return True
        changed = [*finalizers, FINALIZER] if wanted else [one for one in finalizers if one != FINALIZER]
        # What was written last may be newer by a status; the resource is read anew, and its list compared.
        newest = await self._context.kube.get(key.kind, key.namespace, key.name)
        if newest is None:
            return False
        meta = newest["metadata"]
        if meta["uid"] != resource.metadata.uid or meta.get("finalizers", []) != finalizers:
            raise KubeProblem(
                status=409, reason="Conflict", message="it was made anew, or its finalizers were changed, meanwhile"
            )
        body = {"metadata": {"finalizers": changed, "resourceVersion": meta["resourceVersion"]}}
        await self._context.kube.merge(key.kind, key.namespace, key.name, body)
        return True

    async def _told(self, key: Key, manifest: Manifest, resource: Resource, outcome: Outcome) -> float | None:
        """Tells it; when to look again. What looks again at once goes on by what it wrote: where that is not kept, the
        resource says so instead.
        """
        now_s, now_ms = asyncio.get_running_loop().time(), self._context.clock.now_ms()
        goes_on = outcome.again_after_s == 0.0
        if goes_on and (lost := self._pruned.lately(key, now_s=now_s)):
            await self._tell(key, manifest, resource, _instead(resource, _not_kept(key, lost), now_ms=now_ms))
            return AGAIN_S
        lost = await self._tell(key, manifest, resource, outcome)
        if not goes_on or not lost:
            self._pruned.forget(key)
            return outcome.again_after_s
        self._pruned.note(key, lost, now_s=now_s)
        instead = _instead(resource, _not_kept(key, lost), now_ms=now_ms)
        assert instead.status is not None, "it says what is the case"
        await self._write(key, instead.status.written(), uid=resource.metadata.uid)
        await self._post(manifest, _changes(resource.status, instead.status))  # type: ignore[attr-defined]
        return AGAIN_S

    async def _tell(self, key: Key, manifest: Manifest, resource: Resource, outcome: Outcome) -> list[str]:
        """Writes the status where it differs, and posts events; which fields of it were not kept."""
        events, lost = outcome.events, list[str]()
        if outcome.status is not None:
            old: Status = resource.status  # type: ignore[attr-defined]
            if outcome.status != old or not manifest.get("status"):
                written = outcome.status.written()
                kept = await self._write(key, written, uid=resource.metadata.uid)
                lost = lost_fields(old.written(), written, kept)
            events = (*_changes(old, outcome.status), *events)
        await self._post(manifest, events)
        return lost

    async def _write(self, key: Key, status: dict[str, Any], *, uid: str) -> dict[str, Any]:
        """Writes the status of the very resource that was looked at: one that was made anew meanwhile has none of its
        predecessor's. The status that there is then.
        """
        there = await self._context.kube.merge(
            key.kind, key.namespace, key.name, {"status": status}, part="status", uid=uid
        )
        STATUS_WRITES.labels(key.kind).inc()
        found: dict[str, Any] = there.get("status") or {}
        return found

    async def _post(self, manifest: Manifest, events: tuple[Event, ...]) -> None:
        for event in events:
            await post_event(self._context, manifest, event)

    async def _refused(self, key: Key, kind: Kind, manifest: Manifest, unread: Manifest, why: str) -> float | None:
        """When to look again at one that is not understood, which is told whatever else fails."""
        try:
            also, again_after_s = await kind.unread(self._context, unread)
        except KubeError:
            await self._refuse(key, manifest, why)
            raise
        await self._refuse(key, manifest, why, also)
        return again_after_s

    async def _refuse(self, key: Key, manifest: Manifest, why: str, also: str = "") -> None:
        """A resource that this operator does not understand: written before its CRD was changed, or for another
        version.
        """
        text = f"{why}. Where that was right before, bring CRDs and operator to one version"
        text += f". {also}" if also else ""
        old = [one for one in manifest.get("status", {}).get("conditions", []) if isinstance(one, dict)]
        generation = manifest["metadata"].get("generation", 0)
        if any(
            one.get("reason") == "NotUnderstood"
            and one.get("observedGeneration") == generation
            and one.get("message") == text
            for one in old
        ):
            return
        finding = Finding(status="False", reason="NotUnderstood", message=text)
        conditions = next_conditions([], [finding], generation=generation, now_ms=self._context.clock.now_ms())
        kept = [one for one in old if one.get("type") != finding.type]
        await self._write(
            key, {"conditions": [*(one.written() for one in conditions), *kept]}, uid=manifest["metadata"]["uid"]
        )
        await self._post(manifest, (Event(reason="NotUnderstood", message=text, warning=True),))


def _understood(kind: Kind, manifest: Manifest) -> tuple[Resource | None, str]:
    """The resource, or why it is not understood."""
    try:
        return understood(kind.model, manifest), ""
    except ValidationError as error:
        return None, why_not_understood(kind.model, manifest, error)


def _told_by(manifest: Manifest) -> Manifest:
    """What is needed of a resource besides what its model says: which one it is, who holds it, and what it tells."""
    part = part_of(manifest)["metadata"] | {"finalizers": manifest["metadata"].get("finalizers", [])}
    known: Manifest = {name: manifest[name] for name in ("apiVersion", "kind", "status") if name in manifest}
    return known | {"metadata": part}


def _unread(manifest: Manifest) -> Manifest:
    """What counts of a resource whose spec is not understood."""
    spec = manifest.get("spec")
    paused = isinstance(spec, dict) and spec.get("paused") is True
    return {name: manifest[name] for name in ("apiVersion", "kind", "metadata") if name in manifest} | {
        "spec": {"paused": paused}
    }


def _says(resource: Resource, ready: Finding) -> bool:
    """Whether its Ready is this already, whatever the text is."""
    status: Status = resource.status  # type: ignore[attr-defined]
    told = condition(status.conditions)
    return told is not None and (told.reason, told.observed_generation) == (ready.reason, resource.metadata.generation)


def _not_kept(key: Key, fields: list[str]) -> Finding:
    names = ", ".join(f"status.{one}" for one in fields)
    text = (
        f"the CRD of {key.kind} that the API server has is older than the operator: it does not keep {names}, and "
        "without that nothing goes on. Apply the CRDs of bmq's chart; it is tried again"
    )
    return Finding(status="False", reason="NotUnderstood", message=text)


def _why_told_at_once(problem: KubeProblem) -> Finding | None:
    """What does not pass by itself; None: it may."""
    if problem.too_large:
        text = f"the operator cannot look after it: {problem.message}. It is tried again"
        return Finding(status="Unknown", reason="TooMuchToRead", message=text)
    return _forbidden(problem) if problem.status == 403 else None


def _forbidden(problem: KubeProblem) -> Finding:
    """What is the case is not known then, but for why."""
    if not problem.lacks_right:
        return Finding(
            status="Unknown",
            reason="Refused",
            message=f"the API server refuses what this needs: {problem.message}. It is tried again",
        )
    text = (
        f"the operator may not do what this needs: {problem.message}. Give its ServiceAccount that right, as "
        "the chart's roles do"
    )
    return Finding(status="Unknown", reason="Forbidden", message=text)


def _instead(resource: Resource, ready: Finding, *, now_ms: int) -> Outcome:
    """Ready as it was found; all else is as it was told last."""
    status: Status = resource.status  # type: ignore[attr-defined]
    kept = [
        Finding(type=one.type, status=one.status, reason=one.reason, message=one.message)
        for one in status.conditions
        if one.type != "Ready"
    ]
    generation = resource.metadata.generation
    conditions = next_conditions(status.conditions, [ready, *kept], generation=generation, now_ms=now_ms)
    return Outcome(status=status.model_copy(update={"conditions": conditions, "observed_generation": generation}))


def _changes(old: Status, new: Status) -> tuple[Event, ...]:
    """An event for each condition whose status or reason changed."""
    changed = []
    for one in new.conditions:
        if one.status == "Unknown" and one.type != "Ready":
            continue  # what is not known is no news
        before = condition(old.conditions, one.type)
        if before is None or (before.status, before.reason) != (one.status, one.reason):
            warning = one.type == "Ready" and one.status == "False"
            changed.append(
                Event(reason=one.reason, message=one.message or f"{one.type} is {one.status}", warning=warning)
            )
    return tuple(changed)
