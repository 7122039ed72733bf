"""Answers of the API server, of which no more is held at once than there is memory for. Knows of no resource.

In Python an answer takes up to twenty times what it has in bytes, and whoever may write a resource has a megabyte and
a half of it for his labels, and for fields that take anything. So lists come in pages of so many bytes, not of so many
objects, and who reads one keeps of an object what he needs.
"""

import asyncio
import contextlib
import gc
import json
import re
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, TypeVar

import aiohttp

PAGE: Final = 500
"""Objects in a page, unless they are large ones."""
PAGE_BYTES_MAX: Final = 1 << 20
"""Some 20 MiB of memory at most until its objects are looked at."""
LARGE_BYTES: Final = 256 << 10
"""Takes some 50 ms to read."""
ANSWER_BYTES_MAX: Final = 16 << 20
"""For a single object: more than the API server takes."""
KEPT_BYTES_MAX: Final = 32 << 20
"""How much memory a look may keep objects in that it lists: several are under way at once. A Cluster of eight hundred
brokers and as many proxies, with one listener, has room in it."""
OBJECT_BYTES_MAX: Final = 4 << 20
"""How much memory one object may take that is not a resource of bmq's."""
LABELS_MAX: Final = 256
"""Where an object has more of them, only those count that bmq may have written."""
DEPTH_MAX: Final = 64
"""Deeper than what bmq, or Kubernetes, knows of: what is below is nobody's business here."""
_READ_BYTES: Final = 1 << 16
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STEPS: Final = bytes({0x5B: 1, 0x7B: 1, 0x5D: 0xFF, 0x7D: 0xFF}.get(one, 0) for one in range(256))
"""By byte, how much deeper what follows is: brackets alone go down, and up (-1)."""
_OWN: Final = ("bmq.io/", "app.kubernetes.io/", "sparkoperator.k8s.io/")
_OF_MANAGERS: Final = ("manager", "operation", "subresource", "time")
_META: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion")


T = TypeVar("T")


class TooLarge(Exception):
    """An answer is larger than it may be. Nothing of it is held."""


class TooMuch(Exception):
    """What a look would keep of lists takes more memory than it may."""


@dataclass(slots=True)
class Allowance:
    """How much memory is left for what one look keeps of the objects that it lists, as anybody may have written
    them.
    """

    left_bytes: int = KEPT_BYTES_MAX

    def keep(self, value: T) -> T:
        """The same value. Raises TooMuch, and for all that follows, too."""
        self.left_bytes -= weight_bytes(value, most=max(0, self.left_bytes))
        if self.left_bytes < 0:
            raise TooMuch
        return value


@dataclass(slots=True)
class PageSize:
    """How many objects of a kind are asked for at a time: as many as fit into a page's bytes."""

    objects: int = PAGE

    @property
    def bytes_max(self) -> int:
        return PAGE_BYTES_MAX if self.objects > 1 else ANSWER_BYTES_MAX

    def too_large(self) -> None:
        """A page of so many does not fit."""
        self.objects = max(1, self.objects // 4)

    def fits(self, size_bytes: int) -> None:
        """One that had this size did. Where there is room for it the next one has more."""
        if size_bytes < PAGE_BYTES_MAX // 4:
            self.objects = min(PAGE, self.objects * 2)


class Large:
    """Whose turn it is to have a large answer read: one in each turn of the event loop."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self, size_bytes: int) -> AsyncIterator[None]:
        """Nothing is awaited within."""
        if size_bytes < LARGE_BYTES:
            yield
            return
        async with self._reading:
            yield
            await asyncio.sleep(0)


async def body_of(response: aiohttp.ClientResponse, *, bytes_max: int) -> bytes:
    """What was answered. Raises TooLarge as soon as it is more; the connection is closed then."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(_READ_BYTES):
        size += len(part)
        if size > bytes_max:
            response.close()
            raise TooLarge
        parts.append(part)
    return b"".join(parts)


def parsed(data: bytes) -> Any:
    """The JSON value; null is in place of what is nested so deeply that Python does not read it, which the API server
    does. Raises ValueError.
    """
    collects = gc.isenabled()
    gc.disable()  # it would look for garbage, in vain, each time that the value has grown by a quarter
    try:
        return json.loads(data)
    except RecursionError:
        return json.loads(_shallow(data))
    finally:
        if collects:
            gc.enable()


def slim(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same object, with no more labels than count."""
    meta = manifest.get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    if isinstance(meta, dict) and isinstance(labels, dict) and len(labels) > LABELS_MAX:
        own = [name for name in labels if name.startswith(_OWN)]
        meta["labels"] = {name: labels[name] for name in own[:LABELS_MAX]}
    return manifest


def weight_bytes(value: object, *, most: int = sys.maxsize) -> int:
    """How much memory a JSON value takes, or a bit more; one that takes more than `most` is not gone through to its
    end.
    """
    size, left, names = 0, [value], set[int]()
    while left and size <= most:
        one = left.pop()
        size += sys.getsizeof(one)
        if isinstance(one, dict):
            # Of one answer all equal names are one object.
            new = [name for name in one if id(name) not in names]
            names.update(map(id, new))
            left += new
            left += one.values()
        elif isinstance(one, list):
            left += one
    return size


def without_fields(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same object, without what each manager has written of it, but for its `replicas`. All managers stay, where
    they are.
    """
    meta = manifest["metadata"]
    if not meta.get("managedFields"):
        return manifest
    managers = [_manager(one) for one in meta["managedFields"]]
    return {**manifest, "metadata": {**meta, "managedFields": managers}}


def part_of(manifest: dict[str, Any], *, spec: Iterable[str] = (), status: Iterable[str] = ()) -> dict[str, Any]:
    """What tells which object it is, and these fields of it."""
    return {
        "metadata": fields_of(manifest.get("metadata"), _META),
        "spec": fields_of(manifest.get("spec"), spec),
        "status": fields_of(manifest.get("status"), status),
    }


def fields_of(part: Any, names: Iterable[str]) -> dict[str, Any]:
    """These fields of a part, as far as it has them."""
    return {name: part[name] for name in names if name in part} if isinstance(part, dict) else {}


def _manager(entry: dict[str, Any]) -> dict[str, Any]:
    kept = fields_of(entry, _OF_MANAGERS)
    scales = "f:replicas" in fields_of(entry.get("fieldsV1"), ("f:spec",)).get("f:spec", {})
    return kept | ({"fieldsV1": {"f:spec": {"f:replicas": {}}}} if scales else {})


def _shallow(data: bytes) -> bytes:
    """Goes over all bytes, and so no step for one of them is Python's own."""
    steps = _STRING.sub(_blank, data).translate(_STEPS)
    deep = bytes(map(DEPTH_MAX.__lt__, accumulate(memoryview(steps).cast("b"))))
    kept: list[bytes] = []
    end = 0
    while (begin := deep.find(1, end)) >= 0:
        # From the bracket that goes too deep to the one that comes back, which is not deep any more itself.
        kept += (data[end:begin], b"null")
        if (back := deep.find(0, begin)) < 0:
            return b""  # it never does, so this is no JSON
        end = back + 1
    return b"".join((*kept, data[end:]))


def _blank(string: re.Match[bytes]) -> bytes:
    return b" " * (string.end() - string.start())
