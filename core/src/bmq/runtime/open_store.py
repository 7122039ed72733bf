"""From a URL to a store: the one place that knows every kind."""

from bmq.runtime.folder_store import FolderStore
from bmq.runtime.obstore_store import ObstoreStore, StoreTimeouts
from bmq.runtime.store_url import StoreKind, parse_store_url


def open_store(text: str, *, fsync: bool = True, timeouts: StoreTimeouts | None = None) -> FolderStore | ObstoreStore:
    """The store at a URL (docs/stores.md); close it at the end. Blocks; sends nothing to a bucket yet (`bucket`,
    `self_test`).

    `fsync=False` turns durability of a folder off, like `?fsync=false`. Raises ConfigurationError (one line).
    """
    url = parse_store_url(text)
    if url.kind is StoreKind.FILE:
        assert url.folder is not None
        return FolderStore.open(url.folder, fsync=fsync and url.fsync, shared=url.shared, ring=url.ring)
    return ObstoreStore.open(url, timeouts=timeouts)
