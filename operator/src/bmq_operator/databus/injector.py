"""All that one process has to inject sidecars, from its start to its end; whichever replica leads."""

import asyncio

from bmq.ports import Clock
from bmq_operator.databus.admission import Webhook
from bmq_operator.databus.keeping import Certificates
from bmq_operator.databus.named import ChannelSets
from bmq_operator.kube import Kube
from bmq_operator.settings import OperatorSettings


class Injector:
    """Use `start`, and `stop` at the end."""

    def __init__(self, kube: Kube, clock: Clock, settings: OperatorSettings) -> None:
        self._certificates = Certificates(kube, clock, settings=settings.databus, namespace=settings.namespace)
        self._webhook = Webhook(
            ChannelSets(kube, settings.allow, namespaces=settings.namespaces),
            image=settings.databus_image,
            settings=settings.databus,
            context=self._certificates.context,
        )
        self._keeping: asyncio.Task[None] | None = None

    def why_not_ready(self) -> str:
        """Empty: it is. One whose keeping came to an end by a bug is not, and says so."""
        if self._keeping is not None and self._keeping.done():
            return "nobody looks after the webhook's certificate any more: see the log"
        return self._certificates.why_not_ready()

    async def start(self) -> None:
        """Raises OSError."""
        await self._webhook.start()
        self._keeping = asyncio.create_task(self._certificates.keep(), name="keep the webhook's certificate")

    async def stop(self) -> None:
        """Answers what is under way. Raises what keeping raised."""
        await self._webhook.stop()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
            if not self._keeping.cancelled():
                self._keeping.result()
