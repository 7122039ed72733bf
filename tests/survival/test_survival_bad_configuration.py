"""What `bmq up` cannot do it says in one line (key, value, remedy), with exit code 2, or 1 for what only the running
process can find out.
"""

import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from survival_forks import Forks
from survival_process import Survivor, exit_of_up
from survival_wire import create_topic
from tests.bare_client import BareClient

WITHIN_S = 10
MISCONFIGURED, FAILED = 2, 1
ANY_PORTS = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """Arguments, and what the one line has to hold."""

    arguments: tuple[str, ...]
    says: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    code: int = MISCONFIGURED


CASES = {
    "listen without a port": Wrong(arguments=("--listen", "localhost"), says=("--listen", "localhost", "HOST:PORT")),
    "listen with a name for a port": Wrong(
        arguments=("--listen", "localhost:kafka"), says=("--listen", "localhost:kafka", "HOST:PORT")
    ),
    "listen beyond the last port": Wrong(
        arguments=("--listen", "127.0.0.1:65536"), says=("--listen", "65536", "HOST:PORT")
    ),
    "admin without a host": Wrong(arguments=("--admin", ":9080"), says=("--admin", ":9080", "HOST:PORT")),
    "a folder and a store": Wrong(
        arguments=("--data", "here", "--store", "memory://"), says=("--data", "--store", "one of them")
    ),
    "a store of no known kind": Wrong(arguments=("--store", "ftp://host/bucket"), says=("ftp", "s3")),
    "a store without a bucket": Wrong(arguments=("--store", "s3://"), says=("bucket", "s3://BUCKET")),
    "a store with keys in its URL": Wrong(
        arguments=("--store", "s3://me:secret@bucket?region=x"), says=("credentials", "environment")
    ),
    "a store option that does not exist": Wrong(
        arguments=("--store", "s3://bucket?regoin=x"), says=("regoin", "region")
    ),
    "a store of AWS without a region": Wrong(arguments=("--store", "s3://bucket"), says=("region", "AWS_REGION")),
    "an endpoint without keys": Wrong(
        arguments=("--store", "s3://bucket?endpoint=http://127.0.0.1:1"), says=("keys", "AWS_ACCESS_KEY_ID")
    ),
    "an endpoint where nothing listens": Wrong(
        arguments=("--store", "s3://bucket?endpoint=http://127.0.0.1:1"),
        says=("127.0.0.1:1", "not reached", "check"),
        environment=(("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")),
        code=FAILED,  # it may come
    ),
    "a setting that does not exist": Wrong(
        arguments=("--config", "num.partition=3"), says=("num.partition", "num.partitions")
    ),
    "a setting without a value": Wrong(arguments=("--config", "num.partitions"), says=("num.partitions", "KEY=VALUE")),
    "a setting that is no number": Wrong(
        arguments=("--config", "num.partitions=many"), says=("num.partitions", "many")
    ),
    "a setting out of its range": Wrong(arguments=("--config", "num.partitions=0"), says=("num.partitions", "0", "1")),
    "a linger out of its range": Wrong(arguments=("--linger-ms", "60000"), says=("--linger-ms", "60000", "10000")),
    "a log format that does not exist": Wrong(
        arguments=(), says=("BMQ_LOG_FORMAT", "xml", "json"), environment=(("BMQ_LOG_FORMAT", "xml"),)
    ),
    "a log level that does not exist": Wrong(
        arguments=(), says=("BMQ_LOG_LEVEL", "loud", "info"), environment=(("BMQ_LOG_LEVEL", "loud"),)
    ),
}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    running = Forks()
    yield running
    running.close()


def check(done: tuple[int, list[str], float], *, code: int, says: tuple[str, ...]) -> None:
    """Structured log lines of what went well before may come first."""
    found, lines, seconds = done
    said = [line for line in lines if not line.startswith("{")]
    print(*said, sep="\n")
    assert found == code, lines
    assert len(said) == 1, lines
    assert said[0].startswith("error: "), said
    missing = [part for part in says if part not in said[0]]
    assert not missing, (missing, said[0])
    assert "secret" not in said[0]
    assert seconds < WITHIN_S


@pytest.mark.parametrize("wrong", CASES.values(), ids=CASES.keys())
def test_a_wrong_option_is_named_with_its_value_and_a_remedy(wrong: Wrong, forks: Forks, tmp_path: Path) -> None:
    clean = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"), "")
    done = forks.up(*wrong.arguments, cwd=tmp_path, environment={**clean, **dict(wrong.environment)})
    check(done, code=wrong.code, says=wrong.says)
    assert not list(tmp_path.iterdir()), "nothing is made by a start that is refused"


@pytest.mark.measures
def test_an_unknown_option_has_exit_code_2_and_ends_soon(tmp_path: Path) -> None:
    code, lines, seconds = exit_of_up("--dta", "x", cwd=tmp_path)
    assert code == MISCONFIGURED
    assert seconds < WITHIN_S
    assert any("--dta" in line for line in lines)
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize("option", ["--listen", "--admin"])
def test_a_port_in_use_is_named(option: str, forks: Forks, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        addresses = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"} | {option: taken}
        done = forks.up("--data", "data", *(part for pair in addresses.items() for part in pair), cwd=tmp_path)
    check(done, code=FAILED, says=(option, taken, "in use"))


def test_an_address_that_is_not_this_machines_is_named(forks: Forks, tmp_path: Path) -> None:
    done = forks.up("--data", "data", "--listen", "192.0.2.1:9092", "--admin", "127.0.0.1:0", cwd=tmp_path)
    check(done, code=FAILED, says=("--listen", "192.0.2.1:9092"))


def test_a_data_folder_that_is_a_file_is_named(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    check(
        forks.up("--data", "data", *ANY_PORTS, cwd=tmp_path),
        code=MISCONFIGURED,
        says=(str(tmp_path / "data"), "is a file", "choose"),
    )


def test_a_data_folder_that_cannot_be_made_is_named(forks: Forks, tmp_path: Path) -> None:
    done = forks.up("--data", "/proc/bmq", *ANY_PORTS, cwd=tmp_path)
    check(done, code=MISCONFIGURED, says=("/proc/bmq", "choose"))


def test_a_data_folder_that_cannot_be_written_is_named(forks: Forks, tmp_path: Path) -> None:
    done = forks.up("--data", "/sys/kernel", *ANY_PORTS, cwd=tmp_path)
    check(done, code=MISCONFIGURED, says=("/sys/kernel",))


@pytest.fixture
def stored(started: Callable[..., Survivor], tmp_path: Path) -> Path:
    """The metadata log of a bmq that has stopped."""
    bmq = started("--data", str(tmp_path / "data"))
    bmq.start()
    with BareClient(bmq.servers) as peer:
        create_topic(peer, "kept", partitions=3)
    assert bmq.stop() == 0
    return tmp_path / "data" / "meta" / "log"


def change(path: Path, changed: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    changed(data)
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    path.write_bytes(data)


def test_a_damaged_metadata_entry_is_named(stored: Path, forks: Forks, tmp_path: Path) -> None:
    newest = max(stored.iterdir())

    def damage(data: bytearray) -> None:
        data[-3] ^= 0x10

    change(newest, damage)
    check(
        forks.up("--data", "data", *ANY_PORTS, cwd=tmp_path), code=FAILED, says=(f"meta/log/{newest.name}", "restore")
    )


def test_a_format_version_that_is_too_new_is_named(stored: Path, forks: Forks, tmp_path: Path) -> None:
    newest = max(stored.iterdir())

    def renew(data: bytearray) -> None:
        data[4:6] = (999).to_bytes(2, "big")  # after the magic (docs/formats)

    change(newest, renew)
    check(
        forks.up("--data", "data", *ANY_PORTS, cwd=tmp_path),
        code=FAILED,
        says=("999", f"meta/log/{newest.name}", "upgrade"),
    )
