"""Which resource is due when, and whether watches still tell of changes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bmq_operator.hearing import DEAF_AFTER_S, Hearing
from bmq_operator.turns import Share
from bmq_operator.workqueue import BACKOFF_FIRST_S, BACKOFF_MAX_S, Key, WorkQueue

A, B = Key("Topic", "n", "a"), Key("Topic", "n", "b")


def in_loop(test: Callable[[WorkQueue], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(WorkQueue())

    asyncio.run(main())


def test_a_resource_that_is_asked_for_often_is_in_the_queue_once() -> None:
    async def test(queue: WorkQueue) -> None:
        for _ in range(5):
            queue.add(A)
        queue.add(B)
        assert len(queue) == 2
        assert [(await queue.take())[0], (await queue.take())[0]] == [A, B]

    in_loop(test)


def test_what_becomes_due_while_it_is_worked_on_is_looked_at_once_more_afterwards() -> None:
    async def test(queue: WorkQueue) -> None:
        queue.add(A)
        await queue.take()
        queue.add(A)
        queue.add(A)
        assert len(queue) == 0
        queue.done(A, again_after_s=3600)
        assert len(queue) == 1

    in_loop(test)


def test_the_sooner_of_two_times_counts() -> None:
    async def test(queue: WorkQueue) -> None:
        queue.add_after(A, 3600)
        queue.add_after(A, 0)
        async with asyncio.timeout(5):
            assert (await queue.take())[0] == A

    in_loop(test)


def test_each_failure_doubles_the_wait_up_to_a_bound_and_a_success_ends_that() -> None:
    async def test(queue: WorkQueue) -> None:
        delays = []
        for _ in range(12):
            queue.add(A)
            await queue.take()
            delays.append(queue.failed(A, jitter=0.5))
        assert delays[:3] == [BACKOFF_FIRST_S, 2 * BACKOFF_FIRST_S, 4 * BACKOFF_FIRST_S]
        assert delays[-1] == BACKOFF_MAX_S
        queue.add(A)
        await queue.take()
        queue.done(A)
        queue.add(A)
        await queue.take()
        assert queue.failed(A, jitter=0.5) == BACKOFF_FIRST_S

    in_loop(test)


def test_a_resource_that_is_gone_and_comes_back_meanwhile_is_looked_at() -> None:
    async def test(queue: WorkQueue) -> None:
        queue.add(A)
        await queue.take()
        queue.add(A)
        queue.forget(A)
        assert (await queue.take())[0] == A

    in_loop(test)


def shared(test: Callable[[WorkQueue, set[Share]], Awaitable[None]]) -> None:
    """With eight workers; a resource refers to the Cluster that its namespace is called after. The set: which of those
    do not answer."""

    async def main() -> None:
        silent: set[Share] = set()
        await test(WorkQueue(workers=8, share_of=lambda key: ("c", key.namespace), silent=silent.__contains__), silent)

    asyncio.run(main())


def lanes(cluster: str, count: int) -> list[Key]:
    return [Key("Lane", cluster, str(number)) for number in range(count)]


async def taken(queue: WorkQueue) -> list[Key]:
    """All that there is a worker for."""
    found: list[Key] = []
    while True:
        try:
            async with asyncio.timeout(0.01):
                found.append((await queue.take())[0])
        except TimeoutError:
            return found


def test_what_refers_to_one_cluster_has_half_of_the_workers_and_the_next_one_when_one_is_done() -> None:
    async def test(queue: WorkQueue, silent: set[Share]) -> None:
        mine = lanes("slow", 200)
        for key in (*mine, *lanes("other", 1)):
            queue.add(key)
        found = await taken(queue)
        assert sorted(found) == sorted([*mine[:4], *lanes("other", 1)])
        queue.done(mine[0])
        assert await taken(queue) == [mine[4]]
        queue.failed(mine[1])
        queue.forget(mine[2])
        assert await taken(queue) == mine[5:7]

    shared(test)


def test_of_a_cluster_that_does_not_answer_one_resource_is_looked_at_at_a_time() -> None:
    async def test(queue: WorkQueue, silent: set[Share]) -> None:
        silent.add(("c", "hung"))
        for key in lanes("hung", 200):
            queue.add(key)
        assert await taken(queue) == lanes("hung", 1)
        queue.add(Key("Lane", "other", "a"))
        assert await taken(queue) == [Key("Lane", "other", "a")]
        silent.clear()
        queue.done(Key("Lane", "other", "a"))
        assert await taken(queue) == lanes("hung", 4)[1:]

    shared(test)


def test_clusters_go_first_and_have_workers_whatever_refers_to_them() -> None:
    async def test(queue: WorkQueue, silent: set[Share]) -> None:
        for cluster in "abcd":
            for key in lanes(cluster, 50):
                queue.add(key)
        assert len(await taken(queue)) == 6
        clusters = [Key("Cluster", "n", str(number)) for number in range(9)]
        for key in clusters:
            queue.add(key)
        assert (await queue.take(), await queue.take())[1][0] == clusters[1]
        queue.add(Key("Lane", "e", "first"))
        queue.done(clusters[0])
        assert (await queue.take())[0] == clusters[2]

    shared(test)


def test_clusters_leave_workers_to_what_refers_to_them() -> None:
    async def test(queue: WorkQueue, silent: set[Share]) -> None:
        for number in range(18):
            queue.add(Key("Cluster", f"n{number % 2}", str(number)))
        queue.add(Key("Lane", "a", "first"))
        found = await taken(queue)
        assert [key.kind for key in found] == ["Cluster"] * 6 + ["Lane"]

    shared(test)


def test_clusters_with_many_resources_due_take_turns_with_others() -> None:
    async def test(queue: WorkQueue, silent: set[Share]) -> None:
        for key in (*lanes("many", 1000), *lanes("few", 2)):
            queue.add(key)
        assert [(await queue.take())[0].namespace for _ in range(4)] == ["many", "few", "many", "few"]
        assert len(queue) == 998

    shared(test)


@pytest.mark.parametrize("kind", ["Topic", "Cluster"], ids=["names many Clusters", "makes many Clusters"])
def test_who_has_very_many_resources_takes_turns_as_one_and_leaves_workers_to_others(kind: str) -> None:
    async def main() -> None:
        queue = WorkQueue(workers=8, share_of=lambda key: (key.namespace, key.name))
        many = [Key(kind, "evil", str(number)) for number in range(1000)]
        mine = [Key(kind, "shop", str(number)) for number in range(2)]
        for key in (*many, *mine):
            queue.add(key)
        found = [(await queue.take())[0] for _ in range(4)]
        assert [key.namespace for key in found] == ["evil", "shop", "evil", "shop"]
        for key in mine:
            queue.done(key)
        assert await taken(queue) == many[2:4], "half of the workers is what one namespace has"
        queue.add(mine[0])
        assert await taken(queue) == mine[:1]

    asyncio.run(main())


def test_what_refers_to_clusters_in_a_namespace_takes_nothing_of_what_its_clusters_have() -> None:
    async def test(queue: WorkQueue) -> None:
        for number in range(9):
            queue.add(Key("Topic", "shop", str(number)))
        assert len(await taken(queue)) == 4
        clusters = [Key("Cluster", "shop", str(number)) for number in range(9)]
        for key in clusters:
            queue.add(key)
        assert await taken(queue) == clusters[:4]

    in_loop(test)


def test_one_worker_looks_at_everything() -> None:
    async def main() -> None:
        queue = WorkQueue(workers=1)
        for key in (A, Key("Cluster", "n", "c")):
            queue.add(key)
        assert (await queue.take())[0].kind == "Cluster"
        queue.done(Key("Cluster", "n", "c"))
        assert (await queue.take())[0] == A

    asyncio.run(main())


def test_a_change_that_no_watch_tells_of_shows_that_the_watch_is_dead() -> None:
    hearing = Hearing()
    hearing.heard(A, "1", now_s=0)
    hearing.listed("Topic", {A: "2"}, now_s=10)
    assert not hearing.deaf(10 + DEAF_AFTER_S)
    hearing.listed("Topic", {A: "3"}, now_s=100)
    assert hearing.deaf(11 + DEAF_AFTER_S)
    hearing.heard(A, "3", now_s=12 + DEAF_AFTER_S)
    assert not hearing.deaf(13 + DEAF_AFTER_S)


def test_a_resource_that_is_gone_is_not_waited_for() -> None:
    hearing = Hearing()
    hearing.listed("Topic", {A: "2"}, now_s=10)
    hearing.listed("Topic", {}, now_s=20)
    assert hearing.unheard_s(1000) == 0
