"""For applications with threads."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from bmq_databus.client.batching import Batching, Waiting
from bmq_databus.client.errors import DatabusClientError, NotWritten
from bmq_databus.client.messages import Message, Result, bodies_of
from bmq_databus.client.requests import ANSWERED_WITHIN_S, DEFAULT_URL, PATIENCE_S, WriteRequest


class Databus:
    """A sidecar. Threads may share it; `close` it at the end, or use it as a context."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        unix: Path | str | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`unix` is a sidecar's socket, if it is to be reached there. `patience_s` is how long a request is tried."""
        transport = httpx.HTTPTransport(uds=None if unix is None else str(unix))
        self._http = httpx.Client(base_url=url, transport=transport, timeout=ANSWERED_WITHIN_S)
        self._token = token
        self._patience_s = patience_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends its connections."""
        self._http.close()

    def send(self, channel: str, message: Message) -> Result:
        """Returns when it is written. Raises NotWritten, Refused, Unreachable."""
        [result] = self.write(channel, [message])
        if not result.is_written:
            raise NotWritten(result)
        return result

    def write(self, channel: str, messages: Iterable[Message]) -> list[Result]:
        """In their order; what became of each. Raises Refused, Unreachable: what went in requests before is written."""
        lines = (message.line() for message in messages)
        return [result for body in bodies_of(lines) for result in self.write_lines(channel, body)]

    def write_lines(self, channel: str, lines: list[bytes]) -> list[Result]:
        """As `write`, in one request."""
        request = WriteRequest(channel=channel, lines=lines, token=self._token)
        until_s = time.monotonic() + self._patience_s
        while True:
            retry_after = None
            try:
                answer = self._http.post(request.path, content=request.body, headers=request.headers)
            except httpx.TransportError as error:
                request.last = f"{type(error).__name__}: {error}"
            else:
                results = request.results(answer.status_code, answer.content)
                if results is not None:
                    return results
                retry_after = answer.headers.get("retry-after")
            time.sleep(request.delay_s(until_s=until_s, now_s=time.monotonic(), retry_after=retry_after))

    def writer(self, channel: str, batching: Batching | None = None) -> "Writer":
        """Puts messages together while they come, in a thread of its own."""
        return Writer(self, channel, batching or Batching())


class Writer:
    """Writes to one channel in the order of `send`, one request after the other; where one fails, those behind it go
    on. `close` it at the end, or use it as a context.
    """

    def __init__(self, databus: Databus, channel: str, batching: Batching) -> None:
        self._databus = databus
        self._channel = channel
        self._waiting: Waiting[Future[Result]] = Waiting(batching)
        self._changed = threading.Condition()
        self._is_closed = False
        self._wants_flush = 0
        self._newest: Future[Result] | None = None
        self._thread = threading.Thread(target=self._run, name=f"databus {channel}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def send(self, message: Message) -> "Future[Result]":
        """Returns when there is room for it; its result is `result()` then, which raises as `Databus.send`."""
        line = message.line()
        future: Future[Result] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting.has_room(len(line)))
            if self._is_closed:
                raise DatabusClientError(f"the writer to {self._channel} is closed")
            self._waiting.add(line, future, now_s=time.monotonic())
            self._newest = future
            self._changed.notify_all()
        return future

    def flush(self) -> None:
        """Returns when everything that was sent before has its result."""
        with self._changed:
            newest = self._newest
            self._wants_flush += 1
            self._changed.notify_all()
        if newest is not None:
            wait([newest])
        with self._changed:
            self._wants_flush -= 1

    def close(self) -> None:
        """Flushes, and ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            try:
                results = self._databus.write_lines(self._channel, [line for line, _ in batch])
            except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    _settle(future, result)

    def _next(self) -> list[tuple[bytes, "Future[Result]"]]:
        """None of them: it is closed, and nothing waits."""
        with self._changed:
            while True:
                due_s, now_s = self._waiting.due_s(), time.monotonic()
                if due_s is None:
                    if self._is_closed:
                        return []
                    self._changed.wait()
                elif due_s <= now_s or self._is_closed or self._wants_flush:
                    batch = [(line, one) for line, one in self._waiting.take() if one.set_running_or_notify_cancel()]
                    self._changed.notify_all()
                    if batch:
                        return batch
                else:
                    self._changed.wait(due_s - now_s)


def _settle(future: "Future[Result]", result: Result) -> None:
    if result.is_written:
        future.set_result(result)
    else:
        future.set_exception(NotWritten(result))
