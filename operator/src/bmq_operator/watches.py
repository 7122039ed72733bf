"""kopf's connection to the API server, on which no more comes through of an object than is heard of it.

kopf reads lists by so many objects a page, however large they are, and has what it was told of an object last in memory
for seconds: all of a resource, and of a Secret its keys.
"""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Set
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import aiohttp
import kopf

from bmq_operator.answers import ANSWER_BYTES_MAX, Large, PageSize, TooLarge, body_of, parsed, part_of

_READ_BYTES: Final = 1 << 16
_OBJECTS: Final = frozenset((None, "ADDED", "MODIFIED", "DELETED"))


def heard_of(manifest: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    """What handlers are told of an object: which one it is, of its labels and annotations those with these names, and
    the Cluster that it refers to, or whose resources it takes.
    """
    part = part_of(dict(manifest), spec=("clusterRef", "topicsFrom"))
    meta = manifest.get("metadata") or {}
    for field in ("labels", "annotations"):
        there = meta.get(field)
        part["metadata"][field] = (
            {name: there[name] for name in names & there.keys()} if isinstance(there, Mapping) else {}
        )
    return {name: manifest[name] for name in ("apiVersion", "kind") if name in manifest} | part


class _Answer(aiohttp.ClientResponse):
    """One that was read already, or whose lines are."""

    found: Any = None

    async def json(self, **more: Any) -> Any:
        return await super().json(**more) if self.found is None else self.found


class _Lines:
    """Lines of a watch, each with what is heard of its object."""

    def __init__(self, content: aiohttp.StreamReader, names: Set[str], large: Large) -> None:
        self._content = content
        self._names = names
        self._large = large

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """A line at a time, whatever `n` is. Raises aiohttp.ClientPayloadError where one has no end."""
        rest = bytearray()
        async for data in self._content.iter_chunked(_READ_BYTES):
            rest += data
            if b"\n" in data:
                *lines, last = rest.split(b"\n")
                rest = bytearray(last)
                for line in lines:
                    async with self._large.turn(len(line)):
                        lean = self._lean(bytes(line))
                    yield lean
            if len(rest) > ANSWER_BYTES_MAX:
                raise aiohttp.ClientPayloadError("a line of a watch is larger than any object")
        yield self._lean(bytes(rest))

    def _lean(self, line: bytes) -> bytes:
        if not line.strip():
            return b""
        event = parsed(line)
        if event.get("type") in _OBJECTS:
            event["object"] = heard_of(event["object"], self._names)
        return json.dumps(event).encode() + b"\n"


class LeanSession:
    """What kopf asks of a session of aiohttp."""

    def __init__(self, info: kopf.ConnectionInfo, *, plurals: Set[str], names: Set[str]) -> None:
        """`plurals`: of what kinds it is that little is heard; all else comes through as it is. `names`: of labels and
        annotations.
        """
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            response_class=_Answer,
        )
        self._plurals = plurals
        self._names = names
        self._page_sizes: defaultdict[str, PageSize] = defaultdict(PageSize)
        """By path."""
        self._large = Large()

    @property
    def headers(self) -> Any:
        return self._session.headers

    @property
    def closed(self) -> bool:
        return self._session.closed

    async def close(self) -> None:
        await self._session.close()

    async def request(self, *, method: str, url: str, **more: Any) -> aiohttp.ClientResponse:
        """Raises aiohttp.ClientError, TimeoutError."""
        asked = urlsplit(url)
        if method.lower() != "get" or asked.path.rpartition("/")[2] not in self._plurals:
            return await self._session.request(method=method, url=url, **more)
        query = dict(parse_qsl(asked.query))
        if "watch" in query:
            watch = await self._session.request(method=method, url=url, **more)
            if watch.ok:
                watch.content = _Lines(watch.content, self._names, self._large)  # type: ignore[assignment]
            return watch
        return await self._page(asked, query, **more)

    async def _page(self, asked: SplitResult, query: Mapping[str, str], **more: Any) -> aiohttp.ClientResponse:
        size = self._page_sizes[asked.path]
        while True:
            objects = size.objects
            url = asked._replace(query=urlencode({**query, "limit": objects})).geturl()
            answer = await self._session.get(url, **more)
            assert isinstance(answer, _Answer), "the session makes them"
            if not answer.ok:
                return answer
            try:
                data = await body_of(answer, bytes_max=size.bytes_max)
            except TooLarge:
                if objects == 1:
                    raise aiohttp.ClientPayloadError(f"{asked.path}: an object is larger than any may be") from None
                size.too_large()
                continue
            size.fits(len(data))
            async with self._large.turn(len(data)):
                answer.found = _page(parsed(data), self._names)
            return answer


def _page(found: dict[str, Any], names: Set[str]) -> dict[str, Any]:
    return found | {"items": [heard_of(one, names) for one in found.get("items") or ()]}
