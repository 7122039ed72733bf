"""For applications with an event loop."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from bmq_databus.client.batching import Batching, Waiting
from bmq_databus.client.errors import DatabusClientError, NotWritten
from bmq_databus.client.messages import Message, Result, bodies_of
from bmq_databus.client.requests import ANSWERED_WITHIN_S, DEFAULT_URL, PATIENCE_S, WriteRequest


class AsyncDatabus:
    """A sidecar. `close` it at the end, or use it as a context."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        unix: Path | str | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """As `Databus`."""
        transport = httpx.AsyncHTTPTransport(uds=None if unix is None else str(unix))
        self._http = httpx.AsyncClient(base_url=url, transport=transport, timeout=ANSWERED_WITHIN_S)
        self._token = token
        self._patience_s = patience_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends its connections."""
        await self._http.aclose()

    async def send(self, channel: str, message: Message) -> Result:
        """Returns when it is written. Raises NotWritten, Refused, Unreachable."""
        [result] = await self.write(channel, [message])
        if not result.is_written:
            raise NotWritten(result)
        return result

    async def write(self, channel: str, messages: Iterable[Message]) -> list[Result]:
        """In their order; what became of each. Raises Refused, Unreachable: what went in requests before is written."""
        found: list[Result] = []
        for body in bodies_of(message.line() for message in messages):
            found += await self.write_lines(channel, body)
        return found

    async def write_lines(self, channel: str, lines: list[bytes]) -> list[Result]:
        """As `write`, in one request."""
        request = WriteRequest(channel=channel, lines=lines, token=self._token)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_s
        while True:
            retry_after = None
            try:
                answer = await self._http.post(request.path, content=request.body, headers=request.headers)
            except httpx.TransportError as error:
                request.last = f"{type(error).__name__}: {error}"
            else:
                results = request.results(answer.status_code, answer.content)
                if results is not None:
                    return results
                retry_after = answer.headers.get("retry-after")
            await asyncio.sleep(request.delay_s(until_s=until_s, now_s=loop.time(), retry_after=retry_after))

    def writer(self, channel: str, batching: Batching | None = None) -> "AsyncWriter":
        """Puts messages together while they come. To be called in the loop."""
        return AsyncWriter(self, channel, batching or Batching())


class AsyncWriter:
    """Writes to one channel in the order of `send`, one request after the other; where one fails, those behind it go
    on. `close` it at the end, or use it as a context.
    """

    def __init__(self, databus: AsyncDatabus, channel: str, batching: Batching) -> None:
        self._databus = databus
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._waiting: Waiting[asyncio.Future[Result]] = Waiting(batching)
        self._changed = asyncio.Condition()
        self._is_closed = False
        self._wants_flush = 0
        self._newest: asyncio.Future[Result] | None = None
        self._task = self._loop.create_task(self._run(), name=f"databus {channel}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, message: Message) -> "asyncio.Future[Result]":
        """Returns when there is room for it; what it returns is to be awaited for the result, which raises as
        `AsyncDatabus.send`.
        """
        line = message.line()
        future: asyncio.Future[Result] = self._loop.create_future()
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or self._waiting.has_room(len(line)))
            if self._is_closed:
                raise DatabusClientError(f"the writer to {self._channel} is closed")
            self._waiting.add(line, future, now_s=self._loop.time())
            self._newest = future
            self._changed.notify_all()
        return future

    async def flush(self) -> None:
        """Returns when everything that was sent before has its result."""
        async with self._changed:
            self._wants_flush += 1
            self._changed.notify_all()
        try:
            if self._newest is not None:
                await asyncio.wait([self._newest])
        finally:
            self._wants_flush -= 1

    async def close(self) -> None:
        """Flushes, and ends."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        await self._task

    async def _run(self) -> None:
        while batch := await self._next():
            try:
                results = await self._databus.write_lines(self._channel, [line for line, _ in batch])
            except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    _settle(future, result)

    async def _next(self) -> list[tuple[bytes, "asyncio.Future[Result]"]]:
        """None of them: it is closed, and nothing waits."""
        async with self._changed:
            while True:
                due_s, now_s = self._waiting.due_s(), self._loop.time()
                if due_s is None:
                    if self._is_closed:
                        return []
                    await self._changed.wait()
                elif due_s <= now_s or self._is_closed or self._wants_flush:
                    batch = self._waiting.take()
                    self._changed.notify_all()
                    return batch
                else:
                    await self._wait_s(due_s - now_s)

    async def _wait_s(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass


def _settle(future: "asyncio.Future[Result]", result: Result) -> None:
    if future.done():
        return
    if result.is_written:
        future.set_result(result)
    else:
        future.set_exception(NotWritten(result))
