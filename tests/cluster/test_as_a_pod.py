"""`bmq server` as a container runs it: the first process, one folder to write to, a user without a name, a host name of
a StatefulSet.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest
from compat_server import BMQ, Minio
from confluent_kafka.admin import AdminClient
from free_ports import free_port
from server_process import Server, server_arguments
from tests.waiting import until
from up_nodes import children_of

POD = "bmq-node-7"
DOMAIN = "bmq-nodes.test.svc"
SECRETS = {"BMQ_CLUSTER_SECRET": "a secret of the nodes", "BMQ_ADMIN_TOKEN": "a token of the admin API"}
FILE = """
roles: [controller, broker, proxy]
node_id_base: 1000
store: {store}
listen: "*:{kafka}"
advertised_listen: "{{hostname}}.{domain}:{kafka}"
internal_listen: "*:{internal}"
advertised_internal: "{{hostname}}.{domain}:{internal}"
admin: "*:{admin}"
"""
CONTAINER = """
set -e
hostname {pod}
mount --make-rprivate /
mount --bind {hosts} /etc/hosts
mount -o remount,ro,bind /
exec 3<{config}
mount -t tmpfs -o mode=1777 tmpfs /mnt
cat <&3 >/mnt/server.yaml
exec 3<&-
cd /
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --inh-caps=-all,+dac_read_search \\
    --ambient-caps=-all,+dac_read_search --bounding-set=-all,+dac_read_search "$@"
"""
"""dac_read_search: the checkout may be in a folder of another user; it lets nobody write. /mnt is the pod's /tmp, where
the checkout may be."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="needs root and util-linux, to make a container of its own",
    ),
]


class Pod:
    """One, with its ports."""

    def __init__(self, folder: Path, store: str, environment: dict[str, str]) -> None:
        self.kafka, self.internal, self.admin = free_port(), free_port(), free_port()
        hosts, config = folder / "hosts", folder / "server.yaml"
        hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {POD}.{DOMAIN} {POD}\n")
        config.write_text(
            FILE.format(store=store, domain=DOMAIN, kafka=self.kafka, internal=self.internal, admin=self.admin)
        )
        script = CONTAINER.format(pod=POD, hosts=hosts, config=config)
        prefix = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]
        self.server = Server(
            ["server", "--config", "/mnt/server.yaml"],
            log=folder / "pod.log",
            environment={**environment, **SECRETS, "HOME": "/mnt", "TMPDIR": "/mnt"},
            bmq=[*prefix, str(BMQ)],
        )

    def first_process(self) -> int:
        """Its id, seen from outside."""
        started = until(
            lambda: children_of(self.server.process.pid), "its first child", shows=self.server.text, every_s=0.005
        )
        return started[0]


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    yield server
    server.stop()


@pytest.fixture
def start(minio: Minio, tmp_path: Path) -> Iterator[Callable[[], Pod]]:
    running: list[Pod] = []

    def one() -> Pod:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        running.append(Pod(folder, minio.store_url(f"pod-{len(running)}"), minio.environment))
        return running[-1]

    yield one
    for pod in running:
        for pid in children_of(pod.server.process.pid):
            os.kill(pid, signal.SIGKILL)
        pod.server.close()


def test_a_pod_serves_without_rights_and_ends_cleanly_when_told(start: Callable[[], Pod]) -> None:
    pod = start()
    line = pod.server.until_it_serves()
    assert (
        line.startswith("bmq node 1007 (controller, broker, proxy) serves:")
        and f"{POD}.{DOMAIN}:{pod.internal} (internal)" in line
    )
    status = Path(f"/proc/{pod.first_process()}/status").read_text()
    assert (
        "\nUid:\t10001\t10001\t10001\t10001\n" in status
        and "\nNSpid:" in status
        and status.split("\nNSpid:")[1].split("\n")[0].split()[-1] == "1"
    )
    with urlopen(f"http://127.0.0.1:{pod.admin}/readyz", timeout=10) as answer:
        assert answer.status == 200
    with urlopen(f"http://[::1]:{pod.admin}/readyz", timeout=10) as answer:
        assert answer.status == 200
    brokers = AdminClient({"bootstrap.servers": f"127.0.0.1:{pod.kafka}"}).list_topics(timeout=20).brokers
    assert {(one.id, one.host, one.port) for one in brokers.values()} == {(1007, f"{POD}.{DOMAIN}", pod.kafka)}
    os.kill(pod.first_process(), signal.SIGTERM)
    assert pod.server.until_end(timeout_s=60) == 0
    assert pod.server.said() == [], "nothing but its log"
    warnings = [entry for entry in pod.server.lines() if entry.get("level") in ("warning", "error")]
    assert warnings == [], warnings


@pytest.mark.measures
def test_a_start_takes_less_than_two_seconds_of_cpu_time(tmp_path: Path) -> None:
    """Which is what it takes on a quiet machine: most of it is imports. Twice: the first one compiles what was never
    run.
    """
    (tmp_path / "data").mkdir()
    store = f"file://{tmp_path}/data?shared=true"
    took_s = []
    for attempt in range(2):
        server = Server(server_arguments("controller,broker", 1, store), log=tmp_path / f"{attempt}.log")
        try:
            server.until_it_serves()
            fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
            took_s.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
            assert server.stop() == 0
        finally:
            server.close()
    assert took_s[1] < 2, took_s


def test_a_pod_that_is_told_to_end_while_it_starts_ends(start: Callable[[], Pod]) -> None:
    """The kernel hands the first process no signal that it has not asked for."""
    pod = start()
    first = pod.first_process()
    until(
        lambda: "bmq" in Path(f"/proc/{first}/cmdline").read_bytes().decode() and _handles_sigterm(first),
        "bmq to handle SIGTERM",
        every_s=0.002,
    )
    began = monotonic()
    os.kill(first, signal.SIGTERM)
    assert pod.server.until_end(timeout_s=10) == 128 + signal.SIGTERM
    assert monotonic() - began < 2
    assert "serves" not in pod.server.text()


def _handles_sigterm(pid: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().split("\nSigCgt:\t")[1].split("\n")[0]
    return bool(int(caught, 16) & 1 << signal.SIGTERM - 1)
