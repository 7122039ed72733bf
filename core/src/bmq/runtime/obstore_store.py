"""An ObjectStore over obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure, and memory.

A create goes out once, with If-None-Match (or the store's own condition), and is never repeated by the client library;
the other verbs are repeated twice. Each verb has a time limit of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store
from typing_extensions import Buffer

from bmq.errors import ConfigurationError, ObjectMissing, StoreUnavailable, StoreUnusable, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.runtime.object_key import checked_key, folder_of_prefix
from bmq.runtime.obstore_errors import create_error, describe, is_beyond_the_end, read_error
from bmq.runtime.store_credentials import check_credentials
from bmq.runtime.store_url import StoreKind, StoreUrl

Client: TypeAlias = S3Store | GCSStore | AzureStore | MemoryStore

LIST_PAGE_COUNT: Final = 1000
READ_RETRIES: Final = 2
_IDLE_CONNECTION: Final = timedelta(seconds=15)
"""Below the 20 s after which S3 closes an idle connection: a create on one that just closed would be an unknown
outcome."""
_CONNECT: Final = timedelta(seconds=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTimeouts:
    """How long each verb may take, in milliseconds; of a listing, each page."""

    create_ms: int = 10_000
    get_ms: int = 20_000
    list_page_ms: int = 20_000
    delete_ms: int = 10_000
    head_ms: int = 10_000


class ObstoreStore:
    """Objects at `<prefix><key>` of a bucket. `parts` of a create go out without being joined first; they must not
    change until it returns.
    """

    def __init__(self, *, creates: Client, others: Client, url: StoreUrl, timeouts: StoreTimeouts) -> None:
        self._creates = creates
        self._others = others
        self._prefix = url.prefix
        self._name = url.text.partition("?")[0]
        self._timeouts = timeouts

    @classmethod
    def open(cls, url: StoreUrl, *, timeouts: StoreTimeouts | None = None) -> "ObstoreStore":
        """Makes the clients; sends nothing. Raises ConfigurationError."""
        timeouts = timeouts or StoreTimeouts()
        try:
            if url.kind is StoreKind.MEMORY:
                memory = MemoryStore()
                return cls(creates=memory, others=memory, url=url, timeouts=timeouts)
            check_credentials(url)
            creates = open_client(url, retries=0, timeout_ms=timeouts.create_ms)
            others = open_client(
                url,
                retries=READ_RETRIES,
                timeout_ms=max(timeouts.get_ms, timeouts.list_page_ms, timeouts.delete_ms, timeouts.head_ms),
            )
            return cls(creates=creates, others=others, url=url, timeouts=timeouts)
        except (BaseError, ValueError) as error:
            raise ConfigurationError(f"{describe(f'store {url.text}', error)}: see docs/stores.md") from error

    def close(self) -> None:
        """Connections close with the last reference; nothing waits."""

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Makes the object in one request, which the store refuses where the key exists and which is never retried.
        Raises Conflict, NotApplied, UnknownOutcome.
        """
        path = self._prefix + checked_key(key)
        views = [memoryview(part).cast("B") for part in parts]
        try:
            async with asyncio.timeout(self._timeouts.create_ms / 1000):
                await obstore.put_async(self._creates, path, views, mode="create", use_multipart=False)
        except TimeoutError as error:
            raise UnknownOutcome(describe(self._where("create", key), error)) from error
        except (BaseError, FileNotFoundError) as error:
            raise create_error(self._where("create", key), error) from error

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Asks for the object's bytes from `start`; fewer than `length` where it ends. Raises ObjectMissing,
        StoreUnavailable.
        """
        path = self._prefix + checked_key(key)
        if length == 0:
            await self.head(key)  # a range of no bytes cannot be asked for; a missing key still has to be told
            return b""
        try:
            async with asyncio.timeout(self._timeouts.get_ms / 1000):
                if length is not None:
                    return bytes(await obstore.get_range_async(self._others, path, start=start, length=length))
                result = await obstore.get_async(
                    self._others, path, options={"range": {"offset": start}} if start else None
                )
                return bytes(await result.bytes_async())
        except (BaseError, FileNotFoundError, TimeoutError) as error:
            if is_beyond_the_end(error):
                return b""
            raise read_error(self._where("get", key), error) from error

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Lists the prefix's folder page by page, and tells the keys that start with the prefix. Raises
        StoreUnavailable, and StoreUnusable where the store lists keys out of order (S3's directory buckets do).
        """
        folder = self._prefix + folder_of_prefix(prefix)
        # The store's own prefixes are whole segments. The key just below `prefix` skips what sorts before it.
        after = max(after, prefix[:-1])
        offset = self._prefix + after
        if not offset.startswith(folder):
            if offset > folder:
                return
            offset = ""  # below everything in the folder; MinIO lists nothing from a start outside the prefix
        pages = aiter(obstore.list(self._others, folder or None, offset=offset or None, chunk_size=LIST_PAGE_COUNT))
        newest = after
        while True:
            try:
                async with asyncio.timeout(self._timeouts.list_page_ms / 1000):
                    page = await anext(pages)
            except StopAsyncIteration:
                return
            except (BaseError, FileNotFoundError, TimeoutError) as error:
                raise StoreUnavailable(describe(self._where("list", prefix), error)) from error
            for found in page:
                key = found["path"].removeprefix(self._prefix)
                if key <= newest:
                    if newest == after:
                        continue  # the store told `after` itself
                    raise StoreUnusable(
                        f"{self._where('list', prefix)}: {key} after {newest}: the store lists keys out of order; "
                        "use another bucket type"
                    )
                newest = key
                if key.startswith(prefix):
                    yield _meta(key, found)
                elif key > prefix:
                    return

    async def delete(self, key: str) -> None:
        """Deletes the object; a missing key is success. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(self._timeouts.delete_ms / 1000):
                await obstore.delete_async(self._others, self._prefix + checked_key(key))
        except (BaseError, FileNotFoundError, TimeoutError) as error:
            problem = read_error(self._where("delete", key), error)
            if not isinstance(problem, ObjectMissing):
                raise problem from error

    async def head(self, key: str) -> ObjectMeta:
        """Asks for the object's size and modification time, which may be rounded down to a second. Raises
        ObjectMissing, StoreUnavailable.
        """
        try:
            async with asyncio.timeout(self._timeouts.head_ms / 1000):
                return _meta(key, await obstore.head_async(self._others, self._prefix + checked_key(key)))
        except (BaseError, FileNotFoundError, TimeoutError) as error:
            raise read_error(self._where("head", key), error) from error

    def _where(self, verb: str, key: str) -> str:
        return f"{verb} {key} in {self._name}"


def _meta(key: str, found: "obstore.ObjectMeta") -> ObjectMeta:
    return ObjectMeta(key=key, size_bytes=found["size"], modified_ms=int(found["last_modified"].timestamp() * 1000))


def open_client(url: StoreUrl, *, retries: int, timeout_ms: int) -> Client:
    """obstore's own client of a bucket; sends nothing. Raises BaseError and ValueError for what obstore refuses."""
    client_options: dict[str, Any] = {
        "timeout": timedelta(milliseconds=timeout_ms),
        "connect_timeout": _CONNECT,
        "pool_idle_timeout": _IDLE_CONNECTION,
        "allow_http": url.endpoint is not None and url.endpoint.startswith("http://"),
        "user_agent": "bmq",
    }
    if url.ca_file is not None:
        client_options["root_certificate"] = url.ca_file.read_bytes()
    retry: Any = {
        "max_retries": retries,
        "retry_timeout": timedelta(milliseconds=timeout_ms),
        "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
    }
    common: dict[str, Any] = {"client_options": client_options, "retry_config": retry}
    if url.endpoint is not None:
        common["base_url" if url.kind is StoreKind.GCS else "endpoint"] = url.endpoint.rstrip("/")
    match url.kind:
        case StoreKind.S3:
            return S3Store(
                url.bucket,
                region=url.region,
                virtual_hosted_style_request=not url.path_style,
                unsigned_payload=url.unsigned_payload,
                disable_bulk_delete=True,
                **common,
            )
        case StoreKind.GCS:
            # the library's own switch (skip_signature) holds for reads alone: a create would still ask for a token
            if url.anonymous:
                common["bearer_token"] = "anonymous"
            return GCSStore(url.bucket, **common)
        case StoreKind.AZURE:
            return AzureStore(url.bucket, account_name=url.account, **common)
        case StoreKind.FILE | StoreKind.MEMORY:
            raise ConfigurationError(f"store {url.text}: not a bucket")
