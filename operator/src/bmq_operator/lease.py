"""Leading: of several operators only the one that holds the Lease works.

Who cannot renew it in time stops before another one may take it: each request has a bounded time, and the deadline is
kept while one is under way. Times of the Lease are only compared for change; how long it has not changed is measured by
the loop's own clock.
"""

import asyncio
from datetime import UTC, datetime
from typing import Final

import structlog

from bmq.ports import Clock
from bmq_operator.kube import Kube, KubeError, KubeProblem, Manifest
from bmq_operator.metrics import LEADER

LEASE_S: Final = 15
RENEW_WITHIN_S: Final = 10.0
RETRY_S: Final = 2.0

_log = structlog.get_logger()


class LeaseLost(Exception):
    """Another operator leads, or may soon: this one has to end."""


class Lease:
    """One candidate."""

    def __init__(self, kube: Kube, clock: Clock, *, namespace: str, name: str, identity: str) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._seen: object = None
        self._seen_at_s = 0.0

    async def acquire(self) -> None:
        """Waits until this one leads. Waits out an API server that does not answer."""
        while True:
            try:
                if await self._try_once():
                    LEADER.set(1)
                    return
            except KubeError as error:
                _log.warning("the Lease could not be had", lease=f"{self._namespace}/{self._name}", why=str(error))
            await asyncio.sleep(RETRY_S)

    async def keep(self) -> None:
        """Renews for as long as it leads. Raises LeaseLost."""
        loop = asyncio.get_running_loop()
        renewed_at_s = loop.time()
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout_at(renewed_at_s + RENEW_WITHIN_S):
                    begun_at_s = loop.time()
                    if not await self._try_once():
                        raise LeaseLost("another operator has taken the Lease")
                    renewed_at_s = begun_at_s
            except TimeoutError:
                raise LeaseLost("the Lease could not be renewed in time") from None
            except KubeError as error:
                _log.warning("the Lease could not be renewed", lease=f"{self._namespace}/{self._name}", why=str(error))
                if loop.time() - renewed_at_s > RENEW_WITHIN_S:
                    raise LeaseLost("the Lease could not be renewed in time") from None

    async def release(self) -> None:
        """Lets a successor begin at once."""
        LEADER.set(0)
        try:
            async with asyncio.timeout(3):
                lease = await self._kube.get("Lease", self._namespace, self._name)
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._kube.replace(lease)
        except (KubeError, TimeoutError) as error:
            _log.info("the Lease is left to run out", why=str(error))

    async def _try_once(self) -> bool:
        """Takes or renews it. False: another one holds it, or was quicker."""
        lease = await self._kube.get("Lease", self._namespace, self._name)
        try:
            if lease is None:
                await self._kube.create(self._held(None))
                return True
            if not self._free(lease["spec"]):
                return False
            await self._kube.replace(self._held(lease))
        except KubeProblem as problem:
            if problem.status == 409:
                return False
            raise
        return True

    def _free(self, spec: Manifest) -> bool:
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return True
        now_s = asyncio.get_running_loop().time()
        if (seen := (holder, spec.get("renewTime"))) != self._seen:
            self._seen, self._seen_at_s = seen, now_s
        return now_s - self._seen_at_s > float(spec.get("leaseDurationSeconds") or LEASE_S)

    def _held(self, lease: Manifest | None) -> Manifest:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        held: Manifest = lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {},
        }
        labels = held["metadata"].get("labels") or {}
        held["metadata"]["labels"] = {"app.kubernetes.io/name": "bmq-operator", **labels}
        spec = held["spec"]
        if spec.get("holderIdentity") != self._identity:
            spec |= {
                "acquireTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if lease is None else 1),
            }
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        return held
