"""Whatever is answered in a control plane's place, or lies in the file of what is known: a sidecar goes on, reads it
within bounds, and keeps nothing beyond them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from test_following import World, after, answer, followed, run

from bmq_admin.errors import AdminUnreachable
from bmq_databus.control_plane.answers import (
    ANSWER_BYTES_MAX,
    ANSWER_ELEMENTS_MAX,
    CHANNELS_MAX,
    SPEC_BYTES_MAX,
    SPEC_ELEMENTS_MAX,
    VERSION_CHARS_MAX,
    changes_of,
)
from bmq_databus.control_plane.configuration import Configuration, changed, channels_in, configured, made_of, names_in
from bmq_databus.control_plane.known import ASIDE, FILE_BYTES_MAX, NAME, KnownFile
from bmq_databus.errors import BadConfiguration

DEEP = b"[" * 5_000 + b"]" * 5_000


def whole(channels: bytes, *, version: str = "1") -> bytes:
    return b'{"version":"%s","complete":true,"channels":[%s]}' % (version.encode(), channels)


def kept(path: Path, channels: bytes, *, version: str = "1") -> None:
    path.write_bytes(b'{"format":2,"version":"%s","channels":[%s]}' % (version.encode(), channels))


def test_an_answer_that_is_nested_too_deeply_is_none_and_a_file_of_it_is_set_aside(tmp_path: Path) -> None:
    channel = b'{"name":"a","spec":{"x":%s}}' % DEEP
    with pytest.raises(BadConfiguration, match="answer is none: it is nested too deeply"):
        changes_of(whole(channel))
    file = KnownFile(tmp_path)
    kept(file.path, channel)
    with pytest.raises(BadConfiguration, match=f"it is nested too deeply: it is {tmp_path / ASIDE} now; channels are "):
        file.read()
    assert [path.name for path in tmp_path.iterdir()] == [ASIDE]


def test_a_sidecar_outlives_an_answer_that_is_nested_too_deeply(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        deep = whole(b'{"name":"a","spec":{"x":%s}}' % DEEP)
        world.answers = [answer("1", complete=True, a={}), deep, answer("2", b={})]
        following = world.following()
        await followed(following, 10)
        assert [sorted(one) for one in world.applied] == [["a"], ["a", "b"]]
        assert following.status()["controlPlane"] == "ok"

    run(tmp_path, test)


def test_a_channel_that_is_nested_too_deeply_is_in_trouble_alone() -> None:
    spec = b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    made = made_of("a", spec)
    assert made.channel is None and made.why_not.startswith("spec is nested too deeply: have fewer lists")


def test_a_bug_that_an_answer_meets_is_told_once_in_a_while_and_the_sidecar_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: bytes) -> Any:
        raise ZeroDivisionError("a bug")

    async def test(world: World) -> None:
        world.answers = [answer("1", complete=True, a={})]
        following = world.following()
        await followed(following, 1)
        world.answers = [answer("2", b={})] * 1_000
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr("bmq_databus.control_plane.following.changes_of", broken)
            await followed(following, 1_000)
        bugs = [one for one in logs if one["event"].startswith("bug: ")]
        assert len(bugs) == 2
        assert all(isinstance(one["exc_info"], ZeroDivisionError) for one in bugs)
        assert following.status()["controlPlane"] == "its answer meets a bug: ZeroDivisionError('a bug')"
        world.answers = [answer("2", b={})]
        await followed(following, 20)
        assert sorted(world.applied[-1]) == ["a", "b"]

    run(tmp_path, test)


def test_a_bug_that_the_known_file_meets_does_not_keep_a_sidecar_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: KnownFile) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(KnownFile, "read", broken)

    async def test(world: World) -> None:
        world.answers = [answer("1", complete=True, a={})]
        with capture_logs() as logs:
            await followed(world.following(), 10)
        assert [one["log_level"] for one in logs if one["event"].startswith("bug: ")] == ["error"]
        assert [sorted(one) for one in world.applied] == [["a"]]

    run(tmp_path, test)


def wide(count: int) -> bytes:
    """A spec of some 2 * `count` elements."""
    return b'{"x":[' + b"[]," * count + b"[]]}"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (b'{"x":"%s"}' % (b"a" * SPEC_BYTES_MAX), "bytes, and a sidecar reads 1024 KiB of each channel: say less"),
        (wide(SPEC_ELEMENTS_MAX // 2), f"elements, and a sidecar reads {SPEC_ELEMENTS_MAX} of each channel: say less"),
    ],
)
def test_a_channel_that_says_too_much_is_in_trouble_alone_and_nothing_of_it_is_kept(
    tmp_path: Path, spec: bytes, why: str
) -> None:
    before, _ = channels_in(after(answer("1", complete=True, a={"topic": "t"}, b={})), {})
    known = changed(None, changes_of(whole(b'{"name":"a","spec":%s},{"name":"b","spec":{}}' % spec, version="2")))
    channels, troubles = channels_in(known, before)
    assert channels == before and troubles.keys() == {"a"} and why in troubles["a"]
    assert channels_in(known, {})[0].keys() == {"b"}
    file = KnownFile(tmp_path)
    file.write(known, confirmed_ms=7)
    assert file.path.stat().st_size < 1_000
    assert file.read() == (Configuration(version="", specs={"b": b"{}"}), 7), "all are asked for again"
    assert changed(known, changes_of(answer("3", a={}))).specs == {"a": b"{}", "b": b"{}"}
    assert not changed(known, changes_of(answer("3", deleted=("a",)))).beyond
    kept(file.path, b'{"name":"a","spec":%s},{"name":"b","spec":{}}' % spec, version="2")
    read = file.read()
    assert read is not None and read[0].version == "" and read[0].specs.keys() == {"b"}


def test_topics_of_channels_that_stay_what_they_were_are_theirs(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        large = {"topic": "t", "x": "a" * SPEC_BYTES_MAX}
        world.answers = [answer("1", complete=True, a={"topic": "t"}), answer("2", a=large)]
        following = world.following()
        await followed(following, 5)
        assert world.applied[-1]["a"].topic == "t" and following.names == {"a", "t"}

    run(tmp_path, test)


def test_topics_are_known_of_what_cannot_be_made() -> None:
    targets = b'{"targets":[{"topic":"t"},{"topic":7},8],"more":1}'
    made = {name: made_of(name, spec) for name, spec in {"a": targets, "b": b"7", "c": b'{"topic":"u"}'}.items()}
    assert names_in(made) == {"a", "b", "c", "t", "u"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (whole(b'{"name":"a","spec":%s}' % wide(ANSWER_ELEMENTS_MAX // 2)), f"{ANSWER_ELEMENTS_MAX} at most are read"),
        (whole(b",".join([b'{"name":"a","spec":0}'] * (CHANNELS_MAX + 1))), f"more than {CHANNELS_MAX} channels"),
        (whole(b'{"name":"%s","spec":{}}' % (b"a" * 254)), "name has more than 253 characters"),
        (whole(b'{"name":7,"spec":{}}'), "a channel's name is no text"),
        (whole(b'{"name":"a","spec":{},"created_ms":%d}' % (1 << 62)), "Expected `int` <= "),
        (whole(b"", version="x" * (VERSION_CHARS_MAX + 1)), f"Expected `str` of length <= {VERSION_CHARS_MAX}"),
    ],
    ids=["elements", "channels", "a long name", "no name", "a time beyond all", "a long version"],
)
def test_an_answer_beyond_bounds_is_none(data: bytes, why: str) -> None:
    with pytest.raises(BadConfiguration, match=f"the control plane's answer is none: .*{why}"):
        changes_of(data)


def test_changes_add_up_to_no_more_than_one_answer_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_databus.control_plane.configuration.CHANNELS_MAX", 2)
    known = after(answer("1", complete=True, a={}, b={}))
    with pytest.raises(BadConfiguration, match="there are 3 channels, and a sidecar follows 2: delete some"):
        changed(known, changes_of(answer("2", c={})))
    monkeypatch.setattr("bmq_databus.control_plane.configuration.ANSWER_BYTES_MAX", 100)
    with pytest.raises(BadConfiguration, match="all channels have 114 bytes, and a sidecar keeps 100"):
        changed(known, changes_of(answer("2", b={"topic": "t" * 97})))


@pytest.mark.parametrize(
    "channels",
    [b'{"name":"a","spec":%s}' % wide(ANSWER_ELEMENTS_MAX // 2), b'{"name":"%s","spec":{}}' % (b"a" * 254)],
    ids=["elements", "a long name"],
)
def test_a_known_file_beyond_bounds_is_set_aside_and_the_sidecar_asks_for_all(tmp_path: Path, channels: bytes) -> None:
    kept(tmp_path / NAME, channels)

    async def test(world: World) -> None:
        world.answers = [answer("2", complete=True, b={})]
        with capture_logs() as logs:
            await followed(world.following(), 5)
        assert [one["why"] for one in logs if one["event"] == "last known channels are not there"] != []
        assert (tmp_path / ASIDE).exists() and next(version for _, version, _ in world.asked) == ""
        found = KnownFile(tmp_path).read()
        assert found is not None and found[0].specs == {"b": b"{}"}

    run(tmp_path, test)


def test_a_known_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = KnownFile(tmp_path)
    with file.path.open("wb") as written:
        written.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(BadConfiguration, match=f"more than {FILE_BYTES_MAX >> 20} MiB: it is .*{ASIDE} now"):
        file.read()
    assert not file.path.exists()


def test_what_is_kept_at_most_is_read_again(tmp_path: Path) -> None:
    known = Configuration(
        version="é" * VERSION_CHARS_MAX,
        specs={f"{number:0253}": b"{}" for number in range(CHANNELS_MAX)},
        created_ms={f"{number:0253}": (1 << 62) - 1 for number in range(CHANNELS_MAX)},
    )
    file = KnownFile(tmp_path)
    file.write(known, confirmed_ms=7)
    without_specs = file.path.stat().st_size - sum(len(name) + len(spec) for name, spec in known.specs.items())
    assert ANSWER_BYTES_MAX + without_specs <= FILE_BYTES_MAX
    assert file.read() == (known, 7)


def test_a_long_version_of_a_known_file_is_not_asked_with(tmp_path: Path) -> None:
    kept(tmp_path / NAME, b'{"name":"a","spec":{}}', version="x" * 70_000)
    assert KnownFile(tmp_path).read() == (Configuration(version="", specs={"a": b"{}"}), 0)


def test_a_sidecar_that_starts_by_what_it_knew_says_once_that_nobody_answers(tmp_path: Path) -> None:
    KnownFile(tmp_path).write(after(answer("1", complete=True, a={})), confirmed_ms=1)

    async def test(world: World) -> None:
        world.answers = [AdminUnreachable("it is away")] * 1_000
        with capture_logs() as logs:
            await followed(world.following(), 600)
        told = [one for one in logs if one["event"] == "control plane does not answer"]
        assert [(one["log_level"], one["why"]) for one in told] == [("warning", "it is away")]

    run(tmp_path, test)


def test_who_answers_again_and_then_not_is_told_again(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        away = AdminUnreachable("it is away")
        world.answers = [answer("1", complete=True, a={}), away, away, answer("1"), *[away] * 1_000]
        with capture_logs() as logs:
            await followed(world.following(), 600)
        assert [one["event"] for one in logs].count("control plane does not answer") == 2

    run(tmp_path, test)


def test_channels_are_written_as_json_however_many_they_are(tmp_path: Path) -> None:
    file = KnownFile(tmp_path)
    for count in (0, 1, 500, 501):
        known = configured("v", changes_of(answer("1", **{f"c{number}": {} for number in range(count)})).channels)
        file.write(known, confirmed_ms=1)
        assert len(json.loads(file.path.read_bytes())["channels"]) == count
        assert file.read() == (known, 1)
