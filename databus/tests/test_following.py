"""What a control plane says, and what a sidecar makes of it: pure, on disk, and while it follows."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bmq.errors import ConfigurationError
from bmq_admin.errors import AdminError, AdminUnreachable
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.control_plane.answers import changes_of
from bmq_databus.control_plane.configuration import Configuration, Made, Room, changed, channels_in, made_of
from bmq_databus.control_plane.following import ControlPlane, Following, token_in
from bmq_databus.control_plane.known import NAME, KnownFile
from bmq_databus.errors import BadConfiguration, NoSuchChannel
from bmq_databus.requests.admission import Admission
from bmq_resources.channel_sets import MANNERS_MAX, disk_bytes
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import VirtualLoop
from bmq_sim.loop import run as run_on_virtual_time


def answer(version: str, *, complete: bool = False, deleted: tuple[str, ...] = (), **specs: Mapping[str, Any]) -> bytes:
    channels = [{"name": name, "spec": spec} for name, spec in specs.items()]
    return json.dumps(
        {"version": version, "complete": complete, "channels": channels, "deleted": list(deleted), "later": 1}
    ).encode()


def after(*answers: bytes) -> Configuration:
    known: Configuration | None = None
    for one in answers:
        known = changed(known, changes_of(one))
    assert known is not None
    return known


def test_changes_go_on_what_is_known_and_all_goes_in_its_place() -> None:
    known = after(
        answer("1", complete=True, a={}, b={"topic": "x"}),
        answer("2", deleted=("a",), c={"enabled": False}),
    )
    assert known == Configuration(version="2", specs={"b": b'{"topic": "x"}', "c": b'{"enabled": false}'})
    assert changed(known, changes_of(answer("3", complete=True))).specs == {}


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>", b"[]", b"{}", b'{"version":1,"complete":true,"channels":[]}', b'{"version":"1","channels":[]}'],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(BadConfiguration):
        changes_of(data)


def test_changes_of_what_was_never_told_are_refused() -> None:
    with pytest.raises(BadConfiguration, match="never told"):
        changed(None, changes_of(answer("1", a={})))


def test_a_channel_that_cannot_be_stays_what_it_was_and_the_others_are_as_they_are_to_be() -> None:
    first, troubles = channels_in(after(answer("1", complete=True, a={"topic": "t"}, b={})), {})
    assert (first["a"].topic, first["b"].topic, troubles) == ("t", "b", {})
    wrong = after(answer("2", complete=True, a={"topc": "u"}, b={}, c={"topic": "no/topic"}, d={"enabled": "x"}))
    then, troubles = channels_in(wrong, first)
    assert set(then) == {"a", "b"}
    assert then["a"] is first["a"]
    assert then["b"] is first["b"]
    assert set(troubles) == {"a", "c", "d"}
    assert troubles["a"].startswith("spec.topc: ")


def test_what_is_on_disk_is_what_was_said(tmp_path: Path) -> None:
    file = KnownFile(tmp_path / "made")
    assert file.read() is None
    known = after(answer("1", complete=True, a={"topic": "t", "laterField": [1]}))
    file.write(known, confirmed_ms=7)
    assert file.read() == (known, 7)
    assert [path.name for path in file.path.parent.iterdir()] == [NAME]


def test_a_later_versions_file_is_read_as_far_as_it_is_understood_and_a_damaged_one_not_at_all(tmp_path: Path) -> None:
    file = KnownFile(tmp_path)
    file.path.write_text(
        '{"format": 9, "version": "v", "more": {}, "channels": [{"name": "a", "spec": {"b": 1}, "also": 2}]}'
    )
    assert file.read() == (Configuration(version="v", specs={"a": b'{"b": 1}'}), 0)
    for text in ("", '{"format": 1, "version": "v", "channels": [{"name"', "[]"):
        file.path.write_text(text)
        with pytest.raises(BadConfiguration, match="cannot be used"):
            file.read()


def test_a_file_that_cannot_be_written_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = KnownFile(tmp_path)
    known = after(answer("1", complete=True, a={}))
    file.write(known, confirmed_ms=1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bmq_databus.control_plane.known.sync_file", full)
    with pytest.raises(BadConfiguration, match="No space left"):
        file.write(after(answer("2", complete=True)), confirmed_ms=2)
    assert file.read() == (known, 1)


def test_the_token_is_the_first_line_that_is_one(tmp_path: Path) -> None:
    assert token_in(None) == ""
    path = tmp_path / "token"
    for text in (None, "", "# none\n\n"):
        if text is not None:
            path.write_text(text)
        with pytest.raises(ConfigurationError, match="--control-plane-token-file"):
            token_in(path)
    path.write_text("# mine\n secret \nother\n")
    assert token_in(path) == "secret"


class World:
    """A control plane of two addresses, and what a sidecar does with what it says."""

    def __init__(self, folder: Path, loop: VirtualLoop) -> None:
        self.folder = folder
        self.loop = loop
        self.asked: list[tuple[str, str, float]] = []
        self.answers: list[bytes | AdminError] = []
        self.applied: list[dict[str, Channel]] = []
        self.refuses: dict[str, str] = {}

    async def ask(self, url: str, version: str, wait_s: float) -> bytes:
        self.asked.append((url, version, self.loop.time()))
        if not self.answers:
            await asyncio.sleep(wait_s)
            return answer(version)
        found = self.answers.pop(0)
        if isinstance(found, AdminError):
            raise found
        return found

    async def apply(self, channels: Mapping[str, Channel]) -> dict[str, str]:
        self.applied.append(dict(channels))
        return self.refuses

    def following(self) -> Following:
        return Following(
            ControlPlane(urls=("http://a", "http://b"), state=self.folder),
            self.apply,
            clock=SimClock(),
            rng=SimRng(7),
            ask=self.ask,
        )


def run(tmp_path: Path, test: Callable[[World], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        await test(World(tmp_path, loop))

    run_on_virtual_time(main(), loop=loop)


async def followed(following: Following, time_s: float) -> None:
    await following.begin()
    task = asyncio.create_task(following.run())
    await asyncio.sleep(time_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await following.close()


def test_what_is_said_is_applied_remembered_and_served_by_without_a_control_plane(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.answers = [answer("1", complete=True, a={}), answer("2", b={"enabled": False})]
        first = world.following()
        assert first.known is None
        assert math.isnan(first.age_s)
        await followed(first, 10)
        assert math.isnan(metrics.CONFIGURATION_AGE.collect()[0].samples[0].value), "nobody's clock is asked any more"
        assert [sorted(one) for one in world.applied] == [["a"], ["a", "b"]]
        assert [version for _, version, _ in world.asked] == ["", "1", "2"]
        world.applied.clear()
        world.answers = [AdminUnreachable("it is away")] * 100
        again = world.following()
        await followed(again, 60)
        assert [sorted(one) for one in world.applied] == [["a", "b"]]
        assert not world.applied[0]["b"].enabled
        assert again.age_s >= 60
        status = again.status()
        assert (status["version"], status["controlPlane"]) == ("2", "it is away")

    run(tmp_path, test)


def test_who_does_not_answer_is_asked_ever_more_rarely_and_the_other_one_in_turn(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.answers = [AdminUnreachable("it is away")] * 1_000
        await followed(world.following(), 600)
        assert 30 < len(world.asked) < 100
        assert {first[0] != second[0] for first, second in zip(world.asked, world.asked[1:], strict=False)} == {True}
        pauses = [second[2] - first[2] for first, second in zip(world.asked, world.asked[1:], strict=False)]
        assert pauses[0] <= 0.5
        assert all(7.5 <= pause <= 15 for pause in pauses[10:])
        assert len({round(pause, 3) for pause in pauses[10:]}) > 5

    run(tmp_path, test)


def test_a_bad_answer_changes_nothing_and_an_empty_list_that_is_said_to_be_all_does(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.answers = [answer("1", complete=True, a={}), b"<html>login</html>", b"null", answer("1")]
        following = world.following()
        await followed(following, 20)
        assert [sorted(one) for one in world.applied] == [["a"]]
        found = KnownFile(tmp_path).read()
        assert found is not None
        assert set(found[0].specs) == {"a"}
        world.answers = [answer("2", complete=True)]
        await followed(world.following(), 20)
        assert world.applied[-1] == {}

    run(tmp_path, test)


def test_who_answers_at_once_each_time_is_not_asked_without_end(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.answers = [answer("1", complete=True, a={})] * 10_000
        await followed(world.following(), 20)
        assert len(world.asked) <= 101
        assert len(world.applied) == 1

    run(tmp_path, test)


def test_a_channel_that_could_not_be_applied_is_tried_again_with_each_answer(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.refuses = {"a": "no folder"}
        world.answers = [answer("1", complete=True, a={}), answer("1"), answer("1")]
        following = world.following()
        await followed(following, 1)
        assert len(world.applied) == 3
        assert following.status()["troubles"] == {"a": "no folder"}

    run(tmp_path, test)


def test_what_is_wrong_with_channels_themselves_is_not_taken_up_again_without_news(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        circle = {f"c{number:03}": {"deadLetter": f"c{(number + 1) % 50:03}"} for number in range(50)}
        world.answers = [answer("1", complete=True, **circle), answer("1"), answer("1"), answer("2", new={})]
        following = world.following()
        await followed(following, 1)
        assert len(world.applied) == 2
        status = following.status()
        assert [*status["troubles"]] == [f"c{number:03}" for number in range(10)]
        assert status["troublesMore"] == 40
        first, then = world.applied
        assert all(then[name] is first[name] and first[name].dead_letter == "" for name in circle)

    run(tmp_path, test)


def test_dead_letters_and_schemas_that_lead_nowhere_are_told_and_the_rest_goes_on() -> None:
    lost = after(answer("1", complete=True, a={"deadLetter": "nowhere", "schema": {"json": {}}}, b={}))
    channels, troubles = channels_in(lost, {})
    assert "nowhere is no channel" in troubles["a"]
    assert channels["a"].dead_letter == "" and set(channels) == {"a", "b"}
    found = after(answer("2", complete=True, a={"deadLetter": "b", "schema": {"json": {}}}, b={}))
    channels, troubles = channels_in(found, channels)
    assert not troubles and channels["a"].dead_letter == "b"
    wrong = after(answer("3", complete=True, a={"schema": {"json": {"type": "nonsense"}}}, b={}))
    then, troubles = channels_in(wrong, channels)
    assert "spec.schema" in troubles["a"] and then["a"] == channels["a"]


def test_channels_of_a_control_plane_keep_to_as_many_manners_as_those_of_a_file_and_what_works_goes_on() -> None:
    specs = {f"c{number}": {"batching": {"lingerMs": number}} for number in range(MANNERS_MAX)}
    first, troubles = channels_in(after(answer("1", complete=True, **specs)), {})
    assert (len(first), troubles) == (MANNERS_MAX, {})
    more = specs | {"a": {"batching": {"lingerMs": 99}}, "b": {"batching": {"lingerMs": 1}}}
    then, troubles = channels_in(after(answer("2", complete=True, **more)), first)
    assert then.keys() == {*specs, "b"} and list(troubles) == ["a"] and "9 manners" in troubles["a"]
    changed_one = specs | {"c3": {"batching": {"lingerMs": 99}, "topic": "t"}, "c4": {"batching": {"lingerMs": 1}}}
    now, troubles = channels_in(after(answer("3", complete=True, **changed_one)), first)
    assert (now["c3"].manner.linger_ms, troubles) == (99, {}), "there is room for it now"


def with_patterns(*patterns: str) -> dict[str, Any]:
    return {"schema": {"json": {"allOf": [{"pattern": pattern} for pattern in patterns]}}}


def test_schemas_of_a_control_plane_have_the_sidecars_memory_together_and_the_one_beyond_it_is_told() -> None:
    large = {name: with_patterns(*(f"\\p{{L}}{{21}}{name}{number}" for number in range(4))) for name in "abc"}
    room = Room(schema_bytes=17 << 20)
    known = after(answer("1", complete=True, **large, orders={}, small=with_patterns("^[a-z]+$")))
    channels, troubles = channels_in(known, {}, room)
    assert (channels.keys(), troubles.keys()) == ({"a", "b", "orders", "small"}, {"c"})
    assert "all schemas of a sidecar have" in troubles["c"] and "lower its patterns' repetitions" in troubles["c"]
    fewer = after(answer("2", complete=True, **{**large, "a": {}}, orders={}, small=with_patterns("^[a-z]+$")))
    channels, troubles = channels_in(fewer, channels, room)
    assert (channels.keys(), troubles) == ({"a", "b", "c", "orders", "small"}, {}), "there is room for it now"


def test_a_schema_that_is_too_large_is_a_trouble_of_its_channel_alone() -> None:
    large = with_patterns(*(f"\\p{{L}}{{22}}{number}" for number in range(200)))
    channels, troubles = channels_in(after(answer("1", complete=True, a=large, orders={})), {})
    assert channels.keys() == {"orders"} and "compiled into more than 4 MiB" in troubles["a"]


def test_what_did_not_change_is_not_made_again_and_nothing_is_made_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    threads: list[Callable[..., Any]] = []

    def making(name: str, spec: bytes) -> Made:
        made.append(name)
        return made_of(name, spec)

    in_thread = VirtualLoop.run_in_executor

    def given(loop: VirtualLoop, executor: Any, work: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        threads.append(work)
        return in_thread(loop, executor, work, *arguments)

    monkeypatch.setattr("bmq_databus.control_plane.following.made_of", making)
    monkeypatch.setattr(VirtualLoop, "run_in_executor", given)

    async def test(world: World) -> None:
        specs = {"a": with_patterns("^a+$"), "b": with_patterns("^b+$"), "wrong": {"topc": "t"}}
        world.answers = [answer("1", complete=True, **specs), answer("2", a=with_patterns("^c+$"))]
        world.answers += [answer("3", complete=True, **specs), answer("3"), answer("3")]
        following = world.following()
        await followed(following, 5)
        assert made == ["a", "b", "wrong", "a", "a"]
        assert threads.count(making) == len(made)
        assert "spec.topc" in following.status()["troubles"]["wrong"]
        assert world.applied[-1].keys() == {"a", "b"}

    run(tmp_path, test)


def aged(version: str, specs: Mapping[str, Mapping[str, Any]], *oldest: str) -> bytes:
    """All channels; those of `oldest` were made in that order."""
    document = json.loads(answer(version, complete=True, **specs))
    for one in document["channels"]:
        one["created_ms"] = 1 + oldest.index(one["name"])
    return json.dumps(document).encode()


def test_where_there_is_no_room_for_all_the_oldest_have_it_and_not_who_is_first_by_name() -> None:
    strangers = {f"aaa{number}": {"batching": {"lingerMs": 100 + number}} for number in range(MANNERS_MAX)}
    own = {"orders": {"batching": {"lingerMs": 7}}}
    known = after(aged("1", strangers | own, "orders", *strangers))
    channels, troubles = channels_in(known, {})
    assert "orders" in channels
    assert sorted(troubles) == ["aaa6", "aaa7"], "one is for channels that say nothing"
    accepted = {"acknowledgement": "accepted", "spool": {"maxBytes": 10 << 20}}
    room = Room(disk_bytes=disk_bytes(10 << 20, aside_bytes=2 << 20), aside_bytes=2 << 20)
    known = after(aged("1", {"aaa": accepted, "orders": accepted}, "orders", "aaa"))
    channels, troubles = channels_in(known, {}, room)
    assert (channels.keys(), troubles.keys()) == ({"orders"}, {"aaa"})


def test_channels_that_say_nothing_of_how_they_are_sent_always_have_a_producer() -> None:
    strangers = {f"aaa{number}": {"batching": {"lingerMs": 100 + number}} for number in range(MANNERS_MAX)}
    first, troubles = channels_in(after(aged("1", strangers, *strangers)), {})
    assert list(troubles) == ["aaa7"] and "9 manners" in troubles["aaa7"]
    for before in (first, {}):
        channels, troubles = channels_in(after(aged("2", strangers | {"orders": {}}, *strangers, "orders")), before)
        assert "orders" in channels and list(troubles) == ["aaa7"]


def test_ages_are_remembered_with_what_is_known_and_a_file_without_them_is_asked_for_anew(tmp_path: Path) -> None:
    known = after(aged("1", {"a": {}, "b": {}, "c": {}}, "a", "b", "c"), answer("2", deleted=("b",), c={"topic": "t"}))
    assert known.created_ms == {"a": 1, "c": 3}
    file = KnownFile(tmp_path)
    file.write(known, confirmed_ms=7)
    assert file.read() == (known, 7)
    file.path.write_text('{"format": 1, "version": "v", "channels": [{"name": "a", "spec": {}}]}')
    assert file.read() == (Configuration(version="", specs={"a": b"{}"}), 0)


def test_who_writes_to_a_channel_that_is_not_served_is_told_why(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        strangers = {f"aaa{number}": {"batching": {"lingerMs": 100 + number}} for number in range(MANNERS_MAX + 1)}
        world.answers = [aged("1", strangers, *strangers)]
        following = world.following()
        await followed(following, 1)
        admission = Admission(world.applied[-1], configuration=following)
        assert (await admission.named("aaa6")).name == "aaa6"
        with pytest.raises(NoSuchChannel, match="channel aaa7 is not served here: this and others are sent in 9"):
            await admission.named("aaa7")
        with pytest.raises(NoSuchChannel, match="there is no channel 'other'"):
            await admission.named("other")

    run(tmp_path, test)


def test_channels_of_a_control_plane_have_the_sidecars_place_on_disk_together() -> None:
    accepted = {"acknowledgement": "accepted", "spool": {"maxBytes": 10 << 20}}
    room = Room(disk_bytes=2 * disk_bytes(10 << 20, aside_bytes=2 << 20), aside_bytes=2 << 20)
    first, troubles = channels_in(after(answer("1", complete=True, b=accepted, c=accepted)), {}, room)
    assert (first.keys(), troubles) == ({"b", "c"}, {})
    more = {"a": accepted, "b": accepted, "c": {**accepted, "spool": {"maxBytes": 11 << 20}}, "d": {}}
    then, troubles = channels_in(after(answer("2", complete=True, **more)), first, room)
    assert (then.keys(), troubles.keys()) == ({"b", "c", "d"}, {"a", "c"}), "what is there goes first"
    assert then["c"] is first["c"] and all("--spool-bytes" in why for why in troubles.values())
    smaller = {**accepted, "spool": {"maxBytes": 9 << 20}}
    larger = {**accepted, "spool": {"maxBytes": 11 << 20}}
    moved, troubles = channels_in(after(answer("3", complete=True, b=larger, c=smaller)), first, room)
    assert not troubles and moved["b"].spool.bytes_max == 11 << 20, "what another one gives up is there for it"
