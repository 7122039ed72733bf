"""A store that cannot carry a cluster, cannot be reached or must not be trusted: each node says so in one line that
names the remedy.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from careless_s3 import CarelessS3
from compat_server import Minio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from server_process import Server, server_arguments
from tests.waiting import let_pass
from tls_minio import KEYS, TlsMinio, make_authority, make_certificate

from bmq_cli.processes.up_nodes import addresses_in

FAILED, MISCONFIGURED = 1, 2
HOUR_S = 3600
NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}

pytestmark = pytest.mark.slow

Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a node; ended with the test, however it ends."""
    running: list[Server] = []

    def one(roles: str, node_id: int, store: str, *more: str, environment: dict[str, str]) -> Server:
        log = tmp_path / f"{len(running)}-{roles}-{node_id}.log"
        running.append(Server(server_arguments(roles, node_id, store, *more), log=log, environment=environment))
        return running[-1]

    yield one
    for server in running:
        server.close()


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    yield server
    server.stop()


def check_refused(server: Server, *, code: int, says: tuple[str, ...]) -> None:
    """It ends by itself, with one line."""
    assert server.until_end() == code, server.text()
    said = server.said()
    assert len(said) == 1, said
    print(said[0])
    assert said[0].startswith("error: ")
    missing = [part for part in says if part not in said[0]]
    assert not missing, (missing, said[0])
    assert "secret" not in said[0]


@pytest.mark.parametrize(
    ("looks_first", "says"),
    [(False, "lacks conditional writes (If-None-Match)"), (True, "conditional writes are atomic")],
)
def test_a_bucket_that_takes_a_second_create_is_refused(start: Start, looks_first: bool, says: str) -> None:
    careless = CarelessS3(looks_first=looks_first)
    try:
        for roles, node_id in (("controller", 201), ("broker", 101), ("proxy", 1)):
            check_refused(
                start(roles, node_id, careless.store_url(), environment=KEYS), code=FAILED, says=(says, "use")
            )
        assert not any(key.startswith("cluster/meta/") for key in careless.objects), "nothing was written to it"
    finally:
        careless.stop()


def test_no_keys_and_wrong_keys_are_named(start: Start, minio: Minio) -> None:
    url = minio.store_url("refused")
    check_refused(
        start("controller", 201, url, environment=NO_KEYS),
        code=MISCONFIGURED,
        says=("no keys", "set AWS_ACCESS_KEY_ID"),
    )
    wrong = (
        {**minio.environment, "AWS_ACCESS_KEY_ID": "nobody"},
        {**minio.environment, "AWS_SECRET_ACCESS_KEY": "not-this-one"},
    )
    for environment in wrong:
        says = ("the server refuses the keys", "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
        check_refused(start("controller", 201, url, environment=environment), code=FAILED, says=says)


CERTIFICATES = {
    "expired": ({"days": -1}, True, ("has expired", "renew it")),
    "untrusted": ({}, False, ("is not trusted", "?ca_file=")),
    "of another name": ({"address": "127.0.0.9"}, True, ("is not for this address", "as its certificate does")),
}


@pytest.mark.parametrize(("made", "trusted", "says"), CERTIFICATES.values(), ids=CERTIFICATES.keys())
def test_a_certificate_that_cannot_be_trusted_is_named(
    start: Start, tmp_path: Path, made: dict[str, int | str], trusted: bool, says: tuple[str, ...]
) -> None:
    authority = make_authority(tmp_path / "ca")
    server = TlsMinio(tmp_path / "minio", make_certificate(authority, tmp_path / "certs", **made))  # type: ignore[arg-type]
    try:
        url = server.store_url(ca_file=authority if trusted else None)
        check_refused(
            start("controller", 201, url, environment=KEYS),
            code=FAILED,
            says=(f"https://127.0.0.1:{server.port}", *says),
        )
    finally:
        server.stop()


def test_a_certificate_that_expires_under_a_running_node_is_named_and_renewed(start: Start, tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "ca")
    good, expired = (
        make_certificate(authority, tmp_path / "good"),
        make_certificate(authority, tmp_path / "expired", days=-1),
    )
    minio = TlsMinio(tmp_path / "minio", good)
    try:
        node = start("controller,broker,proxy", 1, minio.store_url(ca_file=authority), environment=KEYS)
        servers = node.until_it_serves().partition(" serves: ")[2].split()[0]
        produce_one(servers, create=True)
        minio.stop()
        minio.start(expired)
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("kept", b"in between")
        producer.poll(0)
        line = node.until_line("has expired")
        print(line["error"])
        assert "renew it" in line["error"]
        minio.stop()
        minio.start(good)
        assert producer.flush(60) == 0
        assert node.stop() == 0, node.text()
    finally:
        minio.stop()


def produce_one(servers: str, *, create: bool = False, partitions: int = 1) -> None:
    """Raises what the delivery report says."""
    if create:
        admin = AdminClient({"bootstrap.servers": servers})  # kept: it ends with its last reference
        for future in admin.create_topics([NewTopic("kept", num_partitions=partitions)]).values():
            future.result(60)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("kept", b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def shifted(faketime: str, at: Path) -> dict[str, str]:
    """The variables of a process whose wall clock is as far ahead as the file says; its timers run as ever."""
    return {
        "LD_PRELOAD": faketime,
        "FAKETIME_TIMESTAMP_FILE": str(at),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def test_a_node_whose_clock_is_an_hour_ahead_is_refused_by_the_bucket_and_says_why(
    start: Start, minio: Minio, faketime: str, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text(f"+{HOUR_S}s")
    for roles, node_id in (("controller", 201), ("broker", 101)):
        environment = {**minio.environment, **shifted(faketime, clock)}
        check_refused(
            start(roles, node_id, minio.store_url("shifted"), environment=environment),
            code=FAILED,
            says=("clock", "NTP"),
        )


def test_over_a_folder_a_broker_whose_clock_is_an_hour_ahead_serves_gets_no_more_partitions_and_says_why(
    start: Start, faketime: str, tmp_path: Path
) -> None:
    """A folder takes any clock: what it must not do is decide by it."""
    clock = tmp_path / "clock"
    clock.write_text(f"+{HOUR_S}s")
    (tmp_path / "data").mkdir()
    store = f"file://{tmp_path}/data?shared=true"
    for roles, node_id in (("controller", 201), ("proxy", 1), ("broker", 101)):
        addresses = addresses_in(
            start(roles, node_id, store, "--admin", "127.0.0.1:0", environment={}).until_it_serves()
        )
        if roles == "proxy":
            servers, admin = addresses["Kafka"], addresses["admin"]
    ahead = start("broker", 102, store, environment=shifted(faketime, clock))
    ahead.until_it_serves()
    said = ahead.until_line("clock differs from the store's", timeout_s=10)
    print(said["event"], said["skew_ms"])
    assert abs(abs(said["skew_ms"]) - HOUR_S * 1000) < 60_000
    assert "set this machine's clock (NTP)" in said["event"]
    let_pass(3, "a third of the lease, after which the controller knows")
    produce_one(servers, create=True, partitions=8)
    with urlopen(f"http://{admin}/v1/nodes", timeout=30) as answer:
        owned = {
            node["node_id"]: node["partitions"] for node in json.load(answer)["items"] if "broker" in node["roles"]
        }
    assert owned == {101: 8, 102: 0}
    assert ahead.is_alive()
    clock.write_text("+0s")
    assert ahead.stop() == 0, ahead.text()


def test_a_clock_that_jumps_an_hour_under_a_running_node_is_named_and_all_goes_on_when_it_is_right_again(
    start: Start, minio: Minio, faketime: str, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0s")
    environment = {**minio.environment, **shifted(faketime, clock)}
    node = start("controller,broker,proxy", 1, minio.store_url("jumping"), environment=environment)
    servers = node.until_it_serves().partition(" serves: ")[2].split()[0]
    produce_one(servers, create=True)
    clock.write_text(f"+{HOUR_S}s")
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("kept", b"in between")
    producer.poll(0)
    line = node.until_line("set this machine's clock (NTP)")
    print(line["error"])
    let_pass(1, "it stays")
    assert node.is_alive()
    clock.write_text("+0s")
    assert producer.flush(60) == 0
    assert node.stop() == 0, node.text()
