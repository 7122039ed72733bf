"""Where tables and checkpoints lie: a folder or a bucket by URI, with the few verbs that they need.

A folder is a path or file://…; a bucket is s3a://BUCKET/PREFIX (s3, gs, az too), with credentials and endpoint from the
environment as bmq's own store has them (docs/stores.md). A bucket that is busy or not reached is asked again for a
while. Everything blocks: this runs in drivers and in Spark's Python workers, which have no event loop.
"""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore

from bmq.errors import ConfigurationError, Conflict, NotApplied, ObjectMissing, UnknownOutcome
from bmq.runtime.obstore_errors import create_error, describe, may_pass, read_error
from bmq.runtime.obstore_store import Client, open_client
from bmq.runtime.store_credentials import check_credentials
from bmq.runtime.store_url import StoreKind, parse_store_url
from bmq_spark.durable_files import create_file, is_half_written, replace_file
from bmq_spark.patience import PATIENCE, Patience

CREATE_TIMEOUT_MS: Final = 60_000
UPLOAD_CHUNK_BYTES: Final = 16 << 20
_HADOOP_SCHEMES: Final = {StoreKind.S3: "s3a", StoreKind.GCS: "gs", StoreKind.AZURE: "abfs"}


@dataclass(frozen=True, slots=True)
class Found:
    """An object of a listing; `key` is below the location that was listed."""

    key: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or a bucket's prefix. A value: it may be sent to other processes, each of which opens its own client."""

    uri: str
    """`file:///absolute/folder`, or `s3://bucket/prefix?options` as bmq's stores are written."""
    patience: Patience = field(default=PATIENCE, kw_only=True, compare=False, repr=False)
    """With a bucket; a folder is asked once."""

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Raises ConfigurationError (one line)."""
        split = urlsplit(text)
        if not text or (split.query and not split.scheme):
            raise ConfigurationError(f"location {text!r}: write a folder, or s3a://BUCKET/PREFIX")
        if split.scheme in ("", "file"):
            if split.scheme:
                parse_store_url(text)  # what it refuses of a folder's URL: another one would be meant than is named
            path = unquote(split.path) if split.scheme else text
            return cls(Path(path).absolute().as_uri())
        uri = "s3" + text[3:] if split.scheme == "s3a" else text
        url = parse_store_url(uri)
        if url.kind is StoreKind.MEMORY:
            raise ConfigurationError(
                f"location {text}: nothing that a table is kept in: write a folder, or s3a://BUCKET/PREFIX"
            )
        check_credentials(url)
        return cls(uri)

    def child(self, name: str) -> "Location":
        """The location `name` (parts separated by slashes) below this one."""
        path, mark, options = self.uri.partition("?")
        return Location(f"{path.rstrip('/')}/{name}{mark}{options}", patience=self.patience)

    @property
    def folder(self) -> Path | None:
        """The folder, unless this is a bucket."""
        return Path(unquote(urlsplit(self.uri).path)) if self.uri.startswith("file:") else None

    def hadoop(self, key: str = "") -> str:
        """The URI by which Spark and DuckDB reach `key` here."""
        if self.folder is not None:
            return str(self.folder / key)
        url = parse_store_url(self.uri)
        return f"{_HADOOP_SCHEMES[url.kind]}://{url.bucket}/{url.prefix}{key}"

    def create(self, key: str, content: bytes) -> bool:
        """Creates the object unless one is there, durably; False where one with other content is.

        An unknown outcome is settled by reading what is there, so `content` has to say who wrote it; what certainly was
        not applied is sent again. Raises StoreError.
        """
        if self.folder is not None:
            return create_file(self.folder / key, content, root=self.folder)
        path = self._path(key)
        try:
            self.patience.ask(
                lambda: obstore.put(_client(self.uri), path, content, mode="create", use_multipart=False),
                _is_worth_another,
            )
        except (BaseError, FileNotFoundError) as error:
            outcome = create_error(self._told("create", path, error, again=_is_worth_another(error)), error)
            if not isinstance(outcome, Conflict | UnknownOutcome):
                raise outcome from error
            try:
                return self.read(key) == content
            except ObjectMissing:
                raise outcome from error
        return True

    def upload(self, key: str, file: Path) -> None:
        """Writes a local file as the object `key`, durably and at once: a reader sees all of it or nothing. What was
        there is replaced.

        Raises StoreError.
        """
        if self.folder is not None:
            replace_file(self.folder / key, file, root=self.folder)
            return
        path = self._path(key)

        def put() -> None:
            with file.open("rb") as content:
                obstore.put(_client(self.uri), path, content, chunk_size=UPLOAD_CHUNK_BYTES, max_concurrency=2)

        try:
            self.patience.ask(put, may_pass)
        except (BaseError, FileNotFoundError) as error:
            raise read_error(self._told("upload", path, error), error) from error

    def read(self, key: str) -> bytes:
        """Raises ObjectMissing, StoreUnavailable."""
        path = self._path(key)
        if self._is_no_folder:
            raise ObjectMissing(f"read {path} at {self.uri}")
        try:
            return self.patience.ask(lambda: bytes(obstore.get(_client(self.uri), path).bytes()), may_pass)
        except (BaseError, FileNotFoundError) as error:
            raise read_error(self._told("read", path, error), error) from error

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[Found]:
        """What lies below `prefix` (whole parts of a key), in no order on a folder; of a bucket only keys above
        `after`.

        Raises StoreUnavailable.
        """
        if self._is_no_folder:
            return
        base = self._path("")
        offset = self._path(after) if after is not None and self.folder is None else None
        pages = _Pages(_client(self.uri), self._path(prefix) or None, offset)
        try:
            while page := self.patience.ask(pages.next, may_pass):
                for found in page:
                    if self.folder is not None and is_half_written(found["path"]):
                        continue
                    yield Found(
                        found["path"].removeprefix(base), found["size"], int(found["last_modified"].timestamp() * 1000)
                    )
        except (BaseError, FileNotFoundError) as error:
            raise read_error(self._told("list", prefix, error), error) from error

    def delete(self, key: str) -> None:
        """Nothing happens where it is gone. Raises StoreUnavailable."""
        if self._is_no_folder:
            return
        path = self._path(key)
        try:
            self.patience.ask(lambda: obstore.delete(_client(self.uri), path), may_pass)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise read_error(self._told("delete", path, error), error) from error

    @property
    def _is_no_folder(self) -> bool:
        """Whether nothing lies here, since nobody has made the folder: who only looks makes none."""
        if self.folder is None:
            return False
        try:
            return not stat.S_ISDIR(self.folder.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # there is something, and whoever opens it says what is wrong

    def _told(self, verb: str, path: str, error: Exception, *, again: bool = True) -> str:
        """What was tried, where, and for how long if it was tried `again`."""
        where = f"{verb} {path} at {self.uri}"
        return f"{where}, for {self.patience.wait_s:g} s" if again and may_pass(error) else where

    def _path(self, key: str) -> str:
        return key if self.folder is not None else parse_store_url(self.uri).prefix + key


def passes(error: BaseException | None) -> bool:
    """Whether what failed by an error of a bucket may succeed a moment later."""
    while error is not None:
        if isinstance(error, BaseError):
            return may_pass(error)
        error = error.__cause__
    return False


def _is_worth_another(error: Exception) -> bool:
    """Whether a create may be sent again: it certainly was not applied, and may be."""
    return may_pass(error) and isinstance(create_error("create", error), NotApplied)


class _Pages:
    """A listing's, which goes on behind the last key that was told when a page failed: a bucket tells keys in order."""

    def __init__(self, client: Client | LocalStore, prefix: str | None, after: str | None) -> None:
        self._client = client
        self._prefix = prefix
        self._after = after
        self._pages: Iterator[Sequence[obstore.ObjectMeta]] | None = None

    def next(self) -> "Sequence[obstore.ObjectMeta]":
        """Nothing at the end. Raises what obstore raises; the page may be asked for again then."""
        if self._pages is None:
            self._pages = obstore.list(self._client, self._prefix, offset=self._after)
        try:
            page = next(self._pages, ())
        except BaseError:
            self._pages = None
            raise
        if page:
            self._after = page[-1]["path"]
        return page


@lru_cache(maxsize=64)
def _client(uri: str) -> Client | LocalStore:
    try:
        if uri.startswith("file:"):
            return LocalStore(unquote(urlsplit(uri).path))
        return open_client(parse_store_url(uri), retries=2, timeout_ms=CREATE_TIMEOUT_MS)
    except (BaseError, ValueError, OSError) as error:
        raise ConfigurationError(f"{describe(f'location {uri}', error)}: see docs/stores.md") from error
