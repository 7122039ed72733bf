"""Who is due once something was heard."""

import asyncio
from collections.abc import Callable
from typing import Any

from bmq_operator.due import Due
from bmq_operator.hearing import Hearing, referred_by, taken_by
from bmq_operator.known import Known
from bmq_operator.workqueue import Key, WorkQueue

SHOP = Key("Cluster", "shop", "bmq")
OTHERS = [Key("Topic", "shop", "orders"), Key("Lane", "elsewhere", "dev"), Key("ParquetSink", "shop", "lake")]
FOREIGN = [Key("Topic", "big", "noise"), Key("Lane", "shop", "of-another"), Key("Topic", "shop", "odd")]
REFERENCES: dict[Key, Any] = {
    OTHERS[0]: {"name": "bmq"},
    OTHERS[1]: {"name": "bmq", "namespace": "shop"},
    OTHERS[2]: {"name": "bmq", "namespace": ""},
    FOREIGN[0]: {"name": "bmq"},
    FOREIGN[1]: {"name": "other"},
    FOREIGN[2]: 3,
}


def due(*uses: Callable[[Due], None]) -> set[Key]:
    """What is due after the last of these; all of these resources were heard of."""

    async def main() -> set[Key]:
        queue, hearing = WorkQueue(), Hearing()
        for key in (SHOP, *OTHERS, *FOREIGN):
            spec = {"clusterRef": REFERENCES[key]} if key in REFERENCES else {}
            hearing.heard(key, "1", now_s=0.0, refers=referred_by(key, spec))
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


def test_a_cluster_that_comes_changes_or_goes_makes_due_what_refers_to_it_alone_and_its_status_nothing() -> None:
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
    assert due(lambda one: one.by_secret(meta(labels={"bmq.io/use": "allowed"}))) == {
        SHOP,
        OTHERS[0],
        OTHERS[2],
        FOREIGN[2],
    }


def test_what_is_gone_or_refers_to_another_one_by_now_is_due_no_more() -> None:
    hearing, (gone, moved, unlisted) = Hearing(), OTHERS
    for key in OTHERS:
        hearing.heard(key, "1", now_s=0.0, refers=("shop", "bmq"))
    hearing.heard(gone, "2", now_s=1.0, gone=True, refers=("shop", "bmq"))
    hearing.heard(moved, "2", now_s=1.0, refers=("shop", "other"))
    assert hearing.referring(("shop", "bmq")) == [unlisted]
    hearing.listed("ParquetSink", {}, now_s=2.0)
    assert hearing.referring(("shop", "bmq")) == []
    assert (hearing.refers(moved), hearing.refers(gone), hearing.refers(unlisted)) == (("shop", "other"), None, None)


def test_what_a_cluster_does_not_take_has_no_share_of_its_work() -> None:
    hearing, mine, stranger = Hearing(), Key("Topic", "shop", "a"), Key("Topic", "big", "noise")
    for key in (mine, stranger):
        hearing.heard(key, "1", now_s=0.0, refers=("shop", "bmq"))
    assert hearing.share_of(stranger) == ("shop", "bmq"), "nothing is known of the Cluster"
    for namespaces, share in (([], None), (["other"], None), (["big"], ("shop", "bmq")), (["*"], ("shop", "bmq"))):
        takes = taken_by({"topicsFrom": {"namespaces": namespaces}})
        hearing.heard(SHOP, "1", now_s=0.0, takes=takes)
        assert (hearing.share_of(mine), hearing.share_of(stranger)) == (("shop", "bmq"), share)
        assert hearing.referring(("shop", "bmq")) == [mine, stranger], "it may take them some day"
    assert taken_by({"topicsFrom": 3}) == taken_by({}) == frozenset()
