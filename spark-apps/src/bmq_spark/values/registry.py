"""A schema registry by Confluent's REST API, and the wire format that names schemas by its ids.

Credentials come from SCHEMA_REGISTRY_USER and SCHEMA_REGISTRY_PASSWORD, on the driver and on executors. What an id
names never changes, so it is asked for once in a process. An unknown id is a record's fault; a registry out of reach is
nobody's: it is asked again for a while, and then stops the task.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from bmq_spark.errors import BmqError, ConfigurationError
from bmq_spark.patience import AT_ONCE, PATIENCE, Patience
from bmq_spark.values.decoded import Unfit

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
REMEMBERED: Final = 1000
REFERENCES: Final = 200
"""Schemas that one may refer to, all told."""
SUBJECTS: Final = 3
"""Subjects of whose newest versions one is to have an id."""
MAX_SCHEMA_BYTES: Final = 8 << 20
ID_MAX: Final = 2**31 - 1
"""Ids are Java's int in Confluent's API: a path with a larger number is none of its paths, says the registry."""
_IDS: Final = "/schemas/ids/"
_NO_SUCH_ID: Final = (400, 404, 422)
"""What a registry may answer to an id that it takes for none. It says so by `error_code`, as Confluent's registry,
Karapace and Apicurio do: the status, or Confluent's own code of it. A gateway's page for machines has none.
"""


class RegistryUnavailable(BmqError):
    """The registry does not answer, refuses, or answers what is no registry's."""


class NotARegistry(RegistryUnavailable):
    """What answers is no registry: another server, or a gateway before it while it is away."""


class SchemaUnknown(BmqError):
    """The registry says that it has no such schema or subject, or it has one that is beyond what is read."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a schema calls another (an import's path, a type's name), and where that one is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """`kind` is AVRO, PROTOBUF or JSON; `id` is 0 where the answer did not say."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry by its URL. A value: each process asks by its own client."""

    url: str

    @classmethod
    def parse(cls, url: str) -> "Registry":
        """Raises ConfigurationError."""
        split = urlsplit(url)
        if split.scheme not in ("http", "https") or not split.hostname:
            raise ConfigurationError(
                f"registry {url!r}: not a URL of a schema registry: write http://HOST:PORT or https://HOST"
            )
        if split.username is not None:
            place = f"{split.scheme}://{split.hostname}"
            raise ConfigurationError(
                f"registry {place}: credentials in a URL end up in logs: set SCHEMA_REGISTRY_USER and "
                "SCHEMA_REGISTRY_PASSWORD"
            )
        return cls(url.rstrip("/"))

    def schema(self, number: int) -> RegisteredSchema:
        """By id. Raises SchemaUnknown, RegistryUnavailable."""
        return _by_id(self.url, number)

    def pause(self) -> None:
        """As long as before a second question."""
        _line(self.url).pause()

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version. Raises SchemaUnknown, RegistryUnavailable."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return _ask(self.url, path, lambda answer: _registered(self.url, path, answer))

    def some_id(self) -> int | None:
        """An id of one of its schemas; None: it tells of none."""
        for subject in (_list(self.url, "/subjects") or [])[:SUBJECTS]:
            try:
                if found := self.latest(str(subject)).id:
                    return found
            except (SchemaUnknown, RegistryUnavailable):  # deleted meanwhile, or not for these credentials
                continue
        return None

    def highest_id(self, number: int) -> int | None:
        """The highest id that it has given by now; `number` is one that it has. None: it does not tell, as not all that
        speak Confluent's API do.
        """
        try:
            told = _ask(self.url, f"{_IDS}{number}?fetchMaxId=true", lambda answer: answer.get("maxId"))
        except (SchemaUnknown, RegistryUnavailable):
            return None
        return told if isinstance(told, int) else None

    def referred(self, registered: RegisteredSchema) -> list[tuple[str, str]]:
        """(name, text) of all that a schema refers to, also at second hand, each before what refers to it.

        Raises SchemaUnknown, RegistryUnavailable.
        """
        found: dict[str, str] = {}
        open_names: set[str] = set()

        def follow(references: tuple[Reference, ...]) -> Iterator[tuple[str, str]]:
            for reference in references:
                if reference.name in found or reference.name in open_names:
                    continue
                if len(found) + len(open_names) >= REFERENCES:
                    raise SchemaUnknown(
                        f"registry {self.url}: schema {registered.id} refers to more than {REFERENCES} others"
                    )
                open_names.add(reference.name)
                inner = _version(self.url, reference.subject, reference.version)
                yield from follow(inner.references)
                found[reference.name] = inner.text
                yield reference.name, inner.text

        return list(follow(registered.references))


def schema_id(value: bytes) -> int:
    """The id in a value of the wire format: a zero byte and 32 bits, big-endian. Raises Unfit."""
    if len(value) < 5 or value[0] != 0:
        start = value[:5].hex(" ") or "nothing"
        raise Unfit(
            f"not in the registry's wire format, which starts with a zero byte and a schema id: starts with {start}"
        )
    number = int.from_bytes(value[1:5], "big")
    if number > ID_MAX:
        raise Unfit(f"schema id {number}: registries count to {ID_MAX}: not in the registry's wire format")
    return number


@lru_cache(maxsize=REMEMBERED)
def _by_id(url: str, number: int) -> RegisteredSchema:
    path = f"{_IDS}{number}"
    return _ask(url, path, lambda answer: _registered(url, path, {"id": number, **answer}))


@lru_cache(maxsize=REMEMBERED)
def _version(url: str, subject: str, version: int) -> RegisteredSchema:
    path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
    return _ask(url, path, lambda answer: _registered(url, path, answer))


def _registered(url: str, path: str, answer: dict[str, Any]) -> RegisteredSchema:
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in answer.get("references") or ()
        )
        return RegisteredSchema(
            id=int(answer.get("id", 0)),
            kind=str(answer.get("schemaType") or "AVRO"),
            text=str(answer["schema"]),
            references=references,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotARegistry(
            f"registry {url}{path}: the answer is not a schema registry's ({error!r}): is this the registry's address?"
        ) from error


def _ask(url: str, path: str, read: Callable[[dict[str, Any]], T]) -> T:
    """What `read` finds in the registry's answer, which is its only where it raises nothing."""
    return _line(url).get(path, lambda response: read(_answer(url, path, response)))


def _answer(url: str, path: str, response: "httpx.Response") -> dict[str, Any]:
    if response.status_code == 403 and path.startswith(_IDS) and _is_there(url):
        # Nobody's fault among the records: they fit once it is permitted, and dead letters are not read again.
        raise RegistryUnavailable(
            f"registry {url}{path}: answers these credentials, and refuses them this schema (HTTP 403): permit "
            f"SCHEMA_REGISTRY_USER to read the subject that has it ({path}/subjects names it to who may read it): "
            "the job goes on from where it is"
        )
    if response.status_code in (401, 403):
        remedy = "set SCHEMA_REGISTRY_USER and SCHEMA_REGISTRY_PASSWORD for the driver and the executors"
        raise RegistryUnavailable(
            f"registry {url}{path}: refuses these credentials (HTTP {response.status_code}): {remedy}"
        )
    if response.status_code == 200 and len(response.content) > MAX_SCHEMA_BYTES:
        raise SchemaUnknown(
            f"registry {url}{path}: a schema of {len(response.content)} bytes: {MAX_SCHEMA_BYTES} at most are read"
        )
    try:
        answer = response.json()
    except ValueError:
        answer = None
    code = answer.get("error_code") if isinstance(answer, dict) else None
    if response.status_code == 404 and isinstance(answer, dict) and isinstance(code, int) and code // 100 == 404:
        raise SchemaUnknown(
            f"registry {url}{path}: {answer.get('message', 'not found')}: register the schema there, or name the "
            "subject that has it"
        )
    if isinstance(answer, dict) and path.startswith(_IDS) and _is_no_id(response.status_code, code) and _is_there(url):
        raise SchemaUnknown(f"registry {url}{path}: HTTP {response.status_code} {answer.get('message', '')}".rstrip())
    if response.status_code != 200 or not isinstance(answer, dict):
        raise NotARegistry(
            f"registry {url}{path}: HTTP {response.status_code} and not a registry's answer: is this the "
            "registry's address?"
        )
    return answer


def _is_no_id(status: int, code: object) -> bool:
    return status in _NO_SUCH_ID and isinstance(code, int) and status in (code, code // 100)


def _is_there(url: str) -> bool:
    """Whether the URL is a registry's: it says of what kinds its schemas are."""
    return _list(url, "/schemas/types") is not None


def _list(url: str, path: str) -> list[Any] | None:
    """What the registry lists there; None where it answers anything else."""
    import httpx

    try:
        response = _within(_line(url).client, url + path)
        found = response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
    return found if isinstance(found, list) else None


class _Stumbled(Exception):
    """It does not answer, or says that it cannot now."""


class _Line:
    """This process's line to one registry.

    Once it was silent for as long as it is waited for, it is asked without waiting until it answers: whoever asks next
    (another task of the batch, the same one begun anew) would wait as long for nothing. Where it has answered before,
    an answer that is no registry's is a gateway's, which passes; where it never has, the address is wrong.
    """

    def __init__(self, url: str, client: "httpx.Client", patience: Patience) -> None:
        self.client = client
        self._url = url
        self._patience = patience
        self._is_silent = False
        self._has_answered = False

    def get(self, path: str, read: Callable[["httpx.Response"], T]) -> T:
        """What `read` makes of its answer. Raises RegistryUnavailable, and what `read` raises."""
        patience = AT_ONCE if self._is_silent else self._patience
        try:
            answer = patience.ask(lambda: read(self._once(path)), self._passes)
        except _Stumbled as error:
            self._is_silent = True
            raise RegistryUnavailable(
                f"registry {self._url}{path}: no answer in {self._patience.wait_s:g} s ({error}): is it up, and "
                "reachable from the driver and the executors?"
            ) from error
        except NotARegistry as error:
            if not self._has_answered:
                raise
            self._is_silent = True
            raise RegistryUnavailable(f"{error} It was: so for {self._patience.wait_s:g} s") from error
        except RegistryUnavailable:  # it refuses, or something before it does
            self._is_silent = False
            raise
        except SchemaUnknown:
            self._hears()
            raise
        self._hears()
        return answer

    def pause(self) -> None:
        """As long as before a second question."""
        self._patience.sleep(self._patience.pause_s)

    def _passes(self, error: Exception) -> bool:
        return isinstance(error, _Stumbled) or (self._has_answered and isinstance(error, NotARegistry))

    def _hears(self) -> None:
        self._is_silent, self._has_answered = False, True

    def _once(self, path: str) -> "httpx.Response":
        import httpx  # half a second of each worker's start, and few need it

        try:
            response = _within(self.client, self._url + path)
        except httpx.HTTPError as error:
            raise _Stumbled(f"{type(error).__name__} {error}".strip()) from error
        if response.status_code == 429 or response.status_code >= 500:
            raise _Stumbled(f"HTTP {response.status_code}")
        return response


def _within(client: "httpx.Client", url: str) -> "httpx.Response":
    """The whole answer, in `TIMEOUT_S` from its first byte on: the client bounds the time between two bytes alone."""
    import httpx

    with client.stream("GET", url) as response:
        until = time.monotonic() + TIMEOUT_S
        content = bytearray()
        for some in response.iter_bytes():
            content += some
            if time.monotonic() > until:
                raise httpx.ReadTimeout(f"no whole answer in {TIMEOUT_S:g} s", request=response.request)
        return httpx.Response(response.status_code, content=bytes(content), request=response.request)


@lru_cache(maxsize=4)
def _line(url: str) -> _Line:
    import httpx

    user = os.environ.get("SCHEMA_REGISTRY_USER")
    auth = (user, os.environ.get("SCHEMA_REGISTRY_PASSWORD", "")) if user else None
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    return _Line(url, httpx.Client(timeout=TIMEOUT_S, auth=auth, headers=headers), PATIENCE)
