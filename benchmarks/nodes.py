"""A cluster of bmq nodes under measurement: `bmq server` processes that nobody starts again, so that a node that is
killed stays dead.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.waiting import until

from benchmarks import processes
from benchmarks.plan import Plan
from benchmarks.servers import BMQ_SETTINGS, Minio, Server, bmq_command, read_metrics
from bmq_cli.processes import one_machine
from bmq_cli.processes.nodes import NodePlan, plan_nodes, shape_of
from bmq_cli.processes.up_nodes import addresses_in
from bmq_node.configuration.values import Role
from bmq_node.process.starting import make_bucket
from bmq_node.process.supervised import SUPERVISOR_VARIABLE

START_S: Final = 60.0
UNBALANCED: Final = ("--balance-interval-ms", "0")
"""So that nothing moves but what the measure moves."""
MOVED_OFTEN: Final = ("--limits", "partition_moves_burst=1000")
"""…and that as often as it likes."""

OptionsOf = Callable[[NodePlan], Sequence[str]]


class Node:
    """One process, over all its starts."""

    def __init__(self, plan: NodePlan, folder: Path, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self.plan = plan
        self._said = folder / f"node-{plan.node_id}.out"
        self._log = folder / f"node-{plan.node_id}.log"
        self._options = tuple(options)
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: dict[str, str] = {}

    @property
    def pid(self) -> int:
        """Of the present process."""
        assert self._process is not None
        return self._process.pid

    @property
    def cpu_s(self) -> float:
        """User and system seconds used so far."""
        return processes.cpu_s(self.pid)

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        return processes.rss_bytes(self.pid)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def kafka(self) -> str:
        """HOST:PORT for clients; of proxies."""
        return self._addresses["Kafka"]

    @property
    def admin(self) -> str:
        """HOST:PORT of its admin address."""
        return self._addresses["admin"]

    def begin(self) -> None:
        """Starts it; `until_serving` waits for it."""
        self._addresses = {}
        with self._said.open("wb") as said, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*bmq_command(), *self.plan.arguments, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                cwd=self._said.parent,
                env={**os.environ, **self._environment, SUPERVISOR_VARIABLE: str(os.getpid())},
                start_new_session=True,
            )

    def until_serving(self, *, timeout_s: float = START_S) -> None:
        """Until it has said so. Raises AssertionError with the end of its log."""
        line = until(
            self._said.read_text,
            f"{self.plan.name} to serve",
            timeout_s,
            holds=lambda said: said.endswith("\n"),
            unless=lambda: not self.is_alive,
            shows=self.tail_of_log,
            every_s=0.005,
        )
        self._addresses = addresses_in(line)

    def end(self, number: signal.Signals, *, timeout_s: float = 60) -> None:
        """By this signal, and reaped; killed where it takes longer than that."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def metrics(self) -> dict[str, float]:
        """See `read_metrics`."""
        return read_metrics(self.admin)

    def tail_of_log(self, lines: int = 20) -> str:
        """What it said last."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


class Cluster(Server):
    """`bmq server` processes over a folder that they share, or over the store of a URL. Proxies are nodes 1…, brokers
    101…, controllers 201….
    """

    name = "bmq"

    def __init__(
        self,
        folder: Path,
        shape: str,
        *,
        store: str | None = None,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        options_of: OptionsOf = lambda _: (),
    ) -> None:
        """`options` are for every node, `options_of(plan)` for one."""
        super().__init__(folder)
        self.store = store or f"file://{folder / 'data'}?shared=true"
        shared = [*one_machine.flags(), *UNBALANCED, *MOVED_OFTEN, *options]
        for setting in BMQ_SETTINGS:
            shared += ["--cluster-config", setting]
        plans = plan_nodes(
            shape_of(shape), store=self.store, listen=("127.0.0.1", 0), admin=("127.0.0.1", 0), options=shared
        )
        self.nodes = {plan.node_id: Node(plan, folder, options_of(plan), environment or {}) for plan in plans}

    @property
    def address(self) -> str:
        """All proxies'."""
        return ",".join(node.kafka for node in self.of(Role.PROXY) if node.is_alive)

    @property
    def cpu_s(self) -> float:
        """Of all nodes."""
        return sum(node.cpu_s for node in self.nodes.values())

    @property
    def rss_bytes(self) -> int:
        """Of all nodes."""
        return sum(node.rss_bytes for node in self.nodes.values())

    def of(self, role: Role) -> list[Node]:
        """The nodes of a role, by their ids."""
        return [node for node in self.nodes.values() if node.plan.role is role]

    def kill(self, node_id: int) -> None:
        """Ends a node as a crash would."""
        self.nodes[node_id].end(signal.SIGKILL)

    def start_again(self, node_id: int) -> None:
        """A node that has ended; returns when it serves."""
        self.nodes[node_id].begin()
        self.nodes[node_id].until_serving()

    def stop(self) -> None:
        """At once: what it has goes with it."""
        for node in self.nodes.values():
            node.end(signal.SIGKILL)
        super().stop()

    def stop_cleanly(self) -> None:
        """Proxies, brokers, controllers; the data stays. `start_again` starts a node."""
        for node in self.nodes.values():
            node.end(signal.SIGTERM)

    def _start(self) -> None:
        make_bucket(self.store)
        for node in self.nodes.values():
            node.begin()
        for node in self.nodes.values():
            node.until_serving()


@contextmanager
def over_minio(plan: Plan, shape: str, *, options_of: OptionsOf = lambda _: ()) -> Iterator[Cluster]:
    """A cluster over a MinIO of its own; this process may use that store, too."""
    with Minio(plan.folder("minio")) as minio:
        os.environ.update(minio.environment)
        with Cluster(plan.folder("bmq"), shape, store=minio.store_url("bench"), options_of=options_of) as cluster:
            yield cluster
