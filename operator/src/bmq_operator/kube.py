"""The Kubernetes API as the operator uses it: plain manifests, server-side apply, bounded times and memory, two kinds
of errors.

Reading and writing only; what is to be there is decided elsewhere.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, TypeVar

import aiohttp
from kubernetes.aio import client, config

from bmq_operator.answers import (
    ANSWER_BYTES_MAX,
    KEPT_BYTES_MAX,
    LARGE_BYTES,
    OBJECT_BYTES_MAX,
    Large,
    PageSize,
    TooLarge,
    body_of,
    parsed,
    slim,
    weight_bytes,
)
from bmq_operator.kinds import NoName, path_of
from bmq_resources.base import API_VERSION

Manifest: TypeAlias = dict[str, Any]
T = TypeVar("T")

FIELD_MANAGER: Final = "bmq-operator"
SERVER_TIMEOUT_S: Final = 15
CLIENT_TIMEOUT_S: Final = 20.0
_APPLY: Final = "application/apply-patch+yaml; charset=utf-8"
"""With its charset the client library sends a body as it is given."""
_ESCAPED: Final = range(0x7F, 0x1_0000)
"""What an API server's YAML takes as JSON writes it alone; above that, as no JSON does: raw."""
_MERGE: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_JSON: Final = "application/json"
_NO_RIGHT: Final = re.compile(r'User "[^"]*" cannot ')
"""As authorizers say it."""
_TOO_LARGE: Final = "TooLarge"
_NOT_TYPED: Final = "failed to create typed "
_RESOURCES: Final = f"/apis/{API_VERSION}/"
"""Their CRDs bound them, and those that are too large are to be told so."""
_MIB: Final = 1 << 20


class KubeError(Exception):
    """The base of both kinds."""


class KubeUnreachable(KubeError):
    """The API server did not answer, or not in time, or asks to come back later: it may have done what was asked."""


class KubeFailed(KubeUnreachable):
    """It answered that it could not do this (HTTP 500): a webhook that does not answer, no free node port."""


class KubeProblem(KubeError):
    """The API server refused: `status` is HTTP's, `reason` Kubernetes' word for it."""

    def __init__(self, *, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def lacks_right(self) -> bool:
        """Whether the operator may not do that at all. A quota, a Pod Security Standard and most webhooks forbid single
        objects by 403, too.
        """
        return self.status == 403 and _NO_RIGHT.search(self.message) is not None

    @property
    def too_large(self) -> bool:
        """Whether there is more of it, or it is larger, than the operator has memory for. What is too large for the API
        server itself is refused as other objects are.
        """
        return self.reason == _TOO_LARGE


class Kube:
    """A connection to the API server."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self.answered_at_s = 0.0
        """When the API server answered last, by the loop's clock."""
        self._told_ms: int | None = None
        """What time it said that it was then."""
        self._page_sizes: defaultdict[str, PageSize] = defaultdict(PageSize)
        """By kind."""
        self._large = Large()

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> "Kube":
        """By this file, else by the pod's service account, else by KUBECONFIG."""
        configuration = client.Configuration()
        try:
            if kubeconfig is not None:
                raise config.ConfigException
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]
        configuration.retries = 0
        configuration.connection_pool_maxsize = 32
        return cls(client.ApiClient(configuration))

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    def now_ms(self) -> int | None:
        """Wall time by the API server's clock, to the second; None: it has not told it. Times in `metadata` are by that
        clock.
        """
        if self._told_ms is None:
            return None
        return self._told_ms + round((asyncio.get_running_loop().time() - self.answered_at_s) * 1000)

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None where there is none. Raises KubeError, as all of these do; `too_large` where it takes
        more than OBJECT_BYTES_MAX, and is none of bmq's resources.
        """
        if not name:
            return None  # and not all that there are
        try:
            return await self._request("GET", path_of(kind, namespace, name))
        except NoName:
            return None
        except KubeProblem as problem:
            if problem.status == 404:
                return None
            raise

    async def each(
        self,
        kind: str,
        namespace: str = "",
        *,
        keep: Callable[[Manifest], T | None],
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[T]:
        """What `keep` makes of each object of a kind, but for None; of all namespaces if none is given, of objects that
        have all of these labels, and these values in fields. No more than one page of them is in memory as it is.
        """
        query: dict[str, str] = {}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" if value else key for key, value in labels.items())
        if fields:
            query["fieldSelector"] = ",".join(f"{key}={value}" for key, value in fields.items() if value)
        path, size = _path(kind, namespace), self._page_sizes[kind]
        kept: list[T] = []
        while True:
            asked = size.objects
            query["limit"] = str(asked)
            try:
                status, data = await self._read("GET", path, query=query, bytes_max=size.bytes_max)
            except TooLarge:
                if asked == 1:
                    raise _too_large(f"GET {path}") from None
                size.too_large()
                continue
            size.fits(len(data))
            async with self._large.turn(len(data)):
                found, more = _page(_answer(status, data, f"GET {path}"), kind, keep)
            del data
            kept += found
            if not more:
                return kept
            query["continue"] = more

    async def served(self, group: str, version: str) -> frozenset[str]:
        """The plurals of all kinds of a group that there are."""
        try:
            found = await self._request("GET", f"/apis/{group}/{version}")
        except KubeProblem as problem:
            if problem.status == 404:
                return frozenset()
            raise
        return frozenset(str(one.get("name", "")) for one in found.get("resources") or ())

    async def apply(self, manifest: Manifest, *, manager: str = FIELD_MANAGER) -> Manifest:
        """Makes the object, or brings what this manifest names of it to what it says, whoever set it otherwise."""
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta.get("namespace", ""), meta["name"])
        return await self._request(
            "PATCH", path, body=_yaml(manifest), content_type=_APPLY, query={"fieldManager": manager, "force": "true"}
        )

    async def create(self, manifest: Manifest, *, manager: str = FIELD_MANAGER) -> Manifest:
        """Makes an object that is not there. Raises KubeProblem 409 if it is."""
        path = _path(manifest["kind"], manifest["metadata"].get("namespace", ""))
        return await self._request("POST", path, body=manifest, query={"fieldManager": manager})

    async def replace(self, manifest: Manifest) -> Manifest:
        """Writes the object as a whole; with a resourceVersion only over that version (409 else)."""
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta.get("namespace", ""), meta["name"])
        return await self._request("PUT", path, body=manifest, query={"fieldManager": FIELD_MANAGER})

    async def merge(
        self, kind: str, namespace: str, name: str, body: Manifest, *, part: str = "", uid: str = ""
    ) -> Manifest:
        """Changes what `body` names (a JSON merge patch), of the subresource `part` if one is given; with `uid` only of
        this very object (409).
        """
        path = _path(kind, namespace, name) + (f"/{part}" if part else "")
        body = {**body, "metadata": {**body.get("metadata", {}), "uid": uid}} if uid else body
        return await self._request("PATCH", path, body=body, content_type=_MERGE, query={"fieldManager": FIELD_MANAGER})

    async def patch(self, manifest: Manifest, operations: Sequence[Manifest]) -> Manifest:
        """Changes an object by these operations (a JSON patch, RFC 6902), all of them or, where a `test` among them
        fails (422), none.
        """
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta.get("namespace", ""), meta["name"])
        return await self._request(
            "PATCH", path, body=operations, content_type=_JSON_PATCH, query={"fieldManager": FIELD_MANAGER}
        )

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Deletes, what it owns too; with `uid` only this very object. One that is not there is success, one that stays
        (409) is none.
        """
        body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._request("DELETE", _path(kind, namespace, name), body=body)
        except KubeProblem as problem:
            if problem.status == 404:
                return
            if problem.status != 409 or not uid:
                raise
            there = await self.get(kind, namespace, name)
            if there is not None and there["metadata"]["uid"] == uid:
                raise

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Manifest | Sequence[Manifest] | str | None = None,
        content_type: str = _JSON,
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        try:
            status, data = await self._read(
                method, path, body=body, content_type=content_type, query=query, bytes_max=ANSWER_BYTES_MAX
            )
        except TooLarge:
            raise _too_large(f"{method} {path}") from None
        async with self._large.turn(len(data)):
            found = slim(_answer(status, data, f"{method} {path}"))
            foreign = method == "GET" and not path.startswith(_RESOURCES)
            if foreign and len(data) > LARGE_BYTES and weight_bytes(found, most=OBJECT_BYTES_MAX) > OBJECT_BYTES_MAX:
                text = f"{method} {path}: in memory it takes more than {OBJECT_BYTES_MAX // _MIB} MiB: make it smaller"
                raise _refused_as_too_large(text)
            return found

    async def _read(
        self,
        method: str,
        path: str,
        *,
        body: Manifest | Sequence[Manifest] | str | None = None,
        content_type: str = _JSON,
        query: Mapping[str, str] | None = None,
        bytes_max: int,
    ) -> tuple[int, bytes]:
        """HTTP's status, and what was answered. Raises KubeUnreachable, TooLarge."""
        asked = [*(query or {}).items(), ("timeout", f"{SERVER_TIMEOUT_S}s")]
        headers = {"Accept": _JSON, "Content-Type": content_type}
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_S):
                request = await self._api.param_serialize(
                    method, path, query_params=asked, header_params=headers, body=body, auth_settings=["BearerToken"]
                )
                response = await self._api.call_api(
                    *request, _request_timeout=aiohttp.ClientTimeout(total=CLIENT_TIMEOUT_S)
                )
                data = await body_of(response.response, bytes_max=bytes_max)
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            raise KubeUnreachable(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from None
        self.answered_at_s = asyncio.get_running_loop().time()
        self._told_ms = _date_ms(response.getheader("Date"))  # type: ignore[no-untyped-call]
        return response.status, data


def _yaml(manifest: Manifest) -> str:
    """JSON that YAML's readers, which know no surrogates, read as the same."""
    text = json.dumps(manifest, ensure_ascii=False)
    return text.translate({code: f"\\u{code:04x}" for code in map(ord, set(text)) if code in _ESCAPED})


def _path(kind: str, namespace: str = "", name: str = "") -> str:
    try:
        return path_of(kind, namespace, name)
    except NoName as why:
        raise KubeProblem(status=400, reason="BadRequest", message=str(why)) from None


def _page(page: Manifest, kind: str, keep: Callable[[Manifest], T | None]) -> tuple[list[T], str]:
    """What is kept of a page, and what the next one is asked for by; empty: there is none."""
    # Items of a list have neither kind nor apiVersion of their own.
    about = {"apiVersion": page["apiVersion"], "kind": kind}
    found = [keep(slim({**about, **item})) for item in page.get("items") or ()]
    return [one for one in found if one is not None], page.get("metadata", {}).get("continue") or ""


def too_much(what: str) -> KubeProblem:
    """There are more objects that anybody may have written than one look keeps."""
    text = f"{what} take more than the {KEPT_BYTES_MAX // _MIB} MiB of memory that a look may keep of them"
    return _refused_as_too_large(f"{text}: delete those that nobody needs, or make them smaller")


def _too_large(asked: str) -> KubeProblem:
    return _refused_as_too_large(f"{asked}: the answer has more than {ANSWER_BYTES_MAX} bytes")


def _refused_as_too_large(text: str) -> KubeProblem:
    return KubeProblem(status=413, reason=_TOO_LARGE, message=text)


def _date_ms(text: str | None) -> int | None:
    """The time that a Date header says (RFC 9110)."""
    try:
        return round(parsedate_to_datetime(text or "").timestamp() * 1000)
    except ValueError:
        return None


def _answer(status: int, data: bytes, asked: str) -> Manifest:
    try:
        answer = parsed(data) if data else {}
    except ValueError:
        answer = {}
    if 200 <= status <= 299 and isinstance(answer, dict):
        return answer
    message = answer.get("message", "") if isinstance(answer, dict) else ""
    if status == 500 and message.startswith(_NOT_TYPED):
        # What was sent has an unknown field, or a value of another type: a server-side apply says so by 500, and would
        # for ever.
        raise KubeProblem(status=400, reason="BadRequest", message=message)
    if status == 429 or status >= 500:
        kind = KubeFailed if status == 500 else KubeUnreachable
        raise kind(f"{asked}: {status} {message}".rstrip())
    reason = answer.get("reason", "") if isinstance(answer, dict) else ""
    if status == 413:
        message = (
            f"{asked}: what is to be written is larger than it takes ({message or 'no reason is given'}): shorten what "
            "the resource says, or leave some of it out"
        )
    if status == 422 and "metadata.uid: Invalid value" in message:
        # What is there is another object than the one that was meant; of one that is gone the API server says so
        # itself.
        raise KubeProblem(status=409, reason="Conflict", message=message)
    raise KubeProblem(status=status, reason=reason, message=message or asked)
