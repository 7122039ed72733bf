"""What a manifest version gives up. Pure: the one place where it is decided which objects of a partition may go because
they are named no more.
"""

from collections.abc import Mapping, Sequence

from bmq.storage.manifest import Manifest, PageRef
from bmq.storage.segment import SegmentEntry

PageEntries = Mapping[str, Sequence[SegmentEntry]]
"""Entries by the key of their page."""


def pages_apart(old: Manifest, new: Manifest) -> tuple[PageRef, ...]:
    """The pages that one of two versions names and the other does not: their entries decide what is released."""
    both = set(old.pages) & set(new.pages)
    return tuple(page for page in (*old.pages, *new.pages) if page not in both)


def released(old: Manifest, new: Manifest, entries: PageEntries) -> frozenset[str]:
    """Keys of objects that `old` names, on its pages or itself, and `new` does not: never anything else.

    `entries` of `pages_apart`, as far as they could be read. A page of `old` that could not be stays with all that it
    may name; where one of `new` could not, nothing is released: what is not known counts as named.
    """
    if any(page.key not in entries for page in pages_apart(old, new) if page in new.pages):
        return frozenset()
    unread = {page.key for page in old.pages if page not in new.pages and page.key not in entries}
    return _named(old, entries) - _named(new, entries) - unread


def _named(manifest: Manifest, entries: PageEntries) -> frozenset[str]:
    """What pages that are in both versions name is left out: it is named by both."""
    return manifest.keys() | {entry.key for page in manifest.pages for entry in entries.get(page.key, ())}
