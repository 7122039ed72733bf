"""A cluster of real processes over a real store, with a relay in front of each listener and between each node and the
store.

The nodes are `bmq server` processes as `bmq up --nodes` would start them, started singly. One that ends by itself is
started again, and that is written down. Everything that was started here is ended here, by its process id; it also ends
with this process.
"""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.request import urlopen

from chaos_plan import Nodes
from chaos_relay import Relay
from chaos_store import Store
from compat_server import BMQ
from free_ports import free_port

from bmq.internal.framing.frames import PREFIX_SIZE_BYTES
from bmq.internal.framing.hello import HELLO
from bmq_cli.processes import one_machine
from bmq_node.process.supervised import SUPERVISOR_VARIABLE

START_S: Final = 60.0
STOP_S: Final = 60.0
AGAIN_S: Final = 0.5
AUDIT_S: Final = 120.0
ROLES: Final = {"p": ("proxy", 1), "b": ("broker", 101), "c": ("controller", 201)}


WITHOUT_STORE: Final = ("error: store ", "error: self-test of the object store failed")


class Node:
    """One node id over the processes that it becomes."""

    def __init__(self, role: str, node_id: int, *, folder: Path, store: Store) -> None:
        self.role = role
        self.node_id = node_id
        self.log = folder / f"{role}-{node_id}.log"
        self.internal = Relay(f"to node {node_id}", free_port(), ("127.0.0.1", free_port()), who=node_of_hello)
        self.store = Relay(f"node {node_id} to the store", free_port(), ("127.0.0.1", store.port))
        self._store_url = store.url(self.store.port)
        self.kafka = (
            Relay(f"clients of node {node_id}", free_port(), ("127.0.0.1", free_port())) if role == "proxy" else None
        )
        self.admin_port = free_port()
        self.process: asyncio.subprocess.Process | None = None
        self.starts_s: list[float] = []
        """How long each start took until the node said that it serves."""
        self.starts_refused: list[str] = []
        """Starts that ended because the store was not there."""
        self.unexpected: list[str] = []
        """Each time that it ended by itself, or not as it was told to."""
        self._environment = {**os.environ, **store.environment, SUPERVISOR_VARIABLE: str(os.getpid())}
        self._wanted = False
        self._watching: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Of who starts or ends it."""

    @property
    def relays(self) -> list[Relay]:
        return [relay for relay in (self.internal, self.store, self.kafka) if relay is not None]

    def command(self) -> list[str]:
        """Its command line."""
        command = [str(BMQ), "server", "--roles", self.role, "--node-id", str(self.node_id), "--store", self._store_url]
        command += [
            "--internal-listen",
            "{}:{}".format(*self.internal.target),
            "--advertised-internal",
            f"127.0.0.1:{self.internal.port}",
        ]
        if self.kafka is not None:
            command += [
                "--listen",
                "{}:{}".format(*self.kafka.target),
                "--advertised-listen",
                f"127.0.0.1:{self.kafka.port}",
            ]
        command += ["--admin", f"127.0.0.1:{self.admin_port}", "--cluster-config", "group.initial.rebalance.delay.ms=0"]
        return [*command, *one_machine.flags()]

    async def start(self) -> None:
        """Until it says that it serves. One that ends meanwhile is started again."""
        self._wanted = True
        deadline_s = monotonic() + START_S
        while True:
            began_s = monotonic()
            with self.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self.command(),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
            self.process = process
            assert process.stdout is not None
            try:
                async with asyncio.timeout(START_S):
                    line = await process.stdout.readline()
            except TimeoutError:
                assert self.starts_s, (
                    f"node {self.node_id} does not serve within {START_S:.0f} s:\n{self.tail_of_log()}"
                )
                self.unexpected.append(
                    f"{self.role} {self.node_id} did not serve within {START_S:.0f} s: {self.last_line()}"
                )
                return
            if line:
                self.starts_s.append(monotonic() - began_s)
                self._watching = asyncio.get_running_loop().create_task(
                    self._watch(process), name=f"watch node {self.node_id}"
                )
                return
            code = await process.wait()
            last = self.last_line()
            tries = self.starts_refused if code == 1 and last.startswith(WITHOUT_STORE) else self.unexpected
            tries.append(f"{self.role} {self.node_id} ended with {code} before it served: {last}")
            assert self.starts_s and monotonic() < deadline_s, (
                f"node {self.node_id} does not start:\n{self.tail_of_log()}"
            )
            await asyncio.sleep(AGAIN_S)

    async def kill(self) -> None:
        """As a crash would end it."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> None:
        """The clean stop."""
        began_s = monotonic()
        code = await self._end(signal.SIGTERM)
        if code != 0:
            self.unexpected.append(
                f"{self.role} {self.node_id} ended with {code} {monotonic() - began_s:.1f} s after SIGTERM: "
                f"{self.last_line()}"
            )

    def send_signal(self, number: signal.Signals) -> None:
        """To the process of the moment, if there is one."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def last_line(self) -> str:
        return (self.tail_of_log(1) or "(nothing)")[:600]

    def tail_of_log(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    async def _end(self, number: signal.Signals) -> int:
        self._wanted = False
        process = self.process
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if process is None or process.returncode is not None:
            return process.returncode if process is not None and process.returncode is not None else 0
        process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_S):
                return await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            self.unexpected.append(f"{self.role} {self.node_id} did not end within {STOP_S:.0f} s of {number.name}")
            return 0

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.unexpected.append(f"{self.role} {self.node_id} ended by itself with {code}: {self.last_line()}")
        await asyncio.sleep(AGAIN_S)
        if self._wanted:
            await self.start()


class Cluster:
    """Nodes of a shape such as 2c3b2p, their relays, and the store."""

    def __init__(self, shape: str, folder: Path, *, store: str = "minio") -> None:
        self.folder = folder
        self.store = Store(store, folder / "store")
        self.nodes: dict[int, Node] = {}
        for position in range(0, len(shape), 2):
            role, first = ROLES[shape[position + 1]]
            for node_id in range(first, first + int(shape[position])):
                self.nodes[node_id] = Node(role, node_id, folder=folder, store=self.store)

    @property
    def servers(self) -> str:
        """Where clients begin."""
        return ",".join(f"127.0.0.1:{node.kafka.port}" for node in self.nodes.values() if node.kafka is not None)

    @property
    def admin(self) -> str:
        """Where a proxy's admin API listens: HOST:PORT."""
        return f"127.0.0.1:{self.of_role('proxy')[0].admin_port}"

    def of_role(self, role: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.role == role]

    def by_role(self) -> Nodes:
        brokers, proxies, controllers = (
            [node.node_id for node in self.of_role(role)] for role in ("broker", "proxy", "controller")
        )
        return Nodes(brokers=brokers, proxies=proxies, controllers=controllers)

    async def start(self) -> None:
        for node in self.nodes.values():
            for relay in node.relays:
                await relay.start()
        await asyncio.gather(*(node.start() for node in self.nodes.values()))

    async def stop(self) -> None:
        """The clean stop of all nodes, in the order of the data's way."""
        for role in ("proxy", "broker", "controller"):
            await asyncio.gather(*(node.terminate() for node in self.of_role(role)))

    async def close(self) -> None:
        """Ends what is left, at once."""
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        for node in self.nodes.values():
            for relay in node.relays:
                await relay.stop()
        self.pause_store(False)
        await asyncio.to_thread(self.store.stop)

    async def rolling_restart(self, nodes: Sequence[Node] | None = None) -> None:
        """One node after the other: SIGTERM, drained, started again."""
        for node in nodes if nodes is not None else list(self.nodes.values()):
            async with node.lock:
                await node.terminate()
                await node.start()

    async def leader(self) -> int:
        """Who leads the controllers, as far as a proxy knows; the first controller where none tells."""
        for proxy in self.of_role("proxy"):
            try:
                return int(await asyncio.to_thread(_controller_id, proxy.admin_port))
            except OSError:
                continue
        return self.of_role("controller")[0].node_id

    async def audit(self) -> list[str]:
        """What `bmq store check` finds wrong, once nothing runs on the store."""
        process = await asyncio.create_subprocess_exec(
            *(str(BMQ), "store", "check", "--store", self.store.url(self.store.port), "--no-color"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **self.store.environment},
        )
        async with asyncio.timeout(AUDIT_S):
            output, _ = await process.communicate()
        (self.folder / "audit.txt").write_bytes(output)
        return (
            []
            if process.returncode == 0
            else [f"bmq store check: {line}" for line in output.decode(errors="replace").splitlines() if line.strip()]
        )

    def pause_store(self, paused: bool) -> None:
        """Stands still, or goes on."""
        self.store.pause(paused)

    def kill_store(self) -> None:
        self.store.kill()

    async def start_store(self) -> None:
        """Over the same folder, at the same port."""
        await asyncio.to_thread(self.store.start)


def node_of_hello(first: bytes) -> int | None:
    """Who opened an internal connection, by its first frame; None while that is not whole."""
    size = int.from_bytes(first[15:19], "big")  # docs/formats/internal-protocol.md
    if len(first) < PREFIX_SIZE_BYTES + size or len(first) < PREFIX_SIZE_BYTES:
        return None
    return HELLO.decode(first[PREFIX_SIZE_BYTES : PREFIX_SIZE_BYTES + size]).node_id


def _controller_id(admin_port: int) -> int:
    with urlopen(f"http://127.0.0.1:{admin_port}/v1/cluster", timeout=2) as answer:
        return int(json.load(answer)["controller_id"])
