"""What is asked of a server by whoever watches it or does not know it: gRPC's own health and reflection.

Health is told to everybody once, as `/livez` is; who goes on watching it, or asks what is served, presents a token.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse  # type: ignore[import-untyped]
from grpc_reflection.v1alpha._async import ReflectionServicer  # type: ignore[import-untyped]
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest  # type: ignore[import-untyped]

from bmq.fairness.made_for_all import MadeForAll
from bmq_databus.grpc.arrivals import Arrivals
from bmq_databus.grpc.call import Call
from bmq_databus.grpc.errors import BadRequest, NoSuchService
from bmq_databus.grpc.service import SERVICE
from bmq_databus.requests.admission import Ending
from bmq_databus.requests.readiness import OK, Readiness
from bmq_databus.requests.room import TooMuchAtOnce

HEALTH: Final = "grpc.health.v1.Health"
REFLECTIONS: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""The same messages under two names."""
SERVICES: Final = (SERVICE, HEALTH, *REFLECTIONS)
AT_ONCE: Final = 2
"""So many requests come at a time: small ones, and nobody knows that before."""
REQUEST_BYTES_MAX: Final = 4 << 10
WATCHES_MAX: Final = 32
"""Calls that watch, or ask what is served, are so many at a time."""
LOOK_EVERY_S: Final = 1.0
QUESTIONS_MAX: Final = 1_000
QUESTION_WITHIN_S: Final = 10.0

Serve = Callable[..., Awaitable[None]]
"""As `bmq_databus.grpc.service.Service.serve`."""


class Asked:
    """That of one server."""

    def __init__(self, serve: Serve, readiness: Readiness) -> None:
        self._serve = serve
        self._readiness = readiness
        self._health = MadeForAll(self._whole_health, name="health")
        self._arrivals = Arrivals(at_once=AT_ONCE)
        self._reflection = ReflectionServicer(SERVICES)
        self._open = 0

    @property
    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Requests and answers are bytes."""
        health = {"Check": partial(self._serve, self._check, is_open=True), "Watch": partial(self._serve, self._watch)}
        reflection = {"ServerReflectionInfo": partial(self._serve, self._reflect)}
        return [_handler(HEALTH, health), *(_handler(name, reflection) for name in REFLECTIONS)]

    async def _check(self, call: Call) -> None:
        self._known(await self._health_request(call))
        await call.answer(await self._health.get())

    async def _watch(self, call: Call) -> None:
        name = await self._health_request(call)
        with self._place():
            told = b""
            while not self._readiness.is_ending:
                now = (
                    await self._health.get()
                    if name in ("", *SERVICES)
                    else _health(HealthCheckResponse.SERVICE_UNKNOWN)
                )
                if now != told:
                    await call.answer(now)
                    told = now
                await asyncio.sleep(LOOK_EVERY_S)
        raise Ending("this sidecar is ending: watch another one")

    async def _reflect(self, call: Call) -> None:
        with self._place():
            for _ in range(QUESTIONS_MAX):
                data = await self._next_question(call)
                if data is None:
                    return
                question = _parsed(ServerReflectionRequest, data)
                async for answer in self._reflection.ServerReflectionInfo(_only(question), None):
                    await call.answer(answer.SerializeToString())
        raise TooMuchAtOnce(f"{QUESTIONS_MAX} questions were answered: ask the next ones by another call")

    async def _next_question(self, call: Call) -> bytes | None:
        async def read() -> bytes | None:
            return await call.request_within(QUESTION_WITHIN_S)

        return await self._arrivals.whole(read, party=call.party)

    async def _health_request(self, call: Call) -> str:
        """The service that it is asked of. Raises BadRequest, TooSlow, TooMuchAtOnce."""
        data = await self._arrivals.whole(call.request, party=call.party)
        if data is None:
            raise BadRequest("the call has no request")
        return str(_parsed(HealthCheckRequest, data).service)

    def _known(self, name: str) -> None:
        if name not in ("", *SERVICES):
            raise NoSuchService(f"no service {name[:80]!r} is served here; there are {', '.join(SERVICES)}")

    async def _whole_health(self) -> bytes:
        is_ready = self._readiness.status() == OK
        return _health(HealthCheckResponse.SERVING if is_ready else HealthCheckResponse.NOT_SERVING)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Raises TooMuchAtOnce."""
        if self._open >= WATCHES_MAX:
            raise TooMuchAtOnce(f"{WATCHES_MAX} calls watch or ask already: try again, or use Check")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


def _handler(service: str, calls: Mapping[str, Serve]) -> grpc.GenericRpcHandler:
    served: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.stream_stream_rpc_method_handler(serve) for name, serve in calls.items()
    }
    return grpc.method_handlers_generic_handler(service, served)


def _health(status: int) -> bytes:
    return bytes(HealthCheckResponse(status=status).SerializeToString())


def _parsed(kind: Any, data: bytes) -> Any:
    """Raises BadRequest."""
    if len(data) > REQUEST_BYTES_MAX:
        raise BadRequest(f"a question of {len(data)} bytes: it has {REQUEST_BYTES_MAX} at most")
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"the request is none: {error}") from None


async def _only(one: ServerReflectionRequest) -> AsyncIterator[ServerReflectionRequest]:
    yield one
