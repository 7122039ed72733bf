"""What is in a debug bundle, and how it is written. Everything comes from the admin API, which leaves records and
secrets out.
"""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bmq_admin.requests import PathPart
from bmq_cli.cluster.client import ApiFailed, ClusterClient
from bmq_cli.terminal.exit_codes import CommandFailed
from bmq_cli.wall_clock import now_ms, utc_text

NODES_MAX: Final = 200
_FOLDER: Final = "bmq-debug"
_PACKAGES: Final = ("bmq-cli", "bmq-core", "bmq-controller", "bmq-broker", "bmq-proxy", "confluent-kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file of the bundle."""

    name: str
    data: bytes


@dataclass(slots=True)
class Found:
    """The parts that could be had, and why others could not."""

    parts: list[Part] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)


def collect(client: ClusterClient, *, entries: int) -> Found:
    """Asks the node of the address, and through it all others. Raises ApiFailed where it does not answer at all, or
    lets nobody in.
    """
    found = Found()
    cluster = client.get("cluster")
    found.parts.append(_json_part("cluster.json", cluster))
    for name, ask in _pages(client, entries):
        _add(found, name, ask)
    if any(part.name == "nodes.json" for part in found.parts):
        for node in cluster["nodes"][:NODES_MAX]:
            number = node["node_id"]
            _add(found, f"nodes/{number}/self.json", _page(client, "nodes", number, "self"))
            _add(found, f"nodes/{number}/metrics.txt", partial(client.bytes_of, "nodes", number, "metrics"))
    else:  # nobody leads, so nobody asks the others
        _add(found, "self.json", _page(client, "self"))
        _add(found, "metrics.txt", client.own_metrics)
    if found.missing:
        found.parts.append(_json_part("missing.json", found.missing))
    found.parts.insert(0, _json_part("bundle.json", _about(client)))
    return found


def write(found: Found, path: Path) -> int:
    """The tar.gz at `path`, which must not be there yet; its size in bytes. Raises OSError."""
    with path.open("xb") as file:
        path.chmod(0o600)
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for part in found.parts:
                entry = tarfile.TarInfo(f"{_FOLDER}/{part.name}")
                entry.size = len(part.data)
                entry.mode = 0o600
                entry.mtime = now_ms() // 1000
                archive.addfile(entry, io.BytesIO(part.data))
    return path.stat().st_size


def _pages(client: ClusterClient, entries: int) -> list[tuple[str, Callable[[], bytes]]]:
    return [
        ("nodes.json", lambda: _document(list(client.items("nodes")))),
        ("metadata/image.json", partial(client.bytes_of, "debug", "image")),
        ("metadata/log.json", _page(client, "debug", "log", limit=entries)),
        ("store.json", _page(client, "debug", "store")),
        ("configs.json", _page(client, "configs")),
        ("load.json", _page(client, "load", limit=100)),
        ("balance.json", _page(client, "balance")),
        ("groups.json", lambda: _document(list(client.items("groups")))),
    ]


def _page(client: ClusterClient, *path: PathPart, **query: object) -> Callable[[], bytes]:
    return lambda: _document(client.get(*path, **query))


def _add(found: Found, name: str, ask: Callable[[], bytes]) -> None:
    try:
        found.parts.append(Part(name=name, data=ask()))
    except ApiFailed as failure:
        if failure.status in (401, 403):
            raise
        found.missing.append({"name": name, "why": str(failure)})
    except CommandFailed as failure:
        found.missing.append({"name": name, "why": str(failure)})


def _about(client: ClusterClient) -> dict[str, Any]:
    return {
        "made": utc_text(),
        "asked": list(client.urls),
        "versions": {package: _version(package) for package in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _json_part(name: str, document: Any) -> Part:
    return Part(name=name, data=_document(document))


def _document(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=1).encode()
