"""Opening a store for a tool: only reading it, beside whatever runs on it, or for itself alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from bmq.errors import ConfigurationError
from bmq.ports import ObjectStore
from bmq.runtime.open_store import open_store
from bmq.runtime.read_only_folder import open_read_only
from bmq.runtime.store_url import StoreKind, StoreUrl, parse_store_url
from bmq_node.process.starting import keep_private


def url_of(*, named: str | None, store: str | None, data: Path | None) -> StoreUrl:
    """Which store is meant; `named` is a folder or a URL. Raises ConfigurationError."""
    given = [text for text in (named, store and f"--store {store}", data and f"--data {data}") if text]
    if len(given) > 1:
        raise ConfigurationError(f"{' and '.join(given)} are both given: give one of them")
    if named == "":
        raise ConfigurationError("the store's name is empty: give a folder or a URL, or leave it out")
    url = parse_store_url(store) if store is not None else _folder_or_url(named or str(data or "bmq-data"))
    if url.kind is StoreKind.MEMORY:
        raise ConfigurationError(
            f"store {url.text}: nothing of it outlives its process, so there is nothing to look at"
        )
    if url.folder is not None:
        _check_folder(url.folder)
    return url


def target_of(text: str) -> StoreUrl:
    """Where something is written to: a URL, or a folder, which is made where it is not there. Raises
    ConfigurationError.
    """
    url = _folder_or_url(text)
    if url.kind is StoreKind.MEMORY:
        raise ConfigurationError(f"--to {text}: nothing of it outlives this command: name a folder or a bucket")
    return url


def _check_folder(folder: Path) -> None:
    """Raises ConfigurationError where it cannot be looked into: before something is said of a store that has
    nothing.
    """
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"data folder {folder}: there is no such folder: give the one that bmq keeps its data in"
        ) from None
    except PermissionError:
        remedy = "run this as the user that bmq runs as, or name another folder"
        raise ConfigurationError(f"data folder {folder}: permission denied: {remedy}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(
            f"data folder {folder}: it cannot be read ({reason}): look at its disk, or name another folder"
        ) from None


def _folder_or_url(text: str) -> StoreUrl:
    return parse_store_url(text if "://" in text else f"file://{quote(str(Path(text).absolute()))}")


@contextmanager
def opened(url: StoreUrl, *, alone: bool) -> Iterator[ObjectStore]:
    """`alone`: a folder is locked, so that no bmq runs on it meanwhile; else nothing at all is written to it. Raises
    BmqError.
    """
    if url.folder is not None and not alone:
        reader = open_read_only(url.folder)
        try:
            yield reader
        finally:
            reader.close()
        return
    if url.shared:
        raise ConfigurationError(
            f"store {url.text}: what is repaired or erased must not be shared: leave shared=true out"
        )
    before = keep_private(url.text)
    store = open_store(url.text)
    try:
        yield store
    finally:
        store.close()
        os.umask(before)
