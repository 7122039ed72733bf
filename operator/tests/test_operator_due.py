"""Who is due once something was heard."""

import asyncio
from collections.abc import Callable
from typing import Any

from bmq_operator.due import Due
from bmq_operator.hearing import Hearing
from bmq_operator.known import Known
from bmq_operator.workqueue import Key, WorkQueue

SHOP = Key("Cluster", "shop", "bmq")
OTHERS = [Key("Topic", "shop", "orders"), Key("Lane", "elsewhere", "dev"), Key("ParquetSink", "shop", "lake")]


def due(*uses: Callable[[Due], None]) -> set[Key]:
    """What is due after the last of these; all of these resources were heard of."""

    async def main() -> set[Key]:
        queue, hearing = WorkQueue(), Hearing()
        for key in (SHOP, *OTHERS):
            hearing.heard(key, "1", now_s=0.0)
        one, found = Due(queue, hearing, Known()), set[Key]()
        for use in uses:
            use(one)
            found = {(await queue.take())[0] for _ in range(len(queue))}
            for key in found:
                queue.done(key)
        return found

    return asyncio.run(main())


def meta(**more: Any) -> dict[str, Any]:
    return {"name": "bmq", "namespace": "shop", "generation": 1, **more}


def test_a_cluster_that_comes_changes_or_goes_makes_all_due_that_may_refer_to_it_and_its_status_nobody() -> None:
    def then(*, gone: bool = False, **changes: Any) -> set[Key]:
        return due(
            lambda one: one.by_cluster(SHOP, meta(), gone=False),
            lambda one: one.by_cluster(SHOP, meta(**changes), gone=gone),
        )

    assert due(lambda one: one.by_cluster(SHOP, meta(), gone=False)) == set(OTHERS)
    assert then() == set()
    assert then(resourceVersion="9") == set()
    assert then(generation=2) == then(deletionTimestamp="2001-09-09T01:46:40Z") == then(gone=True) == set(OTHERS)


def test_a_secret_makes_its_cluster_due_and_one_that_may_be_used_all_in_its_namespace_that_could() -> None:
    assert due(lambda one: one.by_secret(meta(labels={"bmq.io/use": "own", "bmq.io/cluster": "bmq"}))) == {SHOP}
    assert due(lambda one: one.by_secret(meta(labels={"bmq.io/use": "allowed"}))) == {SHOP, OTHERS[0], OTHERS[2]}
