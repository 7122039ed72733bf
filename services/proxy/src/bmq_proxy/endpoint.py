"""What all connections of a proxy share: memory, limits, counters, and the table of APIs. The other side of
connection.Service.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog
from prometheus_client import Counter as Counted
from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.fairness.fair_shares import FairShares
from bmq.fairness.greedy_window import Modest
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.turns import Rotation
from bmq.naming.lanes import BASE, lane_of_client
from bmq.ports import Tracer
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.limits import RECEIVE_BUFFER_BYTES
from bmq.wire.produce_forms import Forms
from bmq_proxy import metrics
from bmq_proxy.api import Route
from bmq_proxy.arriving import ArrivingMemory
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.connection import Connection
from bmq_proxy.fair_memory import FairMemory
from bmq_proxy.intake import Intake
from bmq_proxy.lanes.tables import LaneTables
from bmq_proxy.open_connections import OpenConnections
from bmq_proxy.refused import RefusedBatches
from bmq_proxy.settings import ProxySettings
from bmq_proxy.under_way import UnderWay

ARRIVING_SHARE = 2
"""Requests that are still arriving may hold as much as whole ones, divided by this, beside it."""
CONNECTION_SHARE = 2
"""What one connection may have under way of Produce requests beside others: the memory of all requests, divided by
this."""
WINDOW_SHARE = 2
"""All who are greedy may have the memory of all requests divided by this beside the modest: what those send has to be
read, and how long it waits to be is seen by nobody."""
OTHERS_COST: Final = 4
"""As so many requests counts one that neither writes nor reads records: each is answered at once, or asks others."""
_LIGHT: Final = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))
RELIEF_INTERVAL_S = 0.5
UNTAKEN_S_MAX = 3.0
"""While others want more memory for answers than there is, it is looked so often how much of its answer a peer has
taken…"""
TAKEN_BYTES_PER_S_MIN = 64 << 10
"""…and it has to be as much as this: a little at a time would keep the others out as well as nothing."""
LINGER_S = 1.0
"""How long a peer that was told to go may take to close; closed from this side, what it has sent meanwhile would take
its last answers from it."""
LOOK_S = 0.01
CLIENT_ID_CHARS = 256
"""By so much of its client.id a sender is told apart, as long as its connection lasts: of ten thousand connections the
whole would be 300 MiB."""
WAITS_LONG = frozenset((ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""Whose answers wait for records, or for other members: how long they take says nothing."""
TRACED = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))
FORMS_MAX = 4_096
"""So many forms of Produce requests are kept, a KiB each."""
FAILURES = frozenset(("unknown_server_error", "kafka_storage_error", "request_timed_out"))
"""Errors that are not the client's, and do not belong to a take-over."""
COMPLAIN_EVERY_S = 10.0
PRODUCE_TURN_PARTITIONS = 500
"""A turn of the loop begins as many Produce requests as name so many partitions together, some tens of ms; the others
wait for the next, each address for its turn."""

_log = structlog.get_logger("bmq.proxy")


class Endpoint:
    """Dispatches requests to their APIs and keeps count."""

    def __init__(
        self,
        settings: ProxySettings,
        routes: Mapping[int, Route],
        request_memory: FairMemory,
        fetch_memory: MemoryBudget,
        modest: Modest,
        *,
        lanes: LaneTables,
        answers: FairMemory,
        refused: RefusedBatches,
        tracer: Tracer | None = None,
    ) -> None:
        """`routes` are the base's. `modest`: who is to be protected from those who write much, is counted here.
        `answers`: those without records.
        """
        limits = settings.limits
        self.requests_in_flight_max = settings.requests_in_flight_max
        self.alike_requests_max = limits.alike_requests_max
        self.forms = Forms(FORMS_MAX)
        self.request_memory = request_memory
        self.arriving = ArrivingMemory(
            max(1, request_memory.limit_bytes // ARRIVING_SHARE),
            whole_within_s=limits.half_sent_within_ms / 1000,
        )
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self.shares = FairShares(
            sender_bytes_max=max(1, request_memory.limit_bytes // CONNECTION_SHARE),
            window_bytes_max=max(1, request_memory.limit_bytes // WINDOW_SHARE),
            call_at=self._loop.call_at,
            modest=modest,
        )
        self._partitions_left = PRODUCE_TURN_PARTITIONS
        self._turn_requests = limits.turn_requests
        self._inline_bytes_max = limits.request_inline_bytes_max
        self._on_loop = frozenset(key for key, route in routes.items() if route.on_loop)
        """Requests of these are never decoded beside the loop."""
        self._byte_cost = limits.turn_requests / limits.turn_bytes
        """What a byte that is decoded costs, in requests."""
        self._requests_left: float = self._turn_requests
        """What may still begin before the loop comes round: of all connections, or of the one whose turn it is."""
        self._is_turn_due = False
        self._next_turn: Rotation[Connection] = Rotation()
        """Whose requests wait for it."""
        self._in_next_turn: set[Connection] = set()
        self._producing: UnderWay[Connection] = UnderWay(limits.produce_requests_max)
        self.connections = OpenConnections()
        self.in_flight = 0
        self._tracer = tracer
        self._opened = 0
        self._slow_s = settings.slow_request_ms / 1000 if settings.slow_request_ms else float("inf")
        self._settings = settings
        self._routes = routes
        self._lanes = lanes
        self._bytes_in = metrics.BYTES_IN.labels(BASE)
        self._bytes_out = metrics.BYTES_OUT.labels(BASE)
        self._fetch_memory = fetch_memory
        self._answers = answers
        self._refused = refused
        self._fetch_refusals = 0
        self._unsent: dict[Connection, tuple[int, float]] = {}
        """While consumers want more memory than there is: what each peer has yet to take of its answer, and since when
        it is so much."""
        self._relieved_at = self._loop.time()
        self.scratch = bytearray(RECEIVE_BUFFER_BYTES)
        self._counted: dict[tuple[int, str], Counted] = {}
        self._sums: dict[Counted, int] = {}
        """What was counted in this turn of the loop."""
        self._stopping = False
        self._held: dict[Connection, None] | None = None
        """Whose requests wait until this proxy knows what the cluster knows; None: it does."""
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._show()

    def _show(self) -> None:
        """Gauges of what is held at the time of asking."""
        metrics.REQUEST_MEMORY.set_function(lambda: self.request_memory.held_bytes)
        metrics.PRODUCE_WINDOW.set_function(lambda: self.shares.window.size_bytes)
        metrics.GREEDY_BYTES.set_function(lambda: self.shares.window.held_bytes)
        metrics.IN_FLIGHT.set_function(lambda: self.in_flight)
        metrics.CONNECTIONS.set_function(lambda: len(self.connections))

    def opened(self, connection: Connection) -> bool:
        """Registers a connection; where there are too many, another one is closed for it, or it is refused: False."""
        if self._stopping:
            return False
        per_address = self._settings.limits.connections_per_address
        if self.connections.count_of(connection.peer) >= per_address:
            self._refuse(connection, f"its address has connections_per_address = {per_address} connections already")
            return False
        if len(self.connections) >= self._settings.connections_max:
            other = self.connections.gives_way_to(connection.peer)
            self._refuse(
                other or connection,
                f"more than connections_max = {self._settings.connections_max} connections, and no address has more",
            )
            if other is None:
                return False
            self.connections.discard(other)
            other.abort()
        self.connections.add(connection)
        self._opened += 1
        connection.number = self._opened
        return True

    def _refuse(self, connection: Connection, reason: str) -> None:
        metrics.CONNECTIONS_REFUSED.inc()
        self._complain(connection.peer, reason)

    def closed(self, connection: Connection) -> None:
        """Forgets a connection."""
        if self._held is not None:
            self._held.pop(connection, None)
        self._producing.forget(connection)
        self.connections.discard(connection)
        if connection.share is not None:
            self.shares.close(connection.share, self._loop.time())

    def left(self, connection: Connection) -> None:
        """Nothing of it is worked on any more: until then, what came over it keeps its order."""
        self._refused.left(connection)

    def broken(self, peer: str, reason: str) -> None:
        """One log line at most per peer and interval."""
        metrics.CONNECTIONS_BROKEN.inc()
        self._complain(peer, reason)

    def failed(self, call: Call, error: BaseException) -> None:
        """A handler raised what it should not: the connection is closed, and the log has the traceback, once per API,
        kind and interval.
        """
        metrics.HANDLER_FAILURES.inc()
        left_out = self._complaints.due((call.api_key, type(error)), now=self._loop.time())
        if left_out is not None:
            api = SERVED[call.api_key].name
            _log.error(
                "request failed",
                request_id=call.request_id,
                api=api,
                version=call.version,
                client_id=call.client_id,
                peer=call.client_host,
                left_out=left_out,
                exc_info=error,
            )

    def overlaps(self, api_key: int) -> bool:
        """Whether requests of this API may run while earlier ones of the same kind do."""
        route = self._routes.get(api_key)
        return route is not None and route.overlaps

    def ends_with_client(self, api_key: int) -> bool:
        """Whether a request is given up when its client is gone; others are carried through."""
        route = self._routes.get(api_key)
        return route is not None and route.ends_with_client

    def delays_stop(self, api_key: int) -> bool:
        """Whether a clean stop waits for a request of this API."""
        route = self._routes.get(api_key)
        return route is None or route.delays_stop

    def hold(self) -> None:
        """No request starts until `release`."""
        self._held = {}

    def release(self) -> None:
        """Requests start, those first that waited."""
        held, self._held = self._held or {}, None
        for connection in held:
            connection.go_on()

    def turn_is_full(self) -> bool:
        """Whether no more requests begin in this turn of the loop."""
        return self._requests_left <= 0 or self._partitions_left <= 0

    def admits(self, connection: Connection, call: Call) -> bool:
        """Whether a request may start now: one in a later turn of the loop where enough began in this one.

        A Produce of who has much under way waits for its turn while there are others to protect.
        """
        if self._held is not None:
            self._held[connection] = None
            return False
        if self.turn_is_full():
            if connection not in self._in_next_turn:
                self._in_next_turn.add(connection)
                self._next_turn.push(connection, party=connection.peer, sender=connection)
                self._take_turns()
            return False
        if call.api_key != ApiKey.PRODUCE:
            return True
        if not self._producing.has_room(call.client_host):
            self._producing.wait(connection, address=call.client_host)
            return False
        share = connection.share
        if share is None:
            share = connection.share = self.shares.open(
                call.client_id[:CLIENT_ID_CHARS], connection.go_on, address=call.client_host
            )
        admitted = self.shares.admit(share, call.lease.size_bytes, self._loop.time())
        if admitted is None:
            return False
        call.share, call.admitted = share, admitted
        return True

    def begin(self, call: Call, body: Buffer) -> Pending:
        """Starts a request. Raises WireError for an API or version that is not served, or a body that does not
        decode.
        """
        began_s = self._loop.time()
        self._requests_left -= call.requests if call.api_key in _LIGHT else OTHERS_COST
        if call.api_key != ApiKey.PRODUCE and (
            call.lease.size_bytes <= self._inline_bytes_max or call.api_key in self._on_loop
        ):
            self._requests_left -= call.lease.size_bytes * self._byte_cost
        try:
            pending = self._begin(call, body)
        except BaseException:
            self._over(call)
            raise
        self._partitions_left -= call.partitions
        if call.share is not None:
            if isinstance(pending, Answer):
                self._over(call)
            else:
                # What it waits for may have it counted anew: what is given back is what was taken.
                self._producing.began(call.client_host, partitions=call.partitions)
                pending.add_done_callback(partial(self._over_later, call, began_s, call.partitions))
        self.in_flight += call.requests
        return pending

    def _take_turns(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """The loop has come round since there was no more to begin: those that wait are first, each with its part of
        the turn.

        Only then: what begins in several turns of which none is full has no need of it, and most requests begin so.
        """
        self._is_turn_due = False
        self._partitions_left = PRODUCE_TURN_PARTITIONS
        left: float = self._turn_requests
        own_max = max(1, left / max(1, len(self._in_next_turn)))
        for _ in range(len(self._in_next_turn)):
            if left <= 0 or self._partitions_left <= 0:
                break
            connection = self._next_turn.pop()
            self._in_next_turn.discard(connection)
            self._requests_left = own_max
            connection.go_on()
            left -= own_max - self._requests_left
        self._requests_left = left
        if self._in_next_turn:
            self._take_turns()

    def _begin(self, call: Call, body: Buffer) -> Pending:
        lane = lane_of_client(call.client_id)
        routes = self._routes if lane is None and not self._settings.lane else self._of_lane(call, lane)
        route = routes.get(call.api_key)
        if route is None:
            raise WireError(f"API {call.api_key} is not served")
        api = route.api
        if not api.serves(call.version) and not route.any_version:
            raise WireError(
                f"version {call.version} of {api.name} is not served, only {api.version_min} to {api.version_max}"
            )
        return route.begin(call, body)

    def _of_lane(self, call: Call, lane: str | None) -> Mapping[int, Route]:
        table = self._lanes.of(lane, call)
        self._requests_left -= self._lanes.requests_more(table)
        call.bytes_in, call.bytes_out = table.bytes_in, table.bytes_out
        return table.routes

    def _over(self, call: Call, began_s: float | None = None) -> None:
        share, call.share = call.share, None
        if share is not None:
            now = self._loop.time()
            self.shares.over(
                share, call.lease.size_bytes, call.admitted, took_s=None if began_s is None else now - began_s, now=now
            )

    def _over_later(self, call: Call, began_s: float, partitions: int, pending: "asyncio.Future[Answer]") -> None:
        """Whatever becomes of the client: it is over once nothing of it is left to be answered."""
        if not pending.cancelled() and pending.exception() is None and (rest := pending.result().rest) is not None:
            rest.add_done_callback(partial(self._over_later, call, began_s, partitions))
            return
        self._producing.over(call.client_host, partitions=partitions)
        self._over(call, began_s)
        if self._producing.is_waited_for:
            self._go_on_producing()

    def _go_on_producing(self) -> None:
        """Who waited for fewer Produce requests under way: some now, the others soon, as many of them may be told to
        wait for something else.
        """
        for _ in range(self._turn_requests):
            connection = self._producing.next()
            if connection is None:
                return
            connection.go_on()
        self._loop.call_soon(self._go_on_producing)

    def ended(self, call: Call, answer: Answer | None) -> None:
        """Counts an answer, which may be that to several requests, or to some of those."""
        is_over = answer is None or answer.rest is None
        error = "closed" if answer is None else answer.error
        if call.alike is None:
            requests = 1
            self._count(call.api_key, error, 1)
        elif answer is None:
            requests = call.alike.unanswered
            self._count(call.api_key, error, requests)
        else:
            requests = call.alike.unanswered if is_over else answer.requests
            self._count(call.api_key, "none", requests - len(answer.failed))
            for one in answer.failed:
                self._count(call.api_key, one, 1)
        if call.alike is not None:
            call.alike.unanswered -= requests
        self.in_flight -= requests
        sums = self._sums
        bytes_in, bytes_out = call.bytes_in or self._bytes_in, call.bytes_out or self._bytes_out
        if is_over:
            sums[bytes_in] = sums.get(bytes_in, 0) + call.lease.size_bytes
        if answer is not None:
            sums[bytes_out] = sums.get(bytes_out, 0) + answer.size_bytes

        took_s = self._loop.time() - call.arrived
        if self._tracer is not None and call.api_key in TRACED:
            self._trace(self._tracer, call, answer, error, took_s)
        if took_s >= self._slow_s and call.api_key not in WAITS_LONG:
            self._tell("request was slow", call, error, took_s)
        elif error in FAILURES:
            self._tell("request was answered with an error", call, error, took_s)

    def _count(self, api_key: int, error: str, requests: int) -> None:
        counter = self._counted.get((api_key, error))
        if counter is None:
            counter = self._counted[api_key, error] = metrics.REQUESTS.labels(SERVED[api_key].name, error)
        sums = self._sums
        if not sums:  # what is counted in one turn of the loop is told once: hundreds may be answered in it
            self._loop.call_soon(self._tell_counters)
        sums[counter] = sums.get(counter, 0) + requests

    def _tell_counters(self) -> None:
        sums, self._sums = self._sums, {}
        for counter, amount in sums.items():
            counter.inc(amount)

    def _trace(self, tracer: Tracer, call: Call, answer: Answer | None, error: str, took_s: float) -> None:
        attributes: dict[str, str | int] = {
            "bmq.request_id": call.request_id,
            "bmq.listener": call.listener,
            "bmq.error": error,
            "bmq.request_bytes": call.lease.size_bytes,
            "bmq.response_bytes": 0 if answer is None else answer.size_bytes,
            "client.address": call.client_host.lstrip("/"),
            "messaging.client.id": call.client_id,
            "messaging.system": "kafka",
        }
        tracer.span(SERVED[call.api_key].name, took_s=took_s, attributes=attributes, failed=error != "none")

    def _tell(self, event: str, call: Call, error: str, took_s: float) -> None:
        """One line of each kind per API, error and interval."""
        left_out = self._complaints.due((event, call.api_key, error), now=self._loop.time())
        if left_out is not None:
            _log.warning(
                event,
                request_id=call.request_id,
                api=SERVED[call.api_key].name,
                error=error,
                took_ms=round(took_s * 1000),
                client_id=call.client_id,
                peer=call.client_host,
                left_out=left_out,
            )

    def sweep(self) -> None:
        """Closes connections that are idle or whose peer does not read. To be called now and then."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            stalled_at = connection.stalled_at
            if stalled_at is not None and (now - stalled_at) * 1000 > self._settings.write_stall_ms_max:
                self.broken(
                    connection.peer, f"took no answer for write_stall_ms_max = {self._settings.write_stall_ms_max} ms"
                )
                connection.abort()
            elif connection.idle and (now - connection.active_at) * 1000 > self._settings.connection_idle_ms_max:
                connection.close()

    def relieve(self) -> None:
        """Where others wait for memory, or answers have more than they may: closes who holds it and sends, or takes,
        nothing.

        To be called every `RELIEF_INTERVAL_S`. What is longer between two calls, this process did not run: it counts
        against nobody.
        """
        now = asyncio.get_running_loop().time()
        stood_s = max(0.0, now - self._relieved_at - RELIEF_INTERVAL_S)
        self._relieved_at = now
        for incoming, reason in list(self.arriving.stuck(now)):
            assert isinstance(incoming, Intake)
            self.broken(incoming.peer, reason)
            incoming.abort()
        seen, self._unsent = self._unsent, {}
        refusals, self._fetch_refusals = self._fetch_refusals, self._fetch_memory.refusals
        answers_short = self._answers.is_waited_for or self._answers.held_bytes > self._answers.limit_bytes
        if refusals == self._fetch_refusals and not self._fetch_memory.is_waited_for and not answers_short:
            return
        for connection in list(self.connections):
            if not (unsent_bytes := connection.unsent_bytes):
                continue
            before_bytes, since = seen.get(connection, (-1, now))
            since = min(since + stood_s, now)
            if unsent_bytes > before_bytes:  # it is looked at for the first time, or has another answer
                self._unsent[connection] = (unsent_bytes, now)
            elif now - since < UNTAKEN_S_MAX:
                self._unsent[connection] = (before_bytes, since)
            elif before_bytes - unsent_bytes >= TAKEN_BYTES_PER_S_MIN * (now - since):
                self._unsent[connection] = (unsent_bytes, now)
            else:
                taken_bytes = before_bytes - unsent_bytes
                self.broken(
                    connection.peer,
                    f"took {taken_bytes} bytes of its answer in {now - since:.0f} s while memory for others is short",
                )
                connection.abort()

    async def finish(self, grace_s: float) -> None:
        """Takes no more requests, answers those that were begun, at most for `grace_s`, tells peers to go, and closes
        every connection.
        """
        self._stopping = True
        if grace_s > 0:
            for connection in list(self.connections):
                connection.finish()
            await self._until(
                lambda: not any(connection.is_answering for connection in self.connections), limit_s=grace_s
            )
            if unanswered := sum(connection.is_answering for connection in self.connections):
                _log.warning("closing connections with requests in flight", connections=unanswered)
            await self._until(lambda: not self.connections, limit_s=min(grace_s, LINGER_S))
        for connection in list(self.connections):
            connection.close()

    async def _until(self, condition: Callable[[], bool], *, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + limit_s
        while not condition() and loop.time() < deadline_s:
            await asyncio.sleep(LOOK_S)

    def _complain(self, peer: str, reason: str) -> None:
        """One line per peer and interval: peers cause them."""
        left_out = self._complaints.due(peer, now=self._loop.time())
        if left_out is not None:
            _log.warning("connection closed", peer=peer, reason=reason, left_out=left_out)
