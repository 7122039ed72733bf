"""What a process serves at its admin address: health and metrics from the first moment on, and the REST API once it is
up.

Any node takes any request. What every node knows it answers itself; everything else the leading controller answers, and
a node that does not lead hands the request on. The framework of the pages takes half a second to import and 20 MiB, so
it is loaded, in a thread, when the first of them is asked for here: on most nodes never.

Who may: with `tokens`, who presents one. Without, everybody may look, and only who is on this machine may change
anything.
"""

import asyncio
import ipaddress
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from bmq.errors import BmqError
from bmq.fairness.fair_room import FairRoom
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.turns import Turns
from bmq.internal import ADMIN_REPLY_BYTES_MAX
from bmq.naming.bearer import bearer_of
from bmq.roles.admin import AdminReply, AdminRequest
from bmq_controller.api.asgi import (
    ADDRESS,
    BODIES_BYTES_MAX,
    BODY_BYTES_MAX,
    BODY_WITHIN_S,
    PART_BYTES,
    Application,
    NoRoom,
    Receive,
    Scope,
    Send,
    body_of,
    call,
    say,
)
from bmq_controller.api.bodies import BODY_ELEMENTS_MAX, has_too_many, unusable
from bmq_controller.api.channel_watch import WAIT_S_MAX, WATCH_PATH, ChannelWatch
from bmq_controller.api.own_pages import OWN_PAGES
from bmq_controller.api.problems import Refusal, refusal, subject_of
from bmq_controller.api.query import misread, too_long
from bmq_controller.api.request_ids import HEADER as REQUEST_ID
from bmq_controller.api.request_ids import request_id_of, with_request_id
from bmq_controller.api.sources import ApiSources, Tokens

REQUESTS_AT_ONCE: Final = 64
"""Requests that are worked on at a time; the others wait, by turns of addresses."""
REQUESTS_PER_ADDRESS: Final = 16
"""How many of them may be one address's."""
WATCH_EXTENSION: Final = "bmq.watch"
"""The extension of ASGI by which a server is told that a connection waits for a change from now on, and does not count
among the others: a Watched."""
HANDED_ON_AT_ONCE: Final = 256
"""Requests of other nodes, beside this one's own."""
LARGE_BYTES: Final = PART_BYTES
"""Answers above it (metrics, the image, a group with many members) are large ones."""
LARGE_BYTES_MAX: Final = 64 << 20
"""Large answers that are on their way to those who asked, beside one: each may be another page."""
LARGE_PER_ADDRESS: Final = 4
"""One address's part of them is this part, beside one."""
TAKEN_WITHIN_S: Final = 20.0
"""Whoever has not taken a large answer by then, and a second more for each MiB, does not read."""
SLOW_S: Final = 2.0
"""A request that took longer is told in the log."""
FAILED_FROM: Final = 500
"""So is one that was answered with such a status or a higher one."""
COMPLAIN_EVERY_S: Final = 5.0
"""A line of each kind for each page; who asks may ask again at once."""
ANSWER_WITHIN_S: Final = 35.0
"""Longer than an operation waits for the store, and shorter than other nodes wait for this one."""
_PATH_CHARS: Final = 200
_log = structlog.get_logger(__name__)
_TEXT: Final = "text/plain; charset=utf-8"
_ROOT: Final = """bmq, its admin address. Kafka clients connect to another one.
/livez         whether this process lives
/readyz        whether it serves, or what it waits for
/metrics       for Prometheus
/docs          the REST API, to try out
/openapi.json  the same for tools
/v1/...        the REST API itself; with tokens it asks for one
"""
_READING: Final = ("GET", "OPTIONS")
_PASSED_ON: Final = frozenset(("authorization", "content-type", "if-match", REQUEST_ID))
_PUBLIC: Final = frozenset(("/docs", "/openapi.json"))
_OF_EVERY_NODE: Final = ("/v1/cluster", "/v1/self", "/v1/debug/", WATCH_PATH)
"""Answered by the node that is asked."""


Watched = Callable[[], str | None]
"""Says why the connection may not; None: it may."""


@dataclass(slots=True)
class FrontState:
    """What the front is told while the process lives. `sources` None: it is starting. `readiness` are asked at each
    /readyz: None is ready.

    `refreshers` are awaited before the metrics are told.
    """

    sources: ApiSources | None = None
    tokens: Tokens | None = None
    readiness: list[Callable[[], str | None]] = field(default_factory=list)
    refreshers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    exposition: Callable[[], bytes] = generate_latest
    """The metrics of the whole process, as text; called in a thread."""

    def not_ready(self) -> str | None:
        """What is missing; None: ready."""
        if self.sources is None:
            return "starting"
        return next((missing for missing in (ask() for ask in self.readiness) if missing is not None), None)


class AdminFront:
    """The ASGI application for a server, and the answer to requests that other nodes hand on."""

    def __init__(self, state: FrontState | None = None, *, new_id: Callable[[], str] | None = None) -> None:
        """`new_id` makes the id of a request that has none; None: they are counted."""
        self.state = state if state is not None else FrontState()
        self.new_id = new_id if new_id is not None else map(str, count(1)).__next__
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._pages: Application | None = None
        self._watch: tuple[ApiSources, ChannelWatch] | None = None
        """Who waits for changes of channels, and of which sources."""
        self._loading = asyncio.Lock()
        self._under_way: Counter[str] = Counter()
        """By address."""
        self._turns = Turns()
        self._bodies = FairRoom(BODIES_BYTES_MAX)
        self._exposing: asyncio.Task[bytes] | None = None
        self._handed_on_here = 0
        self._large_bytes: Counter[str] = Counter()
        """How many bytes of large answers are on their way, by address."""

    @property
    def has_pages(self) -> bool:
        """Whether the framework of the pages is loaded."""
        return self._pages is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One HTTP request. HEAD is GET without the answer's body."""
        if scope["type"] != "http":
            return
        request = _request_of(scope)
        with_body = request.method != "HEAD"
        if not with_body:
            request = replace(request, method="GET")
        told = {REQUEST_ID: request_id_of(request.headers, self.new_id), ADDRESS: _host_of(scope)}
        request = replace(request, headers={**request.headers, **told})
        if (refused := _too_long(request)) is not None:
            reply: AdminReply | None = with_request_id(refused, request.headers[REQUEST_ID])
        else:
            reply = await self._health(request)
        if reply is None and request.path == WATCH_PATH and request.method == "GET":
            reply = with_request_id(await self._watched(scope, request, receive), request.headers[REQUEST_ID])
        if reply is None:
            reply = await self._followed(request, self._bounded(scope, request, receive))
        if with_body and len(reply.body) > LARGE_BYTES:
            await self._say_large(request, reply, send, host=_host_of(scope))
        else:
            await say(send, reply, with_body=with_body)

    def end_watches(self) -> None:
        """Who waits for a change is answered now."""
        if self._watch is not None:
            self._watch[1].end()

    async def _watched(self, scope: Scope, request: AdminRequest, receive: Receive) -> AdminReply:
        """What changed of channels, as soon as something does. Until then it holds up nobody, and its connection is
        not one of the others.
        """
        if _crosses_sites(scope):
            return _crossed(request)
        tokens = self.state.tokens
        if tokens is not None and not await tokens.admits_watch(_bearer(request)):
            return _unknown(request)
        sources = self.state.sources
        if sources is None or not sources.image.cluster_id:
            return _refusal(request, "Starting", "this node is starting", "try again in a moment").reply()
        if (misread_query := misread(request.query, ("after", "wait_seconds"))) is not None:
            return _refusal(request, "InvalidRequest", misread_query.why, misread_query.remedy).reply()
        asked = {name: values[-1] for name, values in parse_qs(request.query).items()}
        wait_s = _seconds(asked.get("wait_seconds", f"{WAIT_S_MAX / 2:g}"))
        if wait_s is None:
            why, remedy = f"wait_seconds is not from 0 to {WAIT_S_MAX:g}", "send such a number, or leave it out"
            return _refusal(request, "InvalidRequest", why, remedy).reply()
        begin: Watched | None = scope.get("extensions", {}).get(WATCH_EXTENSION)
        if begin is not None and (full := begin()) is not None:
            return _refusal(request, "TooManyRequests", full, "ask another node, or try again later").reply()
        if self._watch is None or self._watch[0] is not sources:
            self.end_watches()
            self._watch = sources, ChannelWatch(sources.metadata, self._turns)
        loop = asyncio.get_running_loop()
        changes = self._watch[1].changes(asked.get("after", ""), wait_s=wait_s, party=_host_of(scope))
        waiting = loop.create_task(changes)
        leaving = loop.create_task(_left(receive))
        try:
            await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
            body = waiting.result() if waiting.done() else b""  # which nobody reads
        finally:
            waiting.cancel()
            leaving.cancel()
        return AdminReply(status=200, headers={"content-type": "application/json"}, body=body)

    async def _say_large(self, request: AdminRequest, reply: AdminReply, send: Send, *, host: str) -> None:
        """Few of those who ask for much and do not read it have an answer."""
        size_bytes, held, held_bytes = len(reply.body), self._large_bytes, self._large_bytes.total()
        own_max = LARGE_BYTES_MAX // LARGE_PER_ADDRESS
        if (held_bytes and held_bytes + size_bytes > LARGE_BYTES_MAX) or (
            held[host] and held[host] + size_bytes > own_max
        ):
            why = f"{held_bytes} bytes of answers are on their way already, {held[host]} of them to this address"
            refused = _refusal(request, "TooManyRequests", why, "read what comes, and try again in a moment")
            await say(send, with_request_id(refused.reply(), request.headers[REQUEST_ID]), with_body=True)
            return
        held[host] += size_bytes
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S + size_bytes / (1 << 20)):
                await say(send, reply, with_body=True)
        except TimeoutError:
            pass  # the server ends a connection whose answer is not whole
        finally:
            held[host] -= size_bytes
            if not held[host]:
                del held[host]

    async def answer(self, request: AdminRequest) -> AdminReply:
        """A request that another node handed on: answered here, or not at all."""
        if (refused := _too_long(request)) is not None:
            return refused
        if (health := await self._health(request)) is not None:
            return health
        if self._handed_on_here >= HANDED_ON_AT_ONCE:
            return _too_many(request, self._handed_on_here)
        if has_too_many(request.body):
            return _too_wide(request)
        self._handed_on_here += 1
        try:
            await self._turns.turn()  # by whichever node it came
            reply = await self._followed(request, self._authorised(request, hand_on=False))
        finally:
            self._handed_on_here -= 1
        if len(reply.body) > ADMIN_REPLY_BYTES_MAX:
            return _refusal(
                request, "AnswerTooLarge", f"the answer has {len(reply.body)} bytes", "ask for less at a time"
            ).reply()
        return reply

    async def _followed(self, request: AdminRequest, replying: Awaitable[AdminReply]) -> AdminReply:
        """The answer, with the request's id, which is also in every line that is logged meanwhile."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        request_id = request_id_of(request.headers, self.new_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            reply = await replying
            now_s = loop.time()
            failed = reply.status >= FAILED_FROM
            if failed or now_s - began_s >= SLOW_S:
                path = request.path[:_PATH_CHARS]  # which is kept: the rest of a long one tells nobody anything
                left_out = self._complaints.due((failed, path), now=now_s)
                if left_out is not None:
                    _log.warning(
                        "admin request failed" if failed else "admin request was slow",
                        method=request.method,
                        path=path,
                        status=reply.status,
                        took_ms=round((now_s - began_s) * 1000),
                        left_out=left_out,
                    )
        return with_request_id(reply, request_id)

    async def _health(self, request: AdminRequest) -> AdminReply | None:
        if request.method != "GET":
            return None
        match request.path:
            case "/":
                return _text(200, _ROOT)
            case "/livez":
                return _text(200, "ok\n")
            case "/readyz":
                missing = self.state.not_ready()
                return _text(200, "ok\n") if missing is None else _text(503, f"{missing}\n")
            case "/metrics":
                if self._exposing is None:
                    self._exposing = asyncio.get_running_loop().create_task(self._exposition(), name="metrics")
                return AdminReply(
                    status=200, headers={"content-type": CONTENT_TYPE_LATEST}, body=await asyncio.shield(self._exposing)
                )
            case _:
                return None

    async def _exposition(self) -> bytes:
        """The metrics, for all who ask meanwhile. In a thread: the text of tens of thousands of series takes longer
        than the loop may wait.
        """
        try:
            for refresh in self.state.refreshers:
                await refresh()
            return await asyncio.get_running_loop().run_in_executor(None, self.state.exposition)
        finally:
            self._exposing = None

    async def _bounded(self, scope: Scope, request: AdminRequest, receive: Receive) -> AdminReply:
        """Looks at who asks before it reads what they sent. Who sends slowly holds up nobody: only a whole request
        counts as under way.
        """
        if _crosses_sites(scope):
            return _crossed(request)
        tokens = self.state.tokens
        known = tokens is not None and await tokens.admits(_bearer(request))
        if tokens is not None and not known and request.path not in _PUBLIC:
            return _unknown(request)
        host = _host_of(scope)
        try:
            body = await body_of(receive, self._bodies, address=host)
        except NoRoom as error:
            return _refusal(request, "TooManyRequests", str(error), "try again in a moment").reply()
        except TimeoutError:
            return _refusal(
                request, "RequestTooSlow", f"its body did not come within {BODY_WITHIN_S:g} s", "send it at once"
            ).reply()
        if body is None:
            return _refusal(
                request, "RequestTooLarge", f"its body has more than {BODY_BYTES_MAX} bytes", "send less"
            ).reply()
        if request.method in _READING:
            body = b""  # nobody looks at it
        if has_too_many(body):
            return _too_wide(request)
        if self._under_way[host] >= REQUESTS_PER_ADDRESS:
            return _too_many(request, self._under_way[host])
        if self._under_way.total() >= REQUESTS_AT_ONCE:
            return _too_many(request, REQUESTS_AT_ONCE)
        self._under_way[host] += 1
        try:
            await self._turns.turn(party=host)  # what several begin at once would hold the loop for the sum of it
            return await self._authorised(replace(request, body=body, trusted=known or _is_local(scope)), hand_on=True)
        finally:
            self._under_way[host] -= 1
            if not self._under_way[host]:
                del self._under_way[host]

    async def _authorised(self, request: AdminRequest, *, hand_on: bool) -> AdminReply:
        """By the node that answers, too: it may have tokens where the one that was asked has none."""
        sources = self.state.sources
        if sources is None:
            return _refusal(request, "Starting", "this node is starting", "try again in a moment").reply()
        here = request.path in _PUBLIC or request.path.startswith(_OF_EVERY_NODE) or sources.leading() is not None
        if not here and hand_on:
            return await self._handed_on(sources, request)
        tokens = self.state.tokens
        if tokens is None:
            if request.method not in _READING and not request.trusted:
                why = "it changes something, comes from another machine, and this bmq has no tokens to know you by"
                return _refusal(
                    request, "NoTokens", why, "give its nodes admin_token or admin_token_file, and present a token"
                ).reply()
        elif request.path not in _PUBLIC and not await tokens.admits(_bearer(request)):
            return _unknown(request)
        if not here:
            return _no_leader(request, f"node {sources.node_id} does not lead (any more)")
        if request.method == "GET" and (own := OWN_PAGES.get(request.path)) is not None:
            if (misread_query := misread(request.query, ())) is not None:
                return _refusal(request, "InvalidRequest", misread_query.why, misread_query.remedy).reply()
            return AdminReply(
                status=200, headers={"content-type": "application/json"}, body=json.dumps(own(sources)).encode()
            )
        if (found := unusable(request.body)) is not None:
            return _refusal(request, "InvalidRequest", found.why, found.remedy).reply()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await call(await self._loaded(sources), request)
        except TimeoutError:
            why = f"the answer is not there after {ANSWER_WITHIN_S:g} s"
            return _refusal(
                request, "TooSlow", why, "look whether it was done, and at the brokers' and the store's health"
            ).reply()
        except Exception as error:  # noqa: BLE001 other requests go on
            _log.exception("an admin request failed, this is a bug in bmq", method=request.method, path=request.path)
            return _refusal(
                request, "Bug", f"an internal error, {type(error).__name__}", "look at this node's log"
            ).reply()

    async def _handed_on(self, sources: ApiSources, request: AdminRequest) -> AdminReply:
        try:
            return await sources.ask_leader(request)
        except BmqError as error:
            return _no_leader(request, str(error))

    async def _loaded(self, sources: ApiSources) -> Application:
        async with self._loading:
            if self._pages is None:
                self._pages = await asyncio.get_running_loop().run_in_executor(None, _load, sources)
        return self._pages


def _load(sources: ApiSources) -> Application:
    from bmq_controller.api.app import build_api

    return build_api(sources)


def _request_of(scope: Scope) -> AdminRequest:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    kept = {name: value for name, value in headers.items() if name in _PASSED_ON}
    return AdminRequest(
        method=scope["method"], path=scope["path"], query=scope["query_string"].decode("latin-1"), headers=kept
    )


def _bearer(request: AdminRequest) -> str:
    return bearer_of(request.headers.get("authorization", ""))


def _host_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client is not None else ""


def _is_local(scope: Scope) -> bool:
    """Whether somebody on this machine sent it. A browser that was led here by a name of another site's is not somebody
    on this machine.
    """
    named = _place(f"//{_header(scope, b'host')}").hostname or ""
    return _is_address(_host_of(scope), loopback=True) and (named == "localhost" or _is_address(named))


def _is_address(text: str, *, loopback: bool = False) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or not loopback


def _crosses_sites(scope: Scope) -> bool:
    """A browser says which site's page sends; one that changes things here must be this one's."""
    origin = _header(scope, b"origin")
    return bool(origin) and _place(origin).netloc != _header(scope, b"host")


def _place(url: str) -> SplitResult:
    """Nowhere, where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), "")


def _seconds(text: str) -> float | None:
    """None: it is no time to wait."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= WAIT_S_MAX else None


async def _left(receive: Receive) -> None:
    """Returns when who asked is gone. A body, which nobody wants, is passed over."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _crossed(request: AdminRequest) -> AdminReply:
    return _refusal(
        request, "OtherSite", "a page of another site sent it", "send it from elsewhere than a browser"
    ).reply()


def _unknown(request: AdminRequest) -> AdminReply:
    given = "it has no bearer token" if not _bearer(request) else "its token is none of this bmq's"
    remedy = "send Authorization: Bearer TOKEN with one of its tokens (admin_token, admin_token_file)"
    return _refusal(request, "Unauthenticated", given, remedy).reply()


def _too_long(request: AdminRequest) -> AdminReply | None:
    """The answer to who asks for more than is looked into."""
    found = too_long(request.path, request.query)
    if found is None:
        return None
    return refusal("AddressTooLong", what=request.method, why=found.why, remedy=found.remedy).reply()


def _too_wide(request: AdminRequest) -> AdminReply:
    why = f"its body has more than {BODY_ELEMENTS_MAX} elements, or as many lists and objects"
    return _refusal(request, "RequestTooLarge", why, "send fewer").reply()


def _too_many(request: AdminRequest, count: int) -> AdminReply:
    return _refusal(
        request, "TooManyRequests", f"{count} requests are under way already", "try again in a moment"
    ).reply()


def _no_leader(request: AdminRequest, why: str) -> AdminReply:
    remedy = "try again in a moment; where that goes on, look whether a controller runs and reaches the object store"
    return _refusal(request, "NoLeader", f"no leading controller answers: {why}", remedy).reply()


def _refusal(request: AdminRequest, code: str, why: str, remedy: str) -> Refusal:
    return refusal(code, what=subject_of(request.method, request.path), why=why, remedy=remedy)


def _text(status: int, text: str) -> AdminReply:
    return AdminReply(status=status, headers={"content-type": _TEXT}, body=text.encode())
