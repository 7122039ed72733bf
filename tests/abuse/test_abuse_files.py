"""Connections that use up the files that a process may open: the store needs some, too."""

import contextlib
import socket
from pathlib import Path
from typing import Final

from started_bmq import started_bmq
from tests.bare_client import BareClient

from bmq.wire.records import Record, build_batch

FILES: Final = 600
STRANGERS: Final = 700


def test_connections_of_strangers_leave_the_store_files_to_open(tmp_path: Path) -> None:
    """With fewer files than connections_max every file was a stranger's, and nothing more was written or answered; two
    of them left no connection to others.
    """
    few = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh")
    with started_bmq(tmp_path, beneath=few) as started, contextlib.ExitStack() as open_ones:
        address = started.kafka.rpartition(":")[0], int(started.kafka.rpartition(":")[2])
        client = open_ones.enter_context(BareClient(address, own_host="127.0.0.2"))
        topic = {"name": "orders", "num_partitions": 4, "replication_factor": 1, "assignments": [], "configs": []}
        assert (
            client.ask(19, 5, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}).topics[0].error_code
            == 0
        )
        admin = started.admin.removeprefix("http://").rpartition(":")
        for to in (address, (admin[0], int(admin[2]))):
            for number in range(2 * STRANGERS):
                own = f"127.0.0.{8 + number % 2}", 0
                with contextlib.suppress(ConnectionError):
                    open_ones.enter_context(socket.create_connection(to, timeout=10, source_address=own))
        batch = build_batch([Record(0, 1_000, None, b"value")])
        data = [{"name": "orders", "partition_data": [{"index": n, "records": batch} for n in range(4)]}]
        made = client.ask(0, 9, {"acks": -1, "timeout_ms": 1_000, "topic_data": data})
        assert [one.error_code for one in made.responses[0].partition_responses] == [0] * 4
        with BareClient(address, own_host="127.0.0.3") as other:
            assert other.ask(18, 0, {}).error_code == 0, "another address is let in"
    assert "ulimit -n" in (tmp_path / "server.log").read_text()
