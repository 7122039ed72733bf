"""The admin REST API as the commands use it: one request and its answer, over HTTP. Failures become the command's, with
their remedy.
"""

import ipaddress
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import BadStatusLine, HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, one_line
from bmq_cli.wall_clock import sleep_s

Sleep = Callable[[float], None]

DEFAULT_URL: Final = "http://127.0.0.1:9080"
URL_VARIABLE: Final = "BMQ_ADMIN_URL"
TOKEN_VARIABLE: Final = "BMQ_TOKEN"
PAGE_ITEMS: Final = 1_000
PAGES_MAX: Final = 10_000
PATIENCE_STEP_S: Final = 0.25
_SOON: Final = frozenset(("LoadsUnknown", "NoLeader", "Starting", "TooManyRequests"))
"""Problems that are over in a moment where all is well."""
_ANSWER_BYTES_MAX: Final = 256 << 20
_CODES: Final = {
    400: ExitCode.USAGE,
    404: ExitCode.NOT_FOUND,
    405: ExitCode.USAGE,
    413: ExitCode.USAGE,
    503: ExitCode.NO_CONNECTION,
}
_TOKEN_REMEDY: Final = f"present a token with ${TOKEN_VARIABLE} or --token"


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


class _NoRedirects(HTTPRedirectHandler):
    """A token is for whom it was given to."""

    def redirect_request(self, *_: object) -> None:
        return None


class ClusterClient:
    """Asks the first of several addresses that answers; any node of a cluster will do."""

    def __init__(
        self, urls: Sequence[str], *, token: str = "", timeout_s: float, patience_s: float = 0.0, sleep: Sleep = sleep_s
    ) -> None:
        """`patience_s`: how long it asks again while nobody leads, or the leader is new and knows too little yet."""
        self.urls = tuple(urls)
        self.timeout_s = timeout_s
        self._token = token
        self._patience_s = patience_s
        self._sleep = sleep

    def at_once(self) -> "ClusterClient":
        """The same without patience: what cannot be answered now is of interest."""
        return ClusterClient(self.urls, token=self._token, timeout_s=self.timeout_s)

    def get(self, path: str, **query: object) -> Any:
        """The JSON that a page answers. Raises ApiFailed."""
        return _json(self.bytes_of(path, **query), path)

    def items(self, path: str, **query: object) -> Iterator[Any]:
        """All items of a list, page by page. Raises ApiFailed."""
        after: str | None = None
        for _ in range(PAGES_MAX):
            page = self.get(path, limit=PAGE_ITEMS, **{"continue": after}, **query)
            yield from page["items"]
            after = page["continue"]
            if after is None:
                return

    def post(self, path: str, body: Mapping[str, object] | None = None, *, version: str = "", **query: object) -> Any:
        """Asks for a change; what is answered. `version`: of this one alone, else it is refused. Raises ApiFailed."""
        return self.change("POST", path, body, version=version, **query)

    def patch(self, path: str, body: Mapping[str, object], *, version: str = "", **query: object) -> Any:
        """Changes what the body names. Raises ApiFailed."""
        return self.change("PATCH", path, body, version=version, **query)

    def put(self, path: str, body: Mapping[str, object], *, version: str = "") -> Any:
        """Says how something is to be, all of it. Raises ApiFailed."""
        return self.change("PUT", path, body, version=version)

    def change(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, version: str = "", **query: object
    ) -> Any:
        """One of the above."""
        data = b"" if body is None else json.dumps(body).encode()
        return _json(self._ask(method, _with_query(path, query), data, version), path)

    def delete(self, path: str, *, version: str = "") -> None:
        """Has something deleted; nothing is answered. Raises ApiFailed."""
        self._ask("DELETE", path, None, version)

    def bytes_of(self, path: str, **query: object) -> bytes:
        """What a page answers, as it is. Raises ApiFailed."""
        return self._ask("GET", _with_query(path, query), None)

    def _ask(self, method: str, path: str, body: bytes | None, version: str = "") -> bytes:
        """What is asked here may be asked again: it says what is wanted, not what is to be done once more."""
        for _ in range(int(self._patience_s / PATIENCE_STEP_S)):
            try:
                return self._ask_any(method, path, body, version)
            except ApiFailed as failure:
                if failure.problem not in _SOON:
                    raise
            self._sleep(PATIENCE_STEP_S)
        return self._ask_any(method, path, body, version)

    def _ask_any(self, method: str, path: str, body: bytes | None, version: str) -> bytes:
        failures: list[CommandFailed] = []
        for url in self.urls:
            try:
                return self._ask_one(url, method, path, body, version)
            except _NotReached as error:
                failures.append(error.failure)
        raise failures[0]

    def _ask_one(self, url: str, method: str, path: str, body: bytes | None, version: str) -> bytes:
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        if version:
            headers["if-match"] = f'"{version}"'
        request = Request(url.rstrip("/") + path, data=body, headers=headers, method=method)
        try:
            with _opener(url).open(request, timeout=self.timeout_s) as reply:
                data: bytes = reply.read(_ANSWER_BYTES_MAX)
                return data
        except HTTPError as error:
            raise _refused(url, error) from error
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = (
                f"no answer within {self.timeout_s:g} s"
                if isinstance(reason, TimeoutError)
                else one_line(_reason(reason))
            )
            remedy = "start one with `bmq up`, or name another node's admin address with --admin"
            if isinstance(reason, ConnectionResetError | BadStatusLine):
                remedy = (
                    "it is not an admin address, perhaps the one for Kafka clients: name the one that `bmq "
                    "up` calls (admin) with --admin"
                )
            raise _NotReached(
                ApiFailed(f"cannot connect to {url}", why, remedy, code=ExitCode.NO_CONNECTION)
            ) from error


class _NotReached(Exception):
    """Another address may."""

    def __init__(self, failure: ApiFailed) -> None:
        super().__init__(failure)
        self.failure = failure


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


def _opener(url: str) -> OpenerDirector:
    """Without a proxy for this machine's own addresses, whatever the environment says."""
    handlers: list[Any] = [_NoRedirects()]
    if _is_this_machine(urlsplit(url).hostname or ""):
        handlers.append(ProxyHandler({}))
    return build_opener(*handlers)


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refused(url: str, error: HTTPError) -> ApiFailed:
    """The failure that an answer that is none of 2xx becomes: in the API's words, or saying that it is no answer of
    bmq's.
    """
    try:
        problem = json.loads(error.read(1 << 20))
        what, why, remedy, name = (str(problem[field]) for field in ("what", "why", "remedy", "code"))
    except (ValueError, KeyError, TypeError, OSError):
        why = f"it answers {error.code} {one_line(str(error.reason))}, and not as bmq does"
        return ApiFailed(
            url, why, "name a node's admin address with --admin", code=ExitCode.NO_CONNECTION, status=error.code
        )
    if error.code == 401:
        remedy = f"{_TOKEN_REMEDY}; the nodes' admin_token or admin_token_file says them"
    return ApiFailed(what, why, remedy, code=_CODES.get(error.code, ExitCode.FAILED), status=error.code, problem=name)


def _json(data: bytes, path: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ApiFailed(
            path, "the answer is not JSON", "name a node's admin address with --admin", code=ExitCode.FAILED
        ) from error


def _with_query(path: str, query: Mapping[str, object]) -> str:
    text = urlencode({name: _text(value) for name, value in query.items() if value is not None})
    return f"{path}?{text}" if text else path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: object) -> str:
    return (
        os.strerror(error.errno).lower()
        if isinstance(error, OSError) and error.errno and not isinstance(error, URLError)
        else str(error)
    )
