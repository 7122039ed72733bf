"""Keeps the webhook's certificate: reads its Secret, renews what is in it in time, shows it, and tells the API server
whom to trust.

Each replica does so, whichever leads, as each one is asked. They share the Secret: what is written is written over the
version that was read, and who comes second reads again.
"""

import asyncio
import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from bmq.ports import Clock
from bmq_operator.databus.certificates import CA_BUNDLE, CHAIN, KEY, ends_ms, next_data
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.kube import Kube, KubeError, KubeProblem, Manifest
from bmq_operator.metrics import DATABUS_CERTIFICATE_SECONDS

EVERY_S: Final = 30.0
SOON_S: Final = 2.0
"""How soon it is tried again while there is no certificate yet."""
TRIES: Final = 5
_WEBHOOKS: Final = "MutatingWebhookConfiguration"

_log = structlog.get_logger()


class Certificates:
    """What `context` shows is exchanged for who connects from then on; connections that are there stay."""

    def __init__(self, kube: Kube, clock: Clock, *, settings: DatabusSettings, namespace: str) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._kube = kube
        self._clock = clock
        self._name = settings.name
        self._webhook = settings.webhook
        self._namespace = namespace
        self._shown = b""
        self._why = "the webhook has no certificate yet"

    def why_not_ready(self) -> str:
        """Why it shows none yet; empty: it does."""
        return self._why

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
                told = ""
            except (KubeError, ValueError) as error:
                told = str(error)
                _log.warning("the webhook's certificate could not be looked after", why=told)
            if told and not self._shown:
                self._why = f"the webhook has no certificate: {told}"
            await asyncio.sleep(EVERY_S if self._shown and not told else SOON_S)

    async def look(self) -> None:
        """Once. Raises KubeError; ValueError where there is nothing to keep it in."""
        for _ in range(TRIES):
            secret = await self._kube.get("Secret", self._namespace, self._name)
            if secret is None:
                raise ValueError(
                    f"there is no Secret {self._name} in namespace {self._namespace}: bmq's chart makes it"
                )
            hooks = await self._kube.get(_WEBHOOKS, "", self._webhook)
            if hooks is None:
                raise ValueError(f"there is no {_WEBHOOKS} {self._webhook}: bmq's chart makes it")
            data = {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}
            told = {_bundle(one) for one in hooks.get("webhooks") or ()}
            now_ms = self._kube.now_ms() or self._clock.now_ms()
            host = f"{self._name}.{self._namespace}.svc"
            made = next_data(data, host=host, told=told.pop() if len(told) == 1 else b"", now_ms=now_ms)
            if made is None or await self._wrote(secret, made):
                break
        else:
            raise ValueError(f"others write the Secret {self._name} again and again")
        if made is not None:
            _log.info("the webhook's certificate is renewed", secret=f"{self._namespace}/{self._name}")
            data = made
        self._show(data[CHAIN], data[KEY])
        DATABUS_CERTIFICATE_SECONDS.set((ends_ms(data) - now_ms) / 1000)
        if any(_bundle(one) != data[CA_BUNDLE] for one in hooks.get("webhooks") or ()):
            await self._tell(hooks, data[CA_BUNDLE])
        self._why = ""

    async def _wrote(self, secret: Manifest, data: Mapping[str, bytes]) -> bool:
        """False: somebody else was quicker."""
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
        try:
            await self._kube.merge("Secret", self._namespace, self._name, {"metadata": version, "data": encoded})
        except KubeProblem as problem:
            if problem.status == 409:
                return False
            raise
        return True

    async def _tell(self, hooks: Manifest, bundle: bytes) -> None:
        """All of its webhooks are this one's."""
        encoded = base64.b64encode(bundle).decode()
        operations: list[Manifest] = []
        for at, one in enumerate(hooks["webhooks"]):
            operations.append({"op": "test", "path": f"/webhooks/{at}/name", "value": one["name"]})
            operations.append({"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": encoded})
        await self._kube.patch(hooks, operations)
        _log.info("the API server is told whom to trust", webhook=self._webhook)

    def _show(self, chain: bytes, key: bytes) -> None:
        """ssl reads files alone: it gets one that is in memory, and on no disk."""
        if (both := chain + key) == self._shown:
            return
        file = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            path = Path(f"/proc/self/fd/{file}")
            path.write_bytes(both)
            self.context.load_cert_chain(path)
        finally:
            os.close(file)
        self._shown = both


def _bundle(webhook: Manifest) -> bytes:
    try:
        return base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "")
    except binascii.Error:
        return b""
