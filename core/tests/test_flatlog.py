"""The flat log: its bytes, and its rules among several writers that sleep, race and lose replies."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_store import Faults, ScriptedStore, SeededRng, run
from tests.waiting import until_async

from bmq.errors import (
    BmqError,
    Conflict,
    Corrupt,
    Fenced,
    FormatError,
    FormatTooNew,
    ObjectMissing,
    StoreUnavailable,
    UnknownOutcome,
)
from bmq.ports import ObjectMeta
from bmq.storage import flatlog
from bmq.storage.flatlog import (
    EPOCH_MAX,
    NO_PREDECESSOR,
    Entry,
    FlatLog,
    GapFound,
    Overtaken,
    decode_entry,
    encode_entry,
)
from bmq.values import Nonce

entries = st.builds(
    Entry,
    number=st.integers(1, 2**63 - 1),
    epoch=st.integers(0, EPOCH_MAX),
    nonce=st.binary(min_size=16, max_size=16).map(Nonce),
    predecessor=st.binary(min_size=16, max_size=16).map(Nonce),
    claim=st.booleans(),
    payload=st.binary(max_size=200),
)


def encoded(entry: Entry) -> bytes:
    return b"".join(bytes(part) for part in encode_entry(entry))


@given(entries)
@settings(max_examples=100)
def test_an_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert decode_entry(encoded(entry), what="entry") == entry


@given(entries, st.data())
@settings(max_examples=150)
def test_a_truncated_or_changed_entry_is_a_typed_error(entry: Entry, data: st.DataObject) -> None:
    whole = encoded(entry)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FormatError):
        decode_entry(whole[:cut], what="entry")
    changed = bytearray(whole)
    changed[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FormatError):
        decode_entry(changed, what="entry")
    with pytest.raises(FormatError):
        decode_entry(whole + b"\0", what="entry")


def test_an_entry_without_payload_is_not_complete_without_its_last_checksum() -> None:
    whole = encoded(
        Entry(number=1, epoch=0, nonce=Nonce(bytes(16)), predecessor=NO_PREDECESSOR, claim=False, payload=b"")
    )
    for cut in range(len(whole)):
        with pytest.raises(FormatError):
            decode_entry(whole[:cut], what="entry")


def test_an_entry_of_a_newer_format_is_refused_by_name() -> None:
    whole = bytearray(
        encoded(Entry(number=1, epoch=1, nonce=Nonce(b"n" * 16), predecessor=NO_PREDECESSOR, claim=True, payload=b""))
    )
    whole[5] = 2
    with pytest.raises(FormatTooNew, match=r"metadata log 1: format version 2"):
        decode_entry(whole, what="metadata log 1")


class Logs:
    """Several writers' views of one log."""

    def __init__(self, faults: Faults | None = None, *, seed: int = 0) -> None:
        self.store = ScriptedStore(faults if faults is not None else Faults(), seed=seed)
        self.seeds = iter(range(1000 * seed, 1000 * seed + 1000))

    def writer(self) -> FlatLog:
        return FlatLog(self.store, "meta/log", rng=SeededRng(next(self.seeds)), what="metadata log")

    def numbers(self) -> list[int]:
        return sorted(int(key.rsplit("/", 1)[1]) for key in self.store.objects)


async def read_all(log: FlatLog, after: Entry | None = None) -> list[Entry]:
    return [entry async for entry in log.read_forward(after)]


def test_entries_are_numbered_from_one_and_read_in_order() -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.writer()
        assert await log.newest() is None
        entry = await log.claim(None, epoch=1, payload=b"claim")
        written = [entry]
        for n in range(20):
            entry = await log.append(entry, epoch=1, payload=b"%d" % n)
            written.append(entry)
        reader = logs.writer()
        assert await read_all(reader) == written
        assert await read_all(reader, written[7]) == written[8:]
        assert await read_all(reader, written[-1]) == []
        assert await reader.newest() == written[-1]
        assert await reader.newest(at_least=15) == written[-1]
        assert await reader.newest(at_least=22) is None
        assert [entry.number for entry in written] == list(range(1, 22))
        assert [entry.claim for entry in written] == [True] + [False] * 20

    run(main())


def test_a_lost_reply_makes_no_second_entry() -> None:
    async def main() -> None:
        logs = Logs(Faults(lost_after=0.5, not_applied=0.2), seed=3)
        log = logs.writer()
        entry = await log.claim(None, epoch=1, payload=b"")
        unknown = 0
        for n in range(50):
            above = entry
            while entry is above:
                try:
                    entry = await log.append(above, epoch=1, payload=b"%d" % n)
                except UnknownOutcome:
                    unknown += 1
                except Overtaken as error:
                    entry = error.entry
        assert unknown > 3
        assert [e.payload for e in await read_all(log)] == [b"", *(b"%d" % n for n in range(50))]

    run(main())


def test_an_own_earlier_try_is_recognised_as_often_as_it_is_met() -> None:
    """Who is told of it may fail before it takes the entry up, and come again with the same base."""

    async def main() -> None:
        logs = Logs()
        log = logs.writer()
        base = await log.claim(None, epoch=1, payload=b"")

        async def lose(key: str) -> None:
            raise UnknownOutcome(key)

        logs.store.after = lose
        store_get = logs.store.get

        async def missing(key: str, *, start: int = 0, length: int | None = None) -> bytes:
            raise ObjectMissing(key)

        logs.store.get = missing  # type: ignore[method-assign]
        with pytest.raises(UnknownOutcome):
            await log.append(base, epoch=1, payload=b"first try")
        logs.store.after = None
        logs.store.get = store_get  # type: ignore[method-assign]
        for _ in range(3):
            with pytest.raises(Overtaken) as met:
                await log.append(base, epoch=1, payload=b"again")
            assert met.value.entry.payload == b"first try"

    run(main())


def test_an_old_writer_is_fenced_by_the_claim() -> None:
    async def main() -> None:
        logs = Logs()
        old, new = logs.writer(), logs.writer()
        base = await old.claim(None, epoch=1, payload=b"")
        claim = await new.claim(base, epoch=2, payload=b"")
        with pytest.raises(Fenced):
            await old.append(base, epoch=1, payload=b"late")
        with pytest.raises(Fenced):
            await logs.writer().claim(claim, epoch=2, payload=b"the same epoch")
        assert await new.append(claim, epoch=2, payload=b"") == await new.newest()

    run(main())


def test_a_new_writer_builds_again_on_what_the_old_one_wrote_meanwhile() -> None:
    async def main() -> None:
        logs = Logs()
        old, new = logs.writer(), logs.writer()
        base = await old.claim(None, epoch=1, payload=b"")
        meanwhile = await old.append(base, epoch=1, payload=b"meanwhile")
        with pytest.raises(Overtaken) as caught:
            await new.claim(base, epoch=2, payload=b"")
        assert caught.value.entry == meanwhile
        claim = await new.claim(meanwhile, epoch=2, payload=b"")
        assert claim.number == 3
        assert claim.predecessor == meanwhile.nonce

    run(main())


def test_a_claim_in_the_deleted_past_counts_for_nothing_and_no_reader_sees_it() -> None:
    async def main() -> None:
        logs = Logs()
        old, sleeper = logs.writer(), logs.writer()
        base = entry = await old.claim(None, epoch=1, payload=b"")
        for n in range(5):
            entry = await old.append(entry, epoch=1, payload=b"%d" % n)
        assert await old.delete_covered(5) == 3
        with pytest.raises(Overtaken) as caught:
            await sleeper.claim(base, epoch=2, payload=b"asleep")
        assert caught.value.entry == entry
        assert logs.numbers() == [1, 2, 5, 6]
        seen = []
        with pytest.raises(GapFound):
            async for e in logs.writer().read_forward(base):
                seen.append(e)
        assert seen == []
        assert (await sleeper.claim(entry, epoch=2, payload=b"awake")).number == 7

    run(main())


def test_a_claim_in_the_deleted_past_of_a_higher_epoch_is_fenced() -> None:
    async def main() -> None:
        logs = Logs()
        old, sleeper, heir = logs.writer(), logs.writer(), logs.writer()
        base = await old.claim(None, epoch=1, payload=b"")
        await old.append(base, epoch=1, payload=b"")
        newest = await logs.writer().newest()
        assert newest is not None
        claim = await heir.claim(newest, epoch=3, payload=b"")
        await heir.append(claim, epoch=3, payload=b"")
        assert await heir.delete_covered(3) == 1
        with pytest.raises(Fenced):
            await sleeper.claim(base, epoch=2, payload=b"")

    run(main())


def test_claims_and_the_newest_entry_and_protected_ones_are_never_deleted() -> None:
    async def main() -> None:
        logs = Logs()
        entry: Entry | None = None
        for epoch in (1, 2, 3):
            log = logs.writer()
            entry = await log.claim(entry, epoch=epoch, payload=b"")
            for _ in range(4):
                entry = await log.append(entry, epoch=epoch, payload=b"")
        assert await log.delete_covered(100, protected={8}) == 10
        assert logs.numbers() == [1, 6, 8, 11, 15]
        assert await log.delete_covered(100) == 1
        assert await log.delete_covered(100) == 0
        assert logs.numbers() == [1, 6, 11, 15]
        assert entry is not None
        entry = await log.append(entry, epoch=3, payload=b"")
        listings = len(logs.store.log)
        assert await log.delete_covered(100) == 1
        assert logs.numbers() == [1, 6, 11, 16]
        assert logs.store.log[listings:] == [("delete", "meta/log/" + "15".zfill(20))]

    run(main())


def test_a_damaged_entry_stays_and_holds_up_the_deletion_of_no_other() -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.writer()
        entry = await log.claim(None, epoch=1, payload=b"")
        for _ in range(9):
            entry = await log.append(entry, epoch=1, payload=b"")
        key = "meta/log/" + "3".zfill(20)
        logs.store.objects[key] = logs.store.objects[key][:40]
        assert await logs.writer().delete_covered(100) == 7
        assert await logs.writer().delete_covered(100) == 0
        assert logs.numbers() == [1, 3, 10]

    run(main())


def test_what_cannot_be_deleted_now_goes_with_the_next_call() -> None:
    async def main() -> None:
        logs = Logs(seed=5)
        log = logs.writer()
        entry = await log.claim(None, epoch=1, payload=b"")
        for _ in range(20):
            entry = await log.append(entry, epoch=1, payload=b"")
        logs.store.faults = Faults(unavailable=0.5)
        first = await log.delete_covered(21)
        assert 0 < first < 19
        logs.store.faults = Faults()
        assert first + await log.delete_covered(21) == 19
        assert logs.numbers() == [1, 21]

    run(main())


def test_a_try_with_an_unknown_outcome_that_an_heir_built_upon_does_not_let_another_one_in() -> None:
    """The heir took the entry over, covered it and deleted it: its number is free again, but in the deleted past."""

    async def main() -> None:
        logs = Logs()
        old, heir = logs.writer(), logs.writer()
        base = await old.claim(None, epoch=1, payload=b"")

        async def lose(key: str) -> None:
            raise UnknownOutcome(key)

        logs.store.after = lose
        store_get = logs.store.get

        async def unreadable(key: str, *, start: int = 0, length: int | None = None) -> bytes:
            raise AssertionError("cancelled before it looks")

        logs.store.get = unreadable  # type: ignore[method-assign]
        task = asyncio.get_running_loop().create_task(old.append(base, epoch=1, payload=b"lost"))
        await until_async(lambda: len(logs.store.objects) >= 2, "the second object", every_s=0)
        task.cancel()
        await asyncio.wait([task])
        logs.store.get = store_get  # type: ignore[method-assign]
        logs.store.after = None
        lost = await heir.newest()
        assert lost is not None and lost.payload == b"lost"
        await heir.claim(lost, epoch=2, payload=b"")
        assert await heir.delete_covered(3) == 1
        with pytest.raises(Fenced):
            await old.append(base, epoch=1, payload=b"another")

    run(main())


@pytest.mark.parametrize("first_of_all", [False, True])
def test_a_writer_is_not_replaced_by_what_was_no_entry_and_is_gone_when_it_looks(first_of_all: bool) -> None:
    async def main() -> None:
        logs = Logs()
        writer = logs.writer()
        base = None if first_of_all else await writer.claim(None, epoch=1, payload=b"first")
        key = f"meta/log/{1 if first_of_all else 2:020d}"
        await logs.store.create(key, [b"garbage"])
        store_get = logs.store.get
        looks = []

        async def gone_before_the_second_look(wanted: str, *, start: int = 0, length: int | None = None) -> bytes:
            looks.append(wanted)
            if looks.count(key) == 2:  # the first one is whether it is the writer's own
                await logs.store.delete(key)
            return await store_get(wanted, start=start, length=length)

        logs.store.get = gone_before_the_second_look  # type: ignore[method-assign]
        with pytest.raises(UnknownOutcome, match="gone again"):
            await (
                writer.claim(None, epoch=1, payload=b"next")
                if base is None
                else writer.append(base, epoch=1, payload=b"next")
            )
        assert looks.count(key) == 2
        logs.store.get = store_get  # type: ignore[method-assign]
        entry = await (
            writer.claim(None, epoch=1, payload=b"next")
            if base is None
            else writer.append(base, epoch=1, payload=b"next")
        )
        assert await logs.writer().newest() == entry

    run(main())


def test_a_reader_that_stops_early_leaves_no_task() -> None:
    async def main() -> None:
        logs = Logs(Faults(delay_s=0.1))
        log = logs.writer()
        entry = await log.claim(None, epoch=1, payload=b"")
        for _ in range(10):
            entry = await log.append(entry, epoch=1, payload=b"")
        reader = log.read_forward(None)
        assert (await anext(reader)).number == 1
        await reader.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def log_that_goes_on_within_a_listing(logs: Logs, old: FlatLog, newest: Entry, *, listings: int) -> None:
    """For so many listings its writer appends, and deletes all that the listing was about to tell; only what stands
    below is told.
    """
    listing = logs.store.list
    left = listings

    async def overtaken(prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        nonlocal left, newest
        names = sorted(key for key in logs.store.objects if key > after)
        if left:
            left -= 1
            logs.store.list = listing  # type: ignore[method-assign]
            newest = await old.append(newest, epoch=newest.epoch, payload=b"more")
            await old.delete_covered(newest.number)
            logs.store.list = overtaken  # type: ignore[method-assign]
        for key in names:
            if key in logs.store.objects:
                yield ObjectMeta(key=key, size_bytes=len(logs.store.objects[key]), modified_ms=0)

    logs.store.list = overtaken  # type: ignore[method-assign]


@pytest.mark.parametrize("below_is_a_claim", [True, False])
def test_a_claim_in_the_deleted_past_does_not_hold_where_the_listing_missed_what_is_above_it(
    below_is_a_claim: bool,
) -> None:
    async def main() -> None:
        logs = Logs()
        old, sleeper = logs.writer(), logs.writer()
        base = newest = await old.claim(None, epoch=1, payload=b"")
        if not below_is_a_claim:
            base = newest = await old.append(base, epoch=1, payload=b"base")
        for _ in range(2):
            newest = await old.append(newest, epoch=1, payload=b"acknowledged")
        await old.delete_covered(newest.number)
        log_that_goes_on_within_a_listing(logs, old, newest, listings=1)
        with pytest.raises(Overtaken) as overtaken:
            await sleeper.claim(base, epoch=2, payload=b"asleep")
        assert overtaken.value.entry.payload == b"more"
        assert (await logs.writer().newest()) == overtaken.value.entry

    run(main())


def test_a_readers_claim_in_the_deleted_past_is_not_the_newest_though_two_listings_missed_what_is_above_it() -> None:
    """The entry below it is gone, which is no proof of anything: another listing has to agree."""

    async def main() -> None:
        logs = Logs()
        old, sleeper = logs.writer(), logs.writer()
        base = newest = await old.append(await old.claim(None, epoch=1, payload=b""), epoch=1, payload=b"base")
        for _ in range(2):
            newest = await old.append(newest, epoch=1, payload=b"acknowledged")
        await old.delete_covered(newest.number)
        with pytest.raises(Overtaken):
            await sleeper.claim(base, epoch=2, payload=b"asleep")
        assert logs.numbers() == [1, 3, 4]
        log_that_goes_on_within_a_listing(logs, old, newest, listings=2)
        found = await logs.writer().newest(3)
        assert found is not None
        assert (found.number, found.payload) == (6, b"more")

    run(main())


def test_a_claim_of_an_epoch_that_the_log_has_already_is_not_even_tried() -> None:
    async def main() -> None:
        logs = Logs()
        base = await logs.writer().claim(None, epoch=3, payload=b"")
        for epoch in (2, 3):
            with pytest.raises(Fenced, match=f"has epoch 3, this writer has {epoch}"):
                await logs.writer().claim(base, epoch=epoch, payload=b"")
        assert logs.numbers() == [1]

    run(main())


@pytest.mark.parametrize("is_asked_again", [False, True])
def test_a_writer_whose_number_was_taken_and_deleted_with_all_that_it_built_on_is_replaced(
    is_asked_again: bool,
) -> None:
    """Somebody deleted the rest of the log by hand: what this writer would append stands on nothing."""

    async def main() -> None:
        logs = Logs()
        log, heir = logs.writer(), logs.writer()
        base = await log.claim(None, epoch=1, payload=b"")
        await heir.claim(base, epoch=2, payload=b"heir's")
        get = logs.store.get

        async def then_all_is_gone(key: str, *, start: int = 0, length: int | None = None) -> bytes:
            data = await get(key, start=start, length=length)
            if key.endswith("2"):  # read once, as what is no entry of this writer's
                logs.store.get = get  # type: ignore[method-assign]
                for number in logs.numbers():
                    await logs.store.delete(f"meta/log/{number:020d}")
            return data

        logs.store.get = then_all_is_gone  # type: ignore[method-assign]
        with pytest.raises(Fenced, match="entry 2 was taken and is gone again"):
            await log.append(base, epoch=1, payload=b"next")
        assert logs.numbers() == []
        if is_asked_again:
            with pytest.raises(BmqError):
                await log.append(base, epoch=1, payload=b"next")

    run(main())


def test_a_log_with_more_entries_than_are_remembered_is_shortened_by_listing_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flatlog, "CANDIDATES_MAX", 4)

    async def main() -> None:
        logs = Logs()
        log = logs.writer()
        entry = await log.claim(None, epoch=1, payload=b"")
        for number in range(30):
            entry = await log.append(entry, epoch=1, payload=b"%d" % number)
            await log.delete_covered(entry.number - 7)
            numbers = logs.numbers()
            assert numbers[-8:] == list(range(max(1, entry.number - 7), entry.number + 1))
            assert numbers[:-8] in ([], [1])  # a claim stays
        assert [each.number for each in await read_all(logs.writer(), await log.read(24))] == list(range(25, 32))

    run(main())


def test_an_entry_that_cannot_be_deleted_now_holds_up_those_above_it() -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.writer()
        entry = await log.claim(None, epoch=1, payload=b"")
        for _ in range(12):
            entry = await log.append(entry, epoch=1, payload=b"")
        real = logs.store.delete

        async def fails_at_three(key: str) -> None:
            if key.endswith("3") and not key.endswith("13"):
                raise StoreUnavailable(key)
            await real(key)

        logs.store.delete = fails_at_three  # type: ignore[method-assign]
        await log.delete_covered(entry.number)
        assert logs.numbers() == [1, 3, *range(5, 14)]  # of the four at once the others may go
        logs.store.delete = real  # type: ignore[method-assign]
        await log.delete_covered(entry.number)
        assert logs.numbers() == [1, 13]

    run(main())


async def two_entries_of_which_the_second_is_replaced_after_the_next_listing(logs: Logs) -> Entry:
    """The listing shows entry 2 as the newest; before it is read, 3 is appended, 2 is deleted, and a sleeper's claim
    takes its number.

    Returns entry 1.
    """
    old, sleeper = logs.writer(), logs.writer()
    base = await old.claim(None, epoch=1, payload=b"")
    second = await old.append(base, epoch=1, payload=b"second")
    listing = logs.store.list

    async def then_they_go_on(prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        async for meta in listing(prefix, after=after):
            yield meta
        logs.store.list = listing  # type: ignore[method-assign]
        await old.append(second, epoch=1, payload=b"third")
        assert await old.delete_covered(3) == 1
        with pytest.raises(Overtaken):
            await sleeper.claim(base, epoch=2, payload=b"asleep")

    logs.store.list = then_they_go_on  # type: ignore[method-assign]
    return base


def test_a_claim_that_took_the_newest_entrys_number_since_the_listing_is_not_the_newest() -> None:
    async def main() -> None:
        logs = Logs()
        await two_entries_of_which_the_second_is_replaced_after_the_next_listing(logs)
        newest = await logs.writer().newest()
        assert newest is not None and newest.payload == b"third"

    run(main())


def test_a_claim_that_took_the_newest_entrys_number_since_the_listing_is_not_read() -> None:
    async def main() -> None:
        logs = Logs()
        base = await two_entries_of_which_the_second_is_replaced_after_the_next_listing(logs)
        seen = []
        with pytest.raises(GapFound):
            async for entry in logs.writer().read_forward(base):
                seen.append(entry)
        assert seen == []

    run(main())


def test_a_gap_and_a_wrong_predecessor_are_found() -> None:
    async def main() -> None:
        logs = Logs()
        log = logs.writer()
        written = [await log.claim(None, epoch=1, payload=b"")]
        for _ in range(5):
            written.append(await log.append(written[-1], epoch=1, payload=b""))
        key = "meta/log/" + "4".zfill(20)
        saved = logs.store.objects.pop(key)
        with pytest.raises(GapFound) as caught:
            await read_all(log)
        assert caught.value.number == 4
        foreign = Entry(
            number=4, epoch=1, nonce=Nonce(b"f" * 16), predecessor=written[2].nonce, claim=False, payload=b""
        )
        logs.store.objects[key] = encoded(foreign)
        seen = []
        with pytest.raises(GapFound) as caught:
            async for entry in log.read_forward(None):
                seen.append(entry)
        assert caught.value.number == 5
        assert seen == written[:3]
        logs.store.objects[key] = saved
        assert await read_all(log) == written
        logs.store.objects[key] = logs.store.objects["meta/log/" + "3".zfill(20)]
        with pytest.raises(Corrupt, match="entry 3 lies under the key of 4"):
            await read_all(log)

    run(main())


async def play(logs: Logs, *, seed: int, steps: int, acknowledged: list[tuple[int, bytes]], name: int) -> None:
    """A writer that claims, appends, snapshots and deletes, sleeps, and starts again under a higher epoch when it is
    fenced.
    """
    rng = SeededRng(seed * 17 + name)
    log = logs.writer()
    entry: Entry | None = None
    epoch = name
    for step in range(steps):
        payload = b"%d-%d" % (name, step)
        await asyncio.sleep(rng.random() * (3 if rng.random() < 0.1 else 0.05))
        try:
            if entry is None or entry.epoch != epoch:
                entry = await log.newest() if rng.random() < 0.8 or entry is None else entry
                await asyncio.sleep(rng.random() * (3 if rng.random() < 0.2 else 0.05))
                if entry is not None and entry.epoch >= epoch:
                    epoch = entry.epoch + 3 - (entry.epoch - name) % 3
                entry = await log.claim(entry, epoch=epoch, payload=payload)
            elif rng.random() < 0.1:
                async with asyncio.timeout(rng.random() * 0.2):
                    entry = await log.append(entry, epoch=epoch, payload=payload)
            else:
                entry = await log.append(entry, epoch=epoch, payload=payload)
            acknowledged.append((entry.number, payload))
            if rng.random() < 0.3:
                await log.delete_covered(entry.number)
        except Overtaken as error:
            entry = error.entry
        except Fenced:
            entry, epoch = None, epoch + 3
        except (UnknownOutcome, TimeoutError):
            pass


@pytest.mark.parametrize("seeds", [range(start, start + 30) for start in range(0, 120, 30)], ids=str)
def test_no_acknowledged_entry_falls_out_of_the_chain(seeds: range) -> None:
    """Three writers on a bad store, each a new epoch after it was fenced: what was acknowledged forms one chain."""

    async def main(seed: int) -> None:
        faults = Faults(delay_s=0.05, slow=0.1, lost_after=0.1, lost_before=0.05, not_applied=0.05, unavailable=0.05)
        logs = Logs(faults, seed=seed)
        ever: dict[int, list[Entry]] = {}
        remember(logs.store, lambda entry: ever.setdefault(entry.number, []).append(entry))
        acknowledged: list[tuple[int, bytes]] = []
        await asyncio.gather(
            *(play(logs, seed=seed, steps=25, acknowledged=acknowledged, name=name) for name in (1, 2, 3))
        )
        logs.store.faults = Faults()
        newest = await logs.writer().newest()
        chain: dict[int, bytes] = {}
        link: Entry | None = newest
        while link is not None:
            chain[link.number] = link.payload
            link = next((e for e in ever.get(link.number - 1, []) if e.nonce == link.predecessor), None)
        assert newest is not None
        assert sorted(chain) == list(range(1, newest.number + 1)), f"seed {seed}"
        for number, payload in acknowledged:
            assert chain[number] == payload, f"seed {seed}: entry {number} was acknowledged and is not in the chain"

    for seed in seeds:
        run(main(seed))


def remember(store: ScriptedStore, created: Callable[[Entry], None]) -> None:
    """Keeps every object that ever was, also those that were deleted."""
    deliver = store._deliver

    async def delivering(key: str, data: bytes) -> Conflict | None:
        error = await deliver(key, data)
        if error is None:
            created(decode_entry(data, what=key))
        return error

    store._deliver = delivering  # type: ignore[method-assign]


def test_the_errors_of_a_flat_log_have_the_base_of_all() -> None:
    assert issubclass(Overtaken, BmqError)
    assert issubclass(GapFound, BmqError)
