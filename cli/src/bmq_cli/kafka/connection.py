"""The cluster that a command talks to: addresses, clients made for it, and how their failures become the command's.

librdkafka's own log lines are dropped (BMQ_DEBUG=1 shows them); what matters of them is remembered as the reason when
there is no connection.
"""

import concurrent.futures
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from bmq.errors import InvalidRequest, InvalidTopicName
from bmq.naming.lanes import check_lane_name
from bmq.naming.listeners import PORT_MAX
from bmq.naming.names import check_topic_name
from bmq_cli.kafka.admin import OffsetSpec, TopicDescription
from bmq_cli.kafka.failures import kafka_failure
from bmq_cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, debugging
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, one_line
from bmq_cli.wall_clock import monotonic_s, sleep_s

_CLIENT_ID: Final = "bmq-cli"
_NO_TOPIC: Final = ":"
"""What no topic can be called, so that asking for it makes none."""
_LOG_LEVEL_NONE: Final = 0
_LOG_LEVEL_DEBUG: Final = 7
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:,/]+):([0-9]{1,5})")
_PATIENCE_S: Final = 1.0
_LAST_TRY_S: Final = 0.05
_HTTP_AS_A_SIZE: Final = int.from_bytes(b"HTTP", "big")
"""What librdkafka says of an HTTP server: that its answer would have so many bytes."""
_FIRST_PAUSE_S: Final = 0.1
_LEADER_CHANGES: Final = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_WAIT_EXTRA_S: Final = 5.0
"""librdkafka ends a request at its timeout; a future that is not done this long after is given up."""

T = TypeVar("T")


def default_address() -> str:
    """What is used without --bootstrap-server."""
    return os.environ.get("BMQ_BOOTSTRAP_SERVER") or DEFAULT_BOOTSTRAP_SERVER


def check_addresses(text: str) -> str:
    """`text`, when it is HOST:PORT or several of them with commas between. Raises CommandFailed."""
    for address in text.split(","):
        matched = _ADDRESS.fullmatch(address.strip())
        if matched is None or not 1 <= int(matched[2]) <= PORT_MAX:
            raise CommandFailed(
                f"--bootstrap-server {text}",
                f"{address.strip()!r} is not HOST:PORT",
                f"for example {DEFAULT_BOOTSTRAP_SERVER}",
                code=ExitCode.USAGE,
            )
    return text


@dataclass(kw_only=True)
class Connection:
    """Makes clients of one cluster. `timeout_s` bounds connecting, and each request; `waiting` shows a text while
    connecting takes long.
    """

    bootstrap_server: str = DEFAULT_BOOTSTRAP_SERVER
    lane: str = ""
    """The lane that it is in; empty: the base, or the endpoint's."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    waiting: Callable[[str], AbstractContextManager[object]] = field(default=nullcontext)
    _admin: AdminClient | None = field(default=None, init=False)
    _last_error: KafkaError | None = field(default=None, init=False)

    def admin(self) -> AdminClient:
        """The admin client, connected. Raises CommandFailed (exit code 4) when nothing answers in time."""
        if self._admin is None:
            admin = AdminClient(self._settings())
            if not self._answers(admin, min(_PATIENCE_S, self.timeout_s)):
                with self.waiting(f"connecting to {self.bootstrap_server} …"):
                    if not self._answers(admin, max(_LAST_TRY_S, self.timeout_s - _PATIENCE_S)):
                        raise self._unreachable()
            if self.lane:
                self._check_lane(admin)
            self._admin = admin
        return self._admin

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """A consumer; the caller closes it."""
        return Consumer({**self._settings(), "allow.auto.create.topics": False, **settings})

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A producer; the caller flushes it."""
        return Producer({**self._settings(), **settings})

    def lost(self) -> KafkaError | None:
        """The newest connection error since `forget_errors`, else None."""
        return self._last_error

    def forget_errors(self) -> None:
        """Called on progress: errors before it no longer matter."""
        self._last_error = None

    def wait(self, what: str, future: "concurrent.futures.Future[T]") -> T:
        """The result of one of librdkafka's requests, `what` naming it. Raises CommandFailed."""
        try:
            return future.result(timeout=self.timeout_s + _WAIT_EXTRA_S)
        except KafkaException as exception:
            raise kafka_failure(what, exception) from exception
        except concurrent.futures.TimeoutError as exception:
            raise CommandFailed(
                what, f"no answer within {self.timeout_s:g} s", "raise --timeout", code=ExitCode.NO_CONNECTION
            ) from exception

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic's description; never creates it. Raises CommandFailed (exit code 3 when there is none)."""
        with refused_arguments(f"topic {name}"):
            futures = self.admin().describe_topics(TopicCollection([name]), request_timeout=self.timeout_s)
        try:
            description: TopicDescription = self.wait(f"topic {name}", futures[name])
        except CommandFailed as failure:
            if failure.code is ExitCode.NOT_FOUND:
                raise no_such_topic(name) from failure
            _check_name(name)
            raise
        return description

    def list_offsets(
        self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec
    ) -> dict[tuple[str, int], "ListedOffset"]:
        """The offset that `spec` names, in each partition; `offset` is −1 where there is none. Raises CommandFailed.

        Those whose leader changes are asked for again as long as there is time.
        """
        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}
        found: dict[tuple[str, int], ListedOffset] = {}
        admin, until_s, pause_s = self.admin(), monotonic_s() + self.timeout_s, _FIRST_PAUSE_S
        while left := [key for key in wanted if key not in found]:
            asked = {TopicPartition(topic, partition): spec for topic, partition in left}
            futures = admin.list_offsets(asked, request_timeout=max(_LAST_TRY_S, until_s - monotonic_s()))
            for asked_for, future in futures.items():
                try:
                    found[asked_for.topic, asked_for.partition] = self._listed(
                        f"offsets of {asked_for.topic}/{asked_for.partition}", future
                    )
                except CommandFailed as failure:
                    if not _leader_changes(failure) or monotonic_s() + pause_s >= until_s:
                        raise
            if len(found) < len(wanted):
                sleep_s(pause_s)
                pause_s = min(2 * pause_s, _PATIENCE_S)
        return {key: found[key] for key in wanted}

    def _listed(self, what: str, future: "concurrent.futures.Future[Any]") -> "ListedOffset":
        """librdkafka calls a partition whose owner did not answer in time well, with an offset that none can have."""
        info = self.wait(what, future)
        if info.offset == OFFSET_INVALID:
            remedy = "raise --timeout, or see what `bmq cluster status` says"
            raise CommandFailed(what, f"no answer within {self.timeout_s:g} s", remedy, code=ExitCode.NO_CONNECTION)
        return ListedOffset(offset=info.offset, leader_epoch=info.leader_epoch)

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_server,
            "client.id": f"{_CLIENT_ID},lane={self.lane}" if self.lane else _CLIENT_ID,
            "log_level": _LOG_LEVEL_DEBUG if debugging() else _LOG_LEVEL_NONE,
            "error_cb": self._remember,
            "socket.connection.setup.timeout.ms": max(1000, min(30_000, int(self.timeout_s * 1000))),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
        }

    def _remember(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last_error is None:
            self._last_error = error

    def _answers(self, admin: AdminClient, timeout_s: float) -> bool:
        try:
            admin.list_topics(timeout=timeout_s)
        except KafkaException:
            admin.poll(0)
            return False
        return True

    def _check_lane(self, admin: AdminClient) -> None:
        """A lane that is not there would look like an empty one. Raises CommandFailed."""
        try:
            error = admin.list_topics(_NO_TOPIC, timeout=self.timeout_s).topics[_NO_TOPIC].error
        except KafkaException as exception:
            raise kafka_failure(f"lane {self.lane}", exception) from exception
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            remedy = f"create it with `bmq lanes create {self.lane}`"
            raise CommandFailed(
                f"lane {self.lane}",
                "there is no such lane, or it is not served at this address",
                remedy,
                code=ExitCode.NOT_FOUND,
            )

    def _unreachable(self) -> CommandFailed:
        last = self._last_error
        reason = _reason(last.str()) if last is not None else f"no answer within {self.timeout_s:g} s"
        if str(_HTTP_AS_A_SIZE) in reason:
            what, remedy = (
                "what listens there speaks HTTP, not Kafka's protocol",
                "name the address for Kafka clients (--listen of `bmq up`), not the admin address",
            )
            return CommandFailed(
                f"cannot connect to {self.bootstrap_server}", what, remedy, code=ExitCode.NO_CONNECTION
            )
        return CommandFailed(
            f"cannot connect to {self.bootstrap_server}",
            reason,
            "start one with `bmq up`, or name another address with --bootstrap-server",
            code=ExitCode.NO_CONNECTION,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """One partition's answer to ListOffsets."""

    offset: int
    leader_epoch: int | None


def _leader_changes(failure: CommandFailed) -> bool:
    cause = failure.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in _LEADER_CHANGES


def _check_name(name: str) -> None:
    """Raises CommandFailed where no topic can have the name: librdkafka keeps to itself why."""
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        why, _, remedy = str(error).rpartition(": ")
        raise CommandFailed("topic", why, remedy, code=ExitCode.USAGE) from error


def no_such_topic(name: str) -> CommandFailed:
    """The failure for a topic that is not there."""
    return CommandFailed(
        f"topic {name}", "there is no such topic", f"create it with `bmq topics create {name}`", code=ExitCode.NOT_FOUND
    )


def check_lane(name: str) -> str:
    """The lane's name. Raises CommandFailed where no lane can have it."""
    try:
        check_lane_name(name)
    except InvalidRequest as error:
        why, _, remedy = str(error).rpartition(": ")
        raise CommandFailed("--lane", why, remedy, code=ExitCode.USAGE) from error
    return name


@contextmanager
def refused_arguments(what: str) -> Iterator[None]:
    """Turns what librdkafka refuses before it sends anything into a failure of usage."""
    try:
        yield
    except KafkaException as exception:
        raise kafka_failure(what, exception) from exception
    except (ValueError, TypeError) as exception:
        raise CommandFailed(what, str(exception), code=ExitCode.USAGE) from exception


def _reason(text: str) -> str:
    """librdkafka's `HOST:PORT/bootstrap: Connect to ipv4#… failed: Connection refused (after 0ms in state CONNECT)`
    without its frame.
    """
    text = re.sub(r"^\S+/\S+: |\s*\((after|try) .*\)", "", one_line(text))
    return text.rsplit("failed: ", maxsplit=1)[-1] or text
