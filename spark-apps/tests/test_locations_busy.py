"""What becomes of requests that a bucket turns away, or does not answer."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compat_server import free_port
from gateway_without_conditions import BusyGateway
from hurried import TRIES, Moved, hurried

from bmq.errors import NotApplied, StoreError, StoreUnavailable, StoreUnusable, UnknownOutcome
from bmq_spark.locations import Location
from bmq_spark.table.clocks import why_not_by_age
from bmq_spark.table.proof import prove

INNER = 3
"""So often obstore itself sends what is not answered, or with 5xx."""


@pytest.fixture
def gateway() -> Iterator[BusyGateway]:
    server = BusyGateway()
    yield server
    server.stop()


@pytest.fixture
def location(gateway: BusyGateway) -> Location:
    return located(gateway.server_port)


def located(port: int) -> Location:
    return replace(Location.parse(f"s3a://b/table?endpoint=http://127.0.0.1:{port}"), patience=hurried())


VERBS: dict[str, Callable[[Location, Path], object]] = {
    "read": lambda location, _: location.read("log/1"),
    "list": lambda location, _: [found.key for found in location.list("log")],
    "create": lambda location, _: location.create("log/2", b"two"),
    "upload": lambda location, file: location.upload("a.parquet", file),
    "delete": lambda location, _: location.delete("log/1"),
}
DONE = {"read": b"one", "list": ["log/1"], "create": True, "upload": None, "delete": None}


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_busy_bucket_turns_away_for_a_while_is_done(
    gateway: BusyGateway, location: Location, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    location.create("log/1", b"one")
    gateway.times = INNER * (TRIES - 1)
    assert VERBS[verb](location, tmp_path / "file") == DONE[verb]
    assert gateway.times == 0
    done = {"create": {"log/2": b"two"}, "upload": {"a.parquet": b"rows"}}.get(verb, {})
    kept = {} if verb == "delete" else {"log/1": b"one"}
    assert gateway.objects == {f"b/table/{key}": content for key, content in (kept | done).items()}


@pytest.mark.parametrize("verb", VERBS)
def test_a_bucket_that_stays_busy_is_named_with_the_time_that_it_was_asked(
    gateway: BusyGateway, location: Location, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    gateway.times = 1000
    with pytest.raises(
        NotApplied if verb == "create" else StoreUnavailable, match=rf"{verb} .*, for 30 s: HTTP 503 SlowDown"
    ):
        VERBS[verb](location, tmp_path / "file")
    assert gateway.times == 1000 - INNER * TRIES and gateway.objects == {}


@pytest.mark.parametrize("verb", VERBS)
def test_a_bucket_that_is_not_reached_is_waited_for(tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    clock = Moved()
    location = replace(located(free_port()), patience=hurried(clock))
    with pytest.raises(StoreError, match=r"for 30 s: no connection"):
        VERBS[verb](location, tmp_path / "file")
    assert clock.now_s >= Moved().now_s + 28


@pytest.mark.parametrize("is_late", [False, True])
def test_a_create_of_unknown_outcome_is_looked_for_and_not_sent_again(
    gateway: BusyGateway, location: Location, *, is_late: bool
) -> None:
    gateway.times, gateway.cuts, gateway.is_late = INNER, True, is_late
    gateway.chosen = lambda method, _: method == "PUT"
    if is_late:
        assert location.create("log/1", b"mine") and gateway.objects == {"b/table/log/1": b"mine"}
        return
    with pytest.raises(UnknownOutcome, match=r"create table/log/1 at s3:[^,]*: "):
        location.create("log/1", b"mine")
    assert gateway.objects == {}


def test_a_create_that_was_turned_away_and_done_nevertheless_is_its_maker_s(
    gateway: BusyGateway, location: Location
) -> None:
    gateway.times, gateway.is_late = INNER, True
    assert location.create("log/1", b"mine")
    assert not location.create("log/1", b"theirs") and gateway.objects == {"b/table/log/1": b"mine"}


def test_a_listing_goes_on_where_a_page_was_turned_away(gateway: BusyGateway, location: Location) -> None:
    keys = [f"log/{number:03}" for number in range(250)]
    for key in keys:
        location.create(key, b"")
    gateway.page_count, gateway.times = 60, 2 * INNER
    gateway.chosen = lambda _, path: "continuation-token" in path
    assert [found.key for found in location.list("log")] == keys
    assert gateway.times == 0


def test_a_proof_and_a_comparison_of_clocks_wait_for_a_busy_bucket(gateway: BusyGateway, location: Location) -> None:
    gateway.times = 50
    prove(location)
    assert gateway.times == 0
    gateway.times = 10
    assert "this machine's clock" in (why_not_by_age(location) or "")
    assert gateway.times == 0 and gateway.objects == {}
    gateway.times = 10_000
    with pytest.raises(StoreUnusable, match=r"self-test of the object store failed: .*SlowDown"):
        prove(location)


def test_what_does_not_pass_is_told_at_once(gateway: BusyGateway, location: Location) -> None:
    clock = Moved()
    location = replace(located(gateway.server_port).child("eu"), patience=hurried(clock))
    with pytest.raises(StoreError, match="log/1"):
        location.read("log/1")
    assert clock == Moved()
