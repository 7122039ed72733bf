"""Which of the CRDs of what is watched are there. An operator of some namespaces may list no CRDs, and kopf looks once
for what it is to watch: nobody would watch what is made later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from bmq_operator.kube import Kube, KubeError
from bmq_resources.base import GROUP

OWN_AGAIN_S: Final = 5.0
OTHERS_AGAIN_S: Final = 60.0
"""The Spark Operator's may never come."""

_log = structlog.get_logger()


class Definitions:
    """`watched`: group, version and plural of each."""

    def __init__(
        self,
        kube: Kube,
        watched: Iterable[tuple[str, str, str]],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kube = kube
        self._watched = tuple(watched)
        self._sleep = sleep
        self.lacking: frozenset[str] = frozenset()
        """Names of those that are not there, as it was seen last."""
        self._is_known = False

    async def look(self) -> None:
        """Sees which are there; where nobody says it, all is as it was seen before."""
        served = {}
        try:
            for group, version, _ in self._watched:
                if group not in served:
                    served[group] = await self._kube.served(group, version)
        except KubeError as error:
            _log.warning("which CRDs are there is not known", why=str(error))
            return
        self.lacking = frozenset(
            f"{plural}.{group}" for group, _, plural in self._watched if plural not in served[group]
        )
        self._is_known = True

    async def until_one_comes(self) -> bool:
        """Until one is there that was lacking; False: none is lacking."""
        while self.lacking or not self._is_known:
            before = self.lacking
            await self._sleep(OWN_AGAIN_S if self._own() or not self._is_known else OTHERS_AGAIN_S)
            await self.look()
            if before - self.lacking:
                return True
        return False

    def forget(self) -> None:
        """Nobody looks any more."""
        self.lacking, self._is_known = frozenset(), False

    def why_not_ready(self) -> str:
        """Which of bmq's own are lacking, and what helps; empty: none is."""
        own = self._own()
        return f"CRDs are missing: {', '.join(own)}: apply those of bmq's chart" if own else ""

    def _own(self) -> list[str]:
        return sorted(name for name in self.lacking if name.endswith(f".{GROUP}"))
