"""Which steps of protocols each node is in right now, and who waits for a node to enter one."""

import contextvars
import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from bmq.metadata.image import Image
from bmq.storage.flatlog import decode_entry
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.cluster.evidence import Evidence
from bmq_sim.cluster.settings import is_internal
from bmq_sim.cluster.steps import Step, calls_in, step_of_request
from bmq_sim.process import ProcessState
from bmq_sim.store import Fault, Request
from bmq_sim.transport import SimTransport
from bmq_sim.world import World

Entered = Callable[[str, Step], None]
_LOG: Final = re.compile(r"(topics/[0-9a-f-]{36}/\d{10}/manifest/)")


class Activity:
    """Watches the store and the network of a world."""

    def __init__(self, world: World, cluster: SimCluster, evidence: Evidence) -> None:
        self._world = world
        self._cluster = cluster
        self._evidence = evidence
        self._requests: dict[int, tuple[Request, tuple[Step, ...]]] = {}
        self._calls: dict[tuple[int, int], tuple[Step, str, str]] = {}
        """By the client's transport and correlation id: the step, and the hosts of both ends."""
        self._epochs: dict[str, int] = {}
        """The newest epoch of each manifest log."""
        self._aims: dict[Step, deque[Entered]] = {}
        self.faults: Counter[tuple[Fault, Step]] = Counter()
        """Requests that the store failed or delayed: by kind of fault and step."""
        world.store.watcher = self
        world.network.watcher = _Wire(self)

    def steps_of(self, host: str) -> set[Step]:
        """What the node of this host is doing."""
        steps = {
            step
            for request, found in self._requests.values()
            if request.node == host and _is_alive(request)
            for step in found
        }
        steps |= {step for step, one, other in self._calls.values() if host in (one, other)}
        node = self._cluster.by_host(host)
        if node is not None:
            steps |= _closing(self._cluster.image(), node.spec.node_id)
            if node.current is not None and node.current.alive and node.current.stopping:
                steps.add(Step.DRAIN)
        return steps

    def when(self, step: Step, entered: Entered) -> None:
        """Calls `entered(host, step)` once, soon after a node enters the step: while it is in it."""
        self._aims.setdefault(step, deque()).append(entered)

    def give_up(self, step: Step) -> None:
        """Nobody waits for the step any more."""
        self._aims.pop(step, None)

    def began(self, request: Request) -> None:
        """The node enters the steps that the request is part of; the evidence hears of every create of a node."""
        node = self._cluster.by_host(request.node)
        if node is None:
            return
        steps = tuple(step_of_request(request, node_id=node.spec.node_id, is_claimed=self._is_claimed))
        if request.verb == "create":
            self._sent(request)
        if steps:
            self._requests[id(request)] = (request, steps)
            for step in steps:
                self._enter(request.node, step)

    def ended(self, request: Request) -> None:
        """The node is in the request's steps no more; a fault that the request met is counted with each of them."""
        _, steps = self._requests.pop(id(request), (request, ()))
        if request.fault is not None:
            for step in steps:
                self.faults[request.fault, step] += 1

    def _is_claimed(self, log: str, epoch: int) -> bool:
        return self._epochs.get(log, -1) >= epoch

    def _sent(self, request: Request) -> None:
        self._evidence.watch(request)
        if found := _LOG.match(request.key):
            epoch = decode_entry(request.data, what=request.key).epoch
            self._epochs[found[1]] = max(epoch, self._epochs.get(found[1], -1))

    def call_began(self, transport: SimTransport, correlation_id: int, step: Step) -> None:
        """A node called another one."""
        one, other = transport.local[0], transport.remote[0]
        self._calls[transport.number, correlation_id] = (step, one, other)
        self._enter(one, step)
        self._enter(other, step)

    def call_ended(self, transport_number: int, correlation_id: int) -> None:
        """It was answered, or given up."""
        self._calls.pop((transport_number, correlation_id), None)

    def connection_ended(self, transport_number: int) -> None:
        """Nothing on it is answered any more."""
        for key in [key for key in self._calls if key[0] == transport_number]:
            del self._calls[key]

    def _enter(self, host: str, step: Step) -> None:
        waiting = self._aims.get(step)
        if waiting and self._cluster.by_host(host) is not None:
            entered = waiting.popleft()
            self._world.loop.call_soon(entered, host, step, context=contextvars.Context())

    def look(self) -> None:
        """Steps that no request begins: partitions that are being closed."""
        if self._aims.get(Step.CLOSE):
            for node in self._cluster.nodes.values():
                if node.serving and _closing(self._cluster.image(), node.spec.node_id):
                    self._enter(node.host, Step.CLOSE)
                    return
        if self._aims.get(Step.DRAIN):
            for node in self._cluster.nodes.values():
                if node.current is not None and node.current.runs and node.current.stopping:
                    self._enter(node.host, Step.DRAIN)
                    return


class _Wire:
    """Watches the network, and tells the activity which internal calls begin and end."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def wrote(self, transport: SimTransport, data: bytes) -> None:
        """Calls begin at the client's end and are answered at the server's."""
        if is_internal(transport.remote[1]):
            for call in calls_in(data):
                if not call.begins:
                    self._activity.call_ended(transport.number, call.correlation_id)
                elif call.step is not None:
                    self._activity.call_began(transport, call.correlation_id, call.step)
        elif is_internal(transport.local[1]) and transport.peer is not None:
            for call in calls_in(data):
                self._activity.call_ended(transport.peer.number, call.correlation_id)

    def ended(self, transport: SimTransport) -> None:
        """Either end."""
        self._activity.connection_ended(transport.number)
        if transport.peer is not None:
            self._activity.connection_ended(transport.peer.number)


def _is_alive(request: Request) -> bool:
    return request.process is None or request.process.state is not ProcessState.DEAD


def _closing(image: Image, node_id: int) -> set[Step]:
    owners = (image.partition(tp) for tp in image.moving)
    return {Step.CLOSE} if any(meta is not None and meta.node_id == node_id for meta in owners) else set()
