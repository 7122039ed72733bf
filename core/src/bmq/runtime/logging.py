"""Structured logs on standard error: readable on a terminal, one JSON object a line elsewhere.

`BMQ_LOG_FORMAT` (console, json) and `BMQ_LOG_LEVEL` (debug, info, warning, error) override. What libraries log goes the
same way.

Nobody fills a disk with them: of lines that say the same but for numbers so many come in each interval, and of all so
many; `left_out` of the next one says how many did not. Whoever asks for debug gets all.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TextIO

import structlog

from bmq.errors import ConfigurationError
from bmq.fairness.log_limit import Bursts
from bmq.naming.printable import printable

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FORMATS: Final = ("console", "json")
_LAID_OUT: Final = frozenset(("stack", "exception"))
"""Texts of several lines."""
TEXT_CHARS_MAX: Final = 2_000
"""How many characters of one value come in a line: a client's id may have 32,000."""

LIMIT_INTERVAL_S: Final = 10.0
SAME_LINES_MAX: Final = 50
"""How many lines that say the same there may be in each interval."""
LINES_MAX: Final = 1_000
"""How many lines there may be in each interval, whatever they say."""
_NUMBERS: Final = re.compile(r"[0-9]+")
_KEY_CHARS_MAX: Final = 100


def configure_logging(
    *,
    environment: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    """Call once, before anything logs. Raises ConfigurationError (one line) for a format or level that does not
    exist.
    """
    environment = os.environ if environment is None else environment
    stream = sys.stderr if stream is None else stream
    level = _chosen(environment, "BMQ_LOG_LEVEL", default="info", allowed=tuple(_LEVELS))
    form = _chosen(environment, "BMQ_LOG_FORMAT", default="console" if stream.isatty() else "json", allowed=_FORMATS)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    limit = _Limit(now_s)
    limited = [] if level == "debug" else [limit.structured]
    structlog.configure(
        processors=[*limited, *shared, *_rendering(form, stream)],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(form, stream)],
        )
    )
    if level != "debug":
        handler.addFilter(limit.of_library)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries speak from warning on; their chatter below that is asked for by BMQ_LOG_LEVEL=debug.
    root.setLevel(max(_LEVELS[level], logging.WARNING) if level != "debug" else logging.DEBUG)
    logging.getLogger("bmq").setLevel(_LEVELS[level])


class _Limit:
    """How many lines may come."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._same = Bursts(lines_max=SAME_LINES_MAX, interval_s=LIMIT_INTERVAL_S)
        self._all = Bursts(lines_max=LINES_MAX, interval_s=LIMIT_INTERVAL_S)
        self._lock = threading.Lock()  # threads log, too

    def structured(
        self, _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """A processor. Raises DropEvent."""
        left_out = self._due(str(event.get("event")))
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            event["left_out"] = event.get("left_out", 0) + left_out
        return event

    def of_library(self, record: logging.LogRecord) -> bool:
        """A filter."""
        left_out = self._due(str(record.msg))
        if left_out:
            record.msg = f"{record.getMessage()} ({left_out} like it were left out)"
            record.args = None
        return left_out is not None

    def _due(self, text: str) -> int | None:
        with self._lock:
            now = self._now_s()
            same = self._same.due(_NUMBERS.sub("#", text[:_KEY_CHARS_MAX]), now=now)
            if same is None:
                return None
            of_all = self._all.due("all", now=now)
            return None if of_all is None else max(same, of_all)


def _rendering(form: str, stream: TextIO) -> list[structlog.typing.Processor]:
    if form == "json":
        return [_cut, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [_shown, structlog.dev.ConsoleRenderer(colors=stream.isatty())]


def _cut(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """JSON escapes by itself; long texts of strangers are cut."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
            event[key] = printable(value, keep="\n\t", chars_max=TEXT_CHARS_MAX)
    return event


def _shown(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """What a terminal would take for commands is written as escapes; long texts are cut."""
    for key, value in event.items():
        if isinstance(value, str) and key not in _LAID_OUT:
            event[key] = printable(value, chars_max=TEXT_CHARS_MAX)
    return event


def _chosen(environment: Mapping[str, str], name: str, *, default: str, allowed: tuple[str, ...]) -> str:
    value = environment.get(name, "").lower() or default
    if value not in allowed:
        raise ConfigurationError(f"{name} {value!r} cannot be used: choose one of {', '.join(allowed)}")
    return value
