"""Where `bmq up` cannot listen, nothing is begun."""

import asyncio
import errno
import re
import socket
import threading
from pathlib import Path

import pytest

from bmq_cli.kafka.connection import Connection
from bmq_cli.main import execute
from bmq_cli.terminal.exit_codes import CommandFailed
from bmq_node.process.listening import CannotListen, bound, check_free


@pytest.mark.parametrize("option", ["--listen", "--admin"])
def test_a_taken_port_is_told_before_there_is_a_folder(
    option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # of this process, which other tests have, too
    monkeypatch.setattr("bmq_cli.processes.up.configure_logging", lambda: None)
    other = "--admin" if option == "--listen" else "--listen"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert execute(["up", "--data", str(tmp_path / "data"), option, address, other, "127.0.0.1:0"]) == 1
    expected = (
        f"error: {option} {address}: address already in use: choose another address, or stop what listens there\n"
    )
    assert capfd.readouterr().err == expected
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("host", "said"), [("no.such.host.invalid", "."), ("192.0.2.1", "cannot assign requested address")]
)
def test_an_address_that_is_not_this_machines_is_told(host: str, said: str) -> None:
    with pytest.raises(
        CannotListen,
        match=rf"^--listen {re.escape(host)}:9092: .*{said}.*: name an address of this machine, or 0.0.0.0 for all "
        r"of them$",
    ):
        check_free("--listen", (host, 9092))


def test_a_port_that_this_user_may_not_have_is_told() -> None:
    async def refused() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(CannotListen) as caught:
        asyncio.run(bound("--listen", "127.0.0.1:92", refused()))
    assert (
        str(caught.value)
        == "--listen 127.0.0.1:92: permission denied: choose a port from 1024 on, or let bmq have lower ones "
        "(CAP_NET_BIND_SERVICE)"
    )


@pytest.mark.parametrize("admin", ["127.0.0.1:9092", "0.0.0.0:9092", "localhost:9092"])
def test_one_address_for_clients_and_for_admins_is_refused_before_there_is_a_folder(
    admin: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmq_cli.processes.up.configure_logging", lambda: None)
    assert execute(["up", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:9092", "--admin", admin]) == 2
    assert (
        capfd.readouterr().err
        == f"error: --listen 127.0.0.1:9092 and --admin {admin}: choose another port for one of them\n"
    )
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_free_or_any_is_fine() -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        check_free("--listen", (host, 0))


def test_who_names_the_admin_address_for_kafkas_is_told_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as http:
        http.settimeout(5)
        connection = Connection(bootstrap_server=f"127.0.0.1:{http.getsockname()[1]}", timeout_s=1.5)

        def answer() -> None:
            try:
                while True:
                    client, _ = http.accept()
                    client.recv(1000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    client.close()
            except OSError:
                pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CommandFailed, match=r"speaks HTTP, not Kafka's protocol.*not the admin address"):
            connection.admin()
    thread.join()
