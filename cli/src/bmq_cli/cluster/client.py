"""The admin REST API as the commands use it: where it is, and what becomes of a command that does not get what it
asked for.
"""

import os
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from bmq_admin.blocking import BlockingAdminClient, Sleep
from bmq_admin.errors import AdminError, AdminProblem, NotBmq, NotReached, TimedOut
from bmq_admin.requests import Request
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, one_line
from bmq_cli.wall_clock import sleep_s

T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:9080"
URL_VARIABLE: Final = "BMQ_ADMIN_URL"
TOKEN_VARIABLE: Final = "BMQ_TOKEN"
_CODES: Final = {
    400: ExitCode.USAGE,
    404: ExitCode.NOT_FOUND,
    405: ExitCode.USAGE,
    413: ExitCode.USAGE,
    503: ExitCode.NO_CONNECTION,
}
_TOKEN_REMEDY: Final = f"present a token with ${TOKEN_VARIABLE} or --token"
_ADDRESS_REMEDY: Final = "name a node's admin address with --admin"
_NODE_REMEDY: Final = "start one with `bmq up`, or name another node's admin address with --admin"
_KAFKA_REMEDY: Final = (
    "it is not an admin address, perhaps the one for Kafka clients: name the one that `bmq up` calls (admin) with "
    "--admin"
)


class ApiFailed(CommandFailed):
    """What the API refused; `status` and `problem` as it said it, 0 and "" where it could not be asked."""

    def __init__(self, what: str, why: str, remedy: str, *, code: ExitCode, status: int = 0, problem: str = "") -> None:
        super().__init__(what, why, remedy, code=code)
        self.status = status
        self.problem = problem

    @property
    def passes(self) -> bool:
        """Whether it is likely to be better in a moment: nobody leads just now, or a node does not answer."""
        return self.status == 503 or (self.status == 0 and self.code is ExitCode.NO_CONNECTION)


class ClusterClient(BlockingAdminClient):
    """The client of one command. Where it raises AdminError elsewhere, it raises ApiFailed here."""

    def __init__(
        self, urls: Sequence[str], *, token: str = "", timeout_s: float, patience_s: float = 0.0, sleep: Sleep = sleep_s
    ) -> None:
        super().__init__(urls, token=token, timeout_s=timeout_s, patience_s=patience_s, sleep=sleep)

    def at_once(self) -> "ClusterClient":
        """The same without patience: what cannot be answered now is of interest."""
        return ClusterClient(self.urls, token=self._token, timeout_s=self.timeout_s)

    def ask(self, request: Request[T]) -> T:
        """What is answered. Raises ApiFailed."""
        try:
            return super().ask(request)
        except AdminError as error:
            raise _failure(request, error, timeout_s=self.timeout_s) from error


def check_urls(text: str) -> list[str]:
    """Addresses of the admin API: URLs or HOST:PORT, with commas between. Raises CommandFailed."""
    found = []
    for given in text.split(","):
        url = given.strip() if "://" in given else f"http://{given.strip()}"
        try:
            split = urlsplit(url)
            usable = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0 and not split.query
        except ValueError:
            usable = False
        if not usable:
            raise CommandFailed(
                f"--admin {text}", f"{given.strip()!r} is no address", f"for example {DEFAULT_URL}", code=ExitCode.USAGE
            )
        if "@" in split.netloc:
            raise CommandFailed("--admin", "it has a password in it", _TOKEN_REMEDY, code=ExitCode.USAGE)
        found.append(url)
    return found


def default_url() -> str:
    """What is used without --admin."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def _failure(request: Request[Any], error: AdminError, *, timeout_s: float) -> ApiFailed:
    match error:
        case AdminProblem():
            code = _CODES.get(error.status, ExitCode.FAILED)
            remedy = error.remedy
            if error.status == 401:
                remedy = f"{_TOKEN_REMEDY}; the nodes' admin_token or admin_token_file says them"
            return ApiFailed(error.what, error.why, remedy, code=code, status=error.status, problem=error.code)
        case TimedOut(url=url):
            why = f"no answer within {timeout_s:g} s"
            return ApiFailed(f"cannot connect to {url}", why, _NODE_REMEDY, code=ExitCode.NO_CONNECTION)
        case NotReached(url=url):
            remedy = _KAFKA_REMEDY if error.no_http else _NODE_REMEDY
            return ApiFailed(f"cannot connect to {url}", _reason(error), remedy, code=ExitCode.NO_CONNECTION)
        case NotBmq(url=url, status=0):
            return ApiFailed(url, error.said, _ADDRESS_REMEDY, code=ExitCode.FAILED)
        case NotBmq(url=url, status=status):
            why = f"it answers {status} {one_line(error.reason)}, and not as bmq does"
            return ApiFailed(url, why, _ADDRESS_REMEDY, code=ExitCode.NO_CONNECTION, status=status)
        case _:
            return ApiFailed(f"{request.method} {request.target}", str(error), _ADDRESS_REMEDY, code=ExitCode.FAILED)


def _reason(error: NotReached) -> str:
    said = error.cause.strerror if error.cause is not None else None
    return one_line(said[:1].lower() + said[1:] if said else error.said)
