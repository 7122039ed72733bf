"""What a watch tells of while a resync lists is not forgotten by it."""

import asyncio
from collections.abc import Callable
from typing import Any

from kube_of_a_test import KubeOfATest, context_of

from bmq_operator.hearing import DEAF_AFTER_S, Hearing
from bmq_operator.resync import resync
from bmq_operator.workqueue import Key, WorkQueue

PROD = ("shop", "prod")
OLD, NEW = Key("Topic", "shop", "old"), Key("Topic", "shop", "new")


def topic(key: Key, version: str) -> dict[str, Any]:
    return {"kind": "Topic", "metadata": {"name": key.name, "namespace": "shop", "resourceVersion": version}}


class Slow(KubeOfATest):
    """Lists what there was when the list began. `meanwhile` happens before that is told."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    async def each(self, kind: str, namespace: str = "", *, keep: Callable[[dict[str, Any]], Any], **more: Any) -> Any:
        begun = await self.list(kind, namespace)
        self.meanwhile()
        return [keep(one) for one in begun]


class Told:
    def __init__(self) -> None:
        self.kube, self.hearing = Slow(topic(OLD, "1")), Hearing()
        self.hear(OLD, "1")

    def hear(self, key: Key, version: str, *, gone: bool = False) -> None:
        self.hearing.heard(key, version, now_s=0.0, gone=gone, refers=PROD)

    async def resync(self, meanwhile: Callable[[], None] = lambda: None) -> float:
        """By when what is unheard of since now, if anything is, means that a watch is dead."""
        self.kube.meanwhile = meanwhile  # type: ignore[method-assign]
        context = context_of(self.kube, "http://127.0.0.1:1", {})
        await resync(context, WorkQueue(), self.hearing, "Topic")
        return asyncio.get_running_loop().time() + DEAF_AFTER_S + 1.0


def test_what_is_made_and_settled_while_a_resync_lists_stays_heard_of() -> None:
    async def main() -> None:
        told = Told()

        def is_made() -> None:
            told.kube.keep(topic(NEW, "7"))
            told.hear(NEW, "5")
            told.hear(NEW, "7")

        await told.resync(is_made)
        assert NEW in told.hearing.heard_of() and NEW in told.hearing.referring(PROD)
        assert not told.hearing.deaf(await told.resync())

    asyncio.run(main())


def test_what_changes_or_goes_while_a_resync_lists_is_not_unheard_of_though_no_other_resync_succeeds() -> None:
    async def main() -> None:
        told = Told()
        assert not told.hearing.deaf(await told.resync(lambda: told.hear(OLD, "2")))
        assert not told.hearing.deaf(await told.resync(lambda: told.hear(OLD, "3", gone=True)))
        assert OLD not in told.hearing.heard_of()

    asyncio.run(main())


def test_what_no_watch_told_of_is_still_found_and_what_is_gone_unnoticed_is_forgotten() -> None:
    async def main() -> None:
        told = Told()
        told.kube.keep(topic(NEW, "7"))
        assert told.hearing.deaf(await told.resync(lambda: told.hear(OLD, "1")))
        told.kube.drop("Topic", "shop", "old")
        await told.resync(lambda: told.hear(NEW, "7"))
        assert told.hearing.heard_of() == [NEW]

    asyncio.run(main())
