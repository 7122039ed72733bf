"""`bmq databus spool` as a user runs it: beside a sidecar, over a real cluster, killed in the middle."""

import asyncio
import base64
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compat_server import BMQ, Bmq
from databus_process import Databus
from test_databus import CHANNELS, records
from tests.waiting import until

from bmq.runtime.system import SystemClock
from bmq_databus.backlog.looking import look
from bmq_databus.spool.channel_spool import ChannelSpool, SpoolLimits
from bmq_databus.spool.frames import Spooled
from bmq_databus.spool.identity import ID_FILE
from bmq_databus.spool.refused import FILE

KEYS = 7


class Done(NamedTuple):
    code: int
    out: str
    err: str


def spool(folder: Path, command: str, *options: str) -> Done:
    done = subprocess.run(
        [str(BMQ), "databus", "spool", command, "--spool", str(folder), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def shown(folder: Path, channel: str = "clicks") -> dict[str, Any]:
    done = spool(folder, "show", "-o", "json", "--channel", channel)
    assert done.code == 0, done.err
    [one] = json.loads(done.out)
    assert isinstance(one, dict)
    return one


def fill(folder: Path, messages: Sequence[Spooled]) -> None:
    """As a sidecar does, a thousand in a frame."""

    async def main() -> None:
        made = await ChannelSpool.opened(folder, limits=SpoolLimits(segment_bytes=4 << 20), clock=SystemClock())
        for n in range(0, len(messages), 1_000):
            await made.accept(messages[n : n + 1_000], patience_s=10)
        await made.close()

    asyncio.run(main())


def message(n: int, *, topic: str = "clicks-raw", size_bytes: int = 0, partition: int = -1) -> Spooled:
    value = f"{n}".encode().ljust(size_bytes)
    return Spooled(topic, partition, f"k{n % KEYS}".encode(), value, (), 1_700_000_000_000, 1_700_000_000_000)


def waiting(folder: Path) -> int:
    """How many messages, by their notes alone."""
    return sum(segment.undone for segment in look(folder).segments)


def stop_when(process: "subprocess.Popen[Any]", is_so: Callable[[], bool]) -> None:
    """Holds the process where that is so: it neither ends nor goes on until it gets another signal."""
    until(is_so, "some to be written", 60, unless=lambda: process.poll() is not None, every_s=0.005)
    process.send_signal(signal.SIGSTOP)
    assert is_so(), "it is held in the middle"


def numbers(bmq: Bmq, topic: str, count: int) -> dict[bytes, list[int]]:
    """What the topic has, by key."""
    found: dict[bytes, list[int]] = {}
    for one in records(bmq, topic, count):
        found.setdefault(one.key() or b"", []).append(int(one.value() or b"-1"))
    return found


def test_what_a_running_sidecar_has_is_shown_exported_and_taken_again_without_loss(
    bmq: Bmq, databus: Databus, tmp_path: Path
) -> None:
    databus.start()
    headers = {"bmq-header-trace": "t1"}
    assert (
        databus.post("clicks", b"\x00raw\xff", query="?key=%ff%00&timestamp=17&partition=0", headers=headers)[0] == 202
    )
    odd = [
        {"headers": [{"name": "h", "text": "1"}, {"name": "h", "base64": "/v8="}, {"name": "n"}], "json": {"a": 1.50}},
        {"key": "tombstone"},
        {"text": "zwei\nZeilen", "key": ""},
        {"base64": base64.b64encode(bytes(range(256))).decode()},
    ]
    assert databus.post_many("clicks", odd)[0] == 202
    one = shown(databus.spool)
    assert (one["waiting"], one["segments"], one["sent"], one["oldest_age_s"] < 60) == (5, 1, 0, True)
    table = spool(databus.spool, "show").out.splitlines()
    assert table[0].split()[:3] == ["CHANNEL", "SEGMENTS", "WAITING"]
    assert table[1].split()[:3] == ["clicks", "1", "5"]

    first = spool(databus.spool, "export")
    assert (first.code, first.out.count("\n")) == (0, 5)
    assert "5 messages of clicks exported" in first.err
    place = first.err.split("--after ")[1].split()[0]
    assert spool(databus.spool, "export", "--after", place).out == ""
    assert databus.post("clicks", b"one more")[0] == 202
    assert json.loads(spool(databus.spool, "export", "--after", place).out)["text"] == "one more"

    held = spool(databus.spool, "replay", "--bootstrap-servers", bmq.servers)
    assert (held.code, held.out) == (1, "")
    assert "channel clicks: a sidecar, or another replay, has" in held.err
    assert "end it first" in held.err

    status, _ = databus.post("clicks", first.out.encode(), media="application/x-ndjson")
    assert status == 202
    bmq.start()
    found = records(bmq, "clicks-raw", 11)
    assert len(found) == 11
    was, _, again = found[:5], found[5], found[6:]
    for before, after in zip(was, again, strict=True):
        assert (before.key(), before.value(), before.headers(), before.timestamp()) == (
            after.key(),
            after.value(),
            after.headers(),
            after.timestamp(),
        )
    assert was[1].headers() == [("h", b"1"), ("h", b"\xfe\xff"), ("n", None)]
    assert (was[0].key(), was[0].timestamp()[1], was[2].value()) == (b"\xff\x00", 17, None)


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_replay_that_is_killed_goes_on_where_it_was(bmq: Bmq, tmp_path: Path, by: signal.Signals) -> None:
    root, count = tmp_path / "spool", 60_000
    fill(root / "clicks", [message(n, size_bytes=500) for n in range(count)])
    bmq.start()
    log = (tmp_path / "replay.log").open("wb")
    command = [str(BMQ), "databus", "spool", "replay", "--spool", str(root), "--bootstrap-servers", bmq.servers]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        stop_when(process, lambda: 0 < waiting(root / "clicks") < count - 2_000)
        held = spool(root, "replay", "--bootstrap-servers", bmq.servers)
        assert (held.code, "or another replay, has" in held.err) == (1, True)
        process.send_signal(by)
        process.send_signal(signal.SIGCONT)
        code = process.wait(30)
    finally:
        process.kill()
        process.wait(10)
        log.close()
    left = shown(root)["waiting"]
    assert 0 < left < count
    if by == signal.SIGINT:
        said = (tmp_path / "replay.log").read_text()
        assert (code, f"{left} left" in said) == (130, True), f"{left} are left: {said[-300:]}"
    done = spool(root, "replay", "--bootstrap-servers", bmq.servers, "-o", "json")
    assert done.code == 0, done.err
    [told] = json.loads(done.out)
    assert (told["written"], told["left"], told["refused"]) == (left, 0, [])
    found = numbers(bmq, "clicks-raw", count)
    for key, values in found.items():
        number = int(key[1:])
        assert list(dict.fromkeys(values)) == list(range(number, count, KEYS))
    twice = Counter(value for values in found.values() for value in values).total() - count
    assert 0 <= twice <= told["written_again"] < count
    assert spool(root, "show").out == f"no channel has anything in {root}\n"


def test_a_replay_without_a_cluster_says_so_and_takes_nothing(bmq: Bmq, tmp_path: Path) -> None:
    root = tmp_path / "spool"
    fill(root / "clicks", [message(n) for n in range(10)])
    done = spool(root, "replay", "--bootstrap-servers", bmq.servers)
    assert (done.code, done.out) == (4, "")
    assert f"cluster {bmq.servers} does not answer" in done.err
    assert (shown(root)["waiting"], shown(root)["sent"]) == (10, 0)


@pytest.mark.slow
def test_a_replay_whose_cluster_goes_away_gives_up_and_leaves_the_rest(bmq: Bmq, tmp_path: Path) -> None:
    root, count = tmp_path / "spool", 60_000
    fill(root / "clicks", [message(n, size_bytes=500) for n in range(count)])
    bmq.start()
    command = [str(BMQ), "databus", "spool", "replay", "--spool", str(root), "--bootstrap-servers", bmq.servers]
    process = subprocess.Popen(
        [*command, "--patience", "2"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stop_when(process, lambda: 0 < waiting(root / "clicks") < count - 2_000)
        bmq.kill9()
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert process.returncode == 4, err
    assert "nothing got through for 2 s" in err
    left = shown(root)["waiting"]
    assert f"{left} left" in out
    bmq.start()
    assert spool(root, "replay", "--bootstrap-servers", bmq.servers).code == 0
    found = numbers(bmq, "clicks-raw", count)
    assert sorted({value for values in found.values() for value in values}) == list(range(count))


def test_what_was_refused_is_replayed_once_the_cluster_takes_it_and_the_rest_is_kept_with_its_reason(
    bmq: Bmq, tmp_path: Path
) -> None:
    root = tmp_path / "spool"
    refused = [message(n, partition=1) for n in range(20)]
    fill(root / "clicks", [message(100), *refused, message(101, topic="no such topic"), message(102)])
    bmq.start()
    bmq_command(bmq, "topics", "create", "clicks-raw", "--partitions", "1")
    first = spool(root, "replay", "--bootstrap-servers", bmq.servers)
    assert first.code == 1
    assert "clicks: 2 messages written" in first.out
    assert "21 refused, 0 left" in first.out
    assert "error: channel clicks: 20 messages refused for topic clicks-raw:" in first.err
    assert (root / "clicks" / FILE).read_text().count("\n") == 21
    assert (shown(root)["refused"], shown(root)["waiting"]) == (21, 0)
    exported = spool(root, "export", "--refused", "--to", str(tmp_path / "refused.ndjson"))
    assert exported.code == 0, exported.err
    lines = [json.loads(line) for line in (tmp_path / "refused.ndjson").read_text().splitlines()]
    assert [one["text"] for one in lines if one.get("partition") == 1] == [str(n) for n in range(20)]
    assert (tmp_path / "refused.ndjson").stat().st_mode & 0o777 == 0o600

    bmq_command(bmq, "topics", "alter", "clicks-raw", "--partitions", "2")
    second = spool(root, "replay", "--refused", "--bootstrap-servers", bmq.servers, "-o", "json")
    assert second.code == 1
    [told] = json.loads(second.out)
    assert (told["written"], told["written_again"], told["left"], told["refused_kept"]) == (20, 0, 0, 1)
    [reason] = told["refused"]
    assert (reason["topic"], reason["messages"]) == ("no such topic", 1)
    assert {path.name for path in (root / "clicks").iterdir()} == {FILE, ID_FILE}
    found = [one for one in records(bmq, "clicks-raw", 22) if one.partition() == 1]
    assert [int(one.value() or b"") for one in found] == list(range(20))


def test_a_sidecar_keeps_as_much_of_what_was_refused_as_it_may_and_counts_the_rest(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    bmq_command(bmq, "topics", "create", "clicks-raw", "--partitions", "1")
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path, options=["--refused-bytes", str(1 << 20)])
    sidecar.start()
    try:
        for n in range(8):
            status, _ = sidecar.post("clicks", str(n).encode().ljust(150_000), query="?partition=77")
            assert status == 202
        until(lambda: sidecar.value("bmq_databus_spool_refused_total", channel="clicks") == 8, "all to be refused")
        dropped = int(sidecar.value("bmq_databus_spool_refused_dropped_total", channel="clicks"))
        done = spool(sidecar.spool, "export", "--refused")
        found = [int(json.loads(line)["text"]) for line in done.out.splitlines()]
        assert (found, len(found)) == (sorted(found), 8 - dropped)
        assert dropped == 4
        one = shown(sidecar.spool)
        assert (one["refused"], 500_000 < one["refused_bytes"] <= 1 << 20) == (8 - dropped, True)
        assert "refused messages are dropped for room" in sidecar.log.read_text()
    finally:
        sidecar.stop()


@pytest.mark.slow
def test_a_replay_of_what_was_refused_that_is_killed_goes_on_where_it_was(bmq: Bmq, tmp_path: Path) -> None:
    root, count = tmp_path / "spool", 40_000
    folder = root / "clicks"
    fill(tmp_path / "made" / "clicks", [message(n, size_bytes=500) for n in range(count)])
    folder.mkdir(parents=True)
    refuse_all(tmp_path / "made" / "clicks", folder, count)
    assert (shown(root)["refused"], shown(root)["waiting"]) == (count, 0)
    bmq.start()
    command = [str(BMQ), "databus", "spool", "replay", "--refused", "--spool", str(root)]
    process = subprocess.Popen(
        [*command, "--bootstrap-servers", bmq.servers], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        stop_when(process, lambda: 0 < waiting(folder / "replaying" / "spool") < count - 2_000)
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
    left = shown(root)["replaying"]
    assert 0 < left < count
    assert f"{left} refused messages of a replay that was ended" in spool(root, "show").out
    assert spool(root, "export", "--refused").out.count("\n") == left
    done = spool(root, "replay", "--refused", "--bootstrap-servers", bmq.servers, "-o", "json")
    assert done.code == 0, done.err
    [told] = json.loads(done.out)
    assert (told["written"], told["refused_kept"]) == (left, 0)
    found = numbers(bmq, "clicks-raw", count)
    for key, values in found.items():
        assert list(dict.fromkeys(values)) == list(range(int(key[1:]), count, KEYS))
    assert sum(map(len, found.values())) - count <= told["written_again"]
    assert list(folder.iterdir()) == []


def test_what_is_damaged_or_of_a_later_version_is_told_by_a_replay_that_writes_the_rest(
    bmq: Bmq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "spool"
    folder = root / "clicks"
    fill(folder, [message(n) for n in range(3_000)])
    fill(folder, [message(n) for n in range(3_000, 3_010)])
    with monkeypatch.context() as later:
        later.setattr("bmq_databus.spool.frames.VERSION", 2)
        fill(folder, [message(1)])
    first, second, _ = sorted(folder.glob("*.spool"))
    for path, at in ((first, first.read_bytes().rindex(b"bmqf") + 40), (second, 3)):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    bmq.start()
    done = spool(root, "replay", "--bootstrap-servers", bmq.servers)
    assert (done.code, done.out) == (1, "clicks: 2000 messages written, 0 refused, 0 left\n")
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2
    assert "2 segments not what was written, and 1000 messages of them cannot be read" in errors[0]
    assert "1 segment of a later version left" in errors[1]
    assert sum(map(len, numbers(bmq, "clicks-raw", 2_000).values())) == 2_000
    damaged = spool(root, "export", "--damaged")
    assert (damaged.code, damaged.out.count("\n")) == (0, 10)
    assert "1 place cannot be read (1000 messages)" in damaged.err


def test_what_a_command_cannot_do_is_told_in_a_line(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    fill(root / "clicks", [message(1)])
    fill(root / "other", [message(1)])
    there = tmp_path / "there"
    there.write_text("mine")
    for arguments, code, said in (
        (("export",), 3, "there are clicks, other: name one with --channel"),
        (("show", "--channel", "nobody"), 3, "channel nobody has nothing in spool"),
        (("export", "--channel", "clicks", "--to", str(there)), 2, "is there. Name a new file."),
        (("export", "--channel", "clicks", "--to", str(tmp_path / "no" / "file")), 2, "No such file or directory"),
        (("export", "--channel", "clicks", "--after", "yesterday"), 2, "'yesterday' is no place"),
        (("export", "--channel", "clicks", "--refused", "--after", "1@1"), 2, "it goes with what waits only"),
        (("export", "--channel", "clicks", "--refused", "--damaged"), 2, "it goes not with --refused"),
        (("replay", "--bootstrap-servers", "nowhere"), 2, "nowhere"),
    ):
        done = spool(root, *arguments)
        assert (done.code, done.out) == (code, ""), arguments
        [line] = done.err.splitlines()
        assert said in line
    assert there.read_text() == "mine"
    done = spool(tmp_path / "nowhere", "show")
    assert (done.code, "No such file or directory: name the --spool of a sidecar" in done.err) == (3, True)
    assert spool(Path(), "show", "--spool=").code == 2


def refuse_all(made: Path, folder: Path, count: int) -> None:
    """As a sidecar whose cluster takes none."""

    async def main() -> None:
        spooled = await ChannelSpool.opened(made, limits=SpoolLimits(), clock=SystemClock(), refused_in=folder)
        while count > len(numbers):
            for one in await spooled.read():
                numbers.add(one.number)
                spooled.refuse(one.number, one.message, "no")
        await spooled.emptied()
        await spooled.close()

    numbers: set[int] = set()
    asyncio.run(main())


def bmq_command(bmq: Bmq, *arguments: str) -> None:
    done = subprocess.run(
        [str(BMQ), "-b", bmq.servers, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
