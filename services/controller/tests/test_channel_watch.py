"""Who waits for channels to change: at once where something did, else when it does, and never back."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from controller_committed import Committed

from bmq.metadata.feed import MetadataFeed
from bmq.metadata.image import Image
from bmq.metadata.records import ClusterCreated
from bmq_controller.api import channel_watch
from bmq_controller.api.channel_watch import ChannelWatch
from bmq_controller.machine.channels import change_channel, create_channel, delete_channel
from bmq_sim.loop import run as run_on_virtual_time


class World:
    """A cluster whose images are published, and the watch of one of its nodes."""

    def __init__(self) -> None:
        self.cluster = Committed()
        self.cluster.commit((ClusterCreated(cluster_id="c"),))
        self.create("orders")
        self.feed = MetadataFeed(self.cluster.image)
        self.watch = ChannelWatch(self.feed)

    def create(self, name: str) -> None:
        self.cluster.commit(create_channel(self.cluster.image, 1, name, '{"topic":"t"}').records)

    def turn_off(self, name: str) -> None:
        self.cluster.commit(change_channel(self.cluster.image, name, '{"enabled":false}').records)

    def delete(self, name: str) -> None:
        self.cluster.commit(delete_channel(self.cluster.image, name).records)

    async def publish(self) -> None:
        self.feed.publish(self.cluster.image)
        await asyncio.sleep(0)

    async def asked(self, after: str = "", *, wait_s: float = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.watch.changes(after, wait_s=wait_s))
        return found


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(World())

    run_on_virtual_time(main())


def test_who_knows_nothing_gets_all_and_who_has_all_waits_and_gets_nothing() -> None:
    async def test(world: World) -> None:
        first = await world.asked(wait_s=30)
        assert (first["complete"], first["deleted"]) == (True, [])
        assert first["channels"] == [{"name": "orders", "spec": {"topic": "t"}, "created_ms": 1}]
        began_s = asyncio.get_running_loop().time()
        assert await world.asked(first["version"], wait_s=30) == {
            "version": first["version"],
            "complete": False,
            "channels": [],
            "deleted": [],
        }
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(30)

    run(test)


def test_who_waits_is_answered_when_something_changes_with_that_alone() -> None:
    async def test(world: World) -> None:
        began_s = asyncio.get_running_loop().time()
        version = (await world.asked())["version"]
        waiting = asyncio.create_task(world.asked(version, wait_s=30))
        await asyncio.sleep(1)
        world.create("bills")
        await world.publish()
        found = await waiting
        assert asyncio.get_running_loop().time() - began_s < 2
        assert (found["complete"], [one["name"] for one in found["channels"]]) == (False, ["bills"])

    run(test)


def test_who_comes_late_gets_what_changed_meanwhile_as_it_is_now() -> None:
    async def test(world: World) -> None:
        version = (await world.asked())["version"]
        for act in (
            lambda: world.create("bills"),
            lambda: world.create("parts"),
            lambda: world.turn_off("orders"),
            lambda: world.delete("parts"),
        ):
            act()
            await world.publish()
        await asyncio.sleep(1)
        found = await world.asked(version)
        assert [(one["name"], one["spec"]) for one in found["channels"]] == [
            ("bills", {"topic": "t"}),
            ("orders", {"enabled": False}),
        ]
        assert found["deleted"] == ["parts"]
        assert (await world.asked(found["version"]))["channels"] == []

    run(test)


def test_a_version_that_is_too_old_or_another_clusters_or_nonsense_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        monkeypatch.setattr(channel_watch, "CHANGES_KEPT", 1)
        old = (await world.asked())["version"]
        for name in ("bills", "parts"):
            world.create(name)
            await world.publish()
        await asyncio.sleep(1)
        for after in (old, "d//3", "c/copy/3", "3", "c//-1", "c//" + "9" * 30, "c//²", "\x00"):
            found = await world.asked(after, wait_s=30)
            assert (found["complete"], len(found["channels"])) == (True, 3), after

    run(test)


def test_a_node_that_is_behind_sends_nobody_back() -> None:
    async def test(world: World) -> None:
        nothing = await world.asked("c//3", wait_s=1)
        assert (nothing["version"], nothing["complete"], nothing["channels"]) == ("c//3", False, [])
        waiting = asyncio.create_task(world.asked("c//3", wait_s=30))
        await asyncio.sleep(1)
        for name in ("bills", "parts"):
            world.create(name)
            await world.publish()
        await asyncio.sleep(1)
        assert not waiting.done()
        world.turn_off("parts")
        await world.publish()
        found = await waiting
        assert [one["name"] for one in found["channels"]] == ["parts"]

    run(test)


def test_another_copy_of_the_store_is_another_cluster() -> None:
    async def test(world: World) -> None:
        version = (await world.asked())["version"]
        world.cluster.image = replace(world.cluster.image, copy="b", position=world.cluster.image.position + 1)
        world.turn_off("orders")
        await world.publish()
        await asyncio.sleep(1)
        found = await world.asked(version, wait_s=30)
        assert (found["complete"], found["channels"]) == (
            True,
            [{"name": "orders", "spec": {"enabled": False}, "created_ms": 1}],
        )

    run(test)


def test_changes_in_a_row_are_answered_together_after_the_first() -> None:
    async def test(world: World) -> None:
        version, answers = (await world.asked())["version"], []

        async def follow() -> None:
            after = version
            while True:
                found = await world.asked(after, wait_s=30)
                after = found["version"]
                answers.append([one["name"] for one in found["channels"]])

        following = asyncio.create_task(follow())
        await asyncio.sleep(1)
        for number in range(20):
            world.create(f"c{number:02}")
            await world.publish()
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        following.cancel()
        assert answers == [["c00"], [f"c{number:02}" for number in range(1, 20)]]

    run(test)


def test_who_waits_is_answered_when_the_watch_ends() -> None:
    async def test(world: World) -> None:
        began_s = asyncio.get_running_loop().time()
        version = (await world.asked())["version"]
        waiting = asyncio.create_task(world.asked(version, wait_s=30))
        await asyncio.sleep(1)
        world.watch.end()
        assert (await waiting)["version"] == version
        assert (await world.asked(version, wait_s=30))["version"] == version
        assert asyncio.get_running_loop().time() - began_s < 2

    run(test)


def test_an_answer_is_made_once_for_all_who_ask_from_one_version() -> None:
    async def test(world: World) -> None:
        version = (await world.asked())["version"]
        waiting = [asyncio.create_task(world.watch.changes(version, wait_s=30)) for _ in range(100)]
        await asyncio.sleep(1)
        assert len(world.watch) == 100
        world.create("bills")
        await world.publish()
        assert len({id(one) for one in await asyncio.gather(*waiting)}) == 1

    run(test)


def test_who_missed_much_gets_all_in_one_answer_that_is_kept_once_for_all_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version had an answer of its own: a hundred bytes that name one made and kept 15 MB, 64 of them 900 MB."""

    async def test(world: World) -> None:
        monkeypatch.setattr(channel_watch, "CHANGED_BYTES_MAX", 1_000, raising=False)
        versions = []
        for number in range(100):
            versions.append((await world.asked())["version"])
            world.create(f"c{number:03}")
            await world.publish()
        await asyncio.sleep(1)
        answers = [await world.watch.changes(version, wait_s=0) for version in versions]
        shared = {id(one): one for one in answers if json.loads(one)["complete"]}
        assert len(shared) == 1
        assert len(json.loads(answers[0])["channels"]) == 101
        assert json.loads(answers[-1])["complete"] is False
        assert sum(len(one) for one in {id(one): one for one in answers}.values()) < 64 * 5_000 < 100 * len(answers[0])

    run(test)


def test_versions_of_ones_own_choosing_have_hardly_more_encoded_than_all_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each had an answer of its own made: 900 watchers of 900 versions kept a node busy at every change."""

    async def test(world: World) -> None:
        monkeypatch.setattr(channel_watch, "CHANGED_BYTES_MAX", 20_000)
        versions = []
        for number in range(400):
            world.create(f"c{number:03}")
            await world.publish()
            versions.append((await world.asked())["version"])
        world.turn_off("c000")
        await world.publish()
        await asyncio.sleep(1)
        sizes_bytes, encode = [], channel_watch.encode_changes

        def noted(image: Image, names: frozenset[str], *, complete: bool) -> bytes:
            found = encode(image, names, complete=complete)
            sizes_bytes.append(len(found))
            return found

        monkeypatch.setattr(channel_watch, "encode_changes", noted)
        answers = [json.loads(await world.watch.changes(version, wait_s=0)) for version in versions]
        everything = max(sizes_bytes)
        near, far = sizes_bytes[-channel_watch.NEAR :], sizes_bytes[: -channel_watch.NEAR]
        assert sum(near) < channel_watch.NEAR * (everything * channel_watch.NEAR // 400 + 200)
        assert sum(far) <= everything + 20_000 + 200 * len(far)
        assert [len(one["channels"]) for one in answers[-3:]] == [3, 2, 1], "who missed little is told that"
        assert all(len(one["channels"]) == 401 for one in answers if one["complete"])

    run(test)


def test_large_answers_to_one_address_leave_the_turns_between_them_to_others() -> None:
    async def test(world: World) -> None:
        wide = json.dumps({"topic": "x" * 16_000})
        for number in range(5):
            world.cluster.commit(create_channel(world.cluster.image, 1, f"wide{number}", wide).records)
        await world.publish()
        await asyncio.sleep(1)
        greedy = [asyncio.create_task(world.watch.changes("", wait_s=0, party="greedy")) for _ in range(50)]
        await asyncio.sleep(0)
        modest = asyncio.create_task(world.watch.changes("", wait_s=0, party="modest"))
        await modest
        assert sum(one.done() for one in greedy) <= 3
        assert len({await one for one in greedy}) == 1

    run(test)


def test_versions_between_two_images_of_a_node_have_one_answer() -> None:
    """A node that was behind hears of many changes at once; others' watchers hold the versions between."""

    async def test(world: World) -> None:
        first = (await world.asked())["version"]
        for number in range(300):
            world.create(f"c{number:03}")
        await world.publish()
        await asyncio.sleep(1)
        place, _, last = (await world.asked())["version"].rpartition("/")
        begun = int(first.rpartition("/")[2])
        answers = [await world.watch.changes(f"{place}/{number}", wait_s=0) for number in range(begun, int(last))]
        assert len(answers) >= 300 and len({id(one) for one in answers}) == 1
        assert len(json.loads(answers[0])["channels"]) == 300

    run(test)
