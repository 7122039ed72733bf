"""The files of `bmq apply`: YAML documents of Cluster, Topic, Lane, Channel and ParquetSink, checked as Kubernetes
would. Reads files; talks to nobody.

Everything that is wrong with all files is told at once, each with file, document, field, value and remedy. Documents
that are Kubernetes' own (a Namespace, a Secret) are passed over and named.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, SeveralFailed, one_line
from bmq_resources import KINDS
from bmq_resources.base import API_VERSION, GROUP
from bmq_resources.channel import Channel
from bmq_resources.checks import Finding, check
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

FILE_BYTES_MAX: Final = 16 << 20
SUFFIXES: Final = (".yaml", ".yml", ".json")
_KINDS: Final = {kind.__name__: kind for kind in KINDS}
_VALUES_MAX: Final = 100_000
"""How many values one document may have: YAML's references make a short text as long as one likes."""

Written = Cluster | Topic | Lane | Channel | ParquetSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A resource and where it stands."""

    where: str
    resource: Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """All that was read, in its order. `passed_over`: what is Kubernetes' own."""

    documents: list[Document]
    passed_over: list[str]


def read_documents(names: Sequence[str]) -> Documents:
    """Reads the documents of files, of folders (their YAML and JSON files, by name) and, where a name is `-`, of
    standard input. Raises SeveralFailed, CommandFailed.
    """
    read, passed_over = [], []
    failures: list[CommandFailed] = []
    for name in names:
        for source, text in _texts(name):
            for number, document in _parsed(source, text):
                where = f"{source}, document {number}"
                api_version, kind = (document.get(field) for field in ("apiVersion", "kind"))
                if isinstance(api_version, str) and api_version.partition("/")[0] != GROUP:
                    passed_over.append(f"{where} ({kind})")
                    continue
                found = _resource(document, where)
                if isinstance(found, Document):
                    read.append(found)
                else:
                    failures += found
    failures += _twice(read)
    if failures:
        raise SeveralFailed(failures)
    if not read:
        raise CommandFailed(
            ", ".join(names),
            f"there is no Cluster, Topic, Lane, Channel or ParquetSink of {API_VERSION} in it",
            "name another file",
            code=ExitCode.USAGE,
        )
    return Documents(documents=read, passed_over=passed_over)


def title(resource: Written) -> str:
    """`Topic orders`."""
    return f"{resource.kind} {resource.metadata.name}"


def cluster_of(resource: Written) -> tuple[str, str]:
    """Namespace and name of the Cluster that it is, or is in."""
    if isinstance(resource, Cluster):
        return resource.metadata.namespace, resource.metadata.name
    reference = resource.spec.cluster_ref
    return reference.namespace or resource.metadata.namespace, reference.name


def _texts(name: str) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "standard input", _decoded("standard input", sys.stdin.buffer.read(FILE_BYTES_MAX + 1))
        return
    path = Path(name)
    try:
        files = (
            sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
            if path.is_dir()
            else [path]
        )
        if not files:
            raise CommandFailed(
                name, "the folder has no YAML and no JSON file", "name another one", code=ExitCode.USAGE
            )
        for file in files:
            with file.open("rb") as opened:
                yield str(file), _decoded(str(file), opened.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise CommandFailed(
            name, f"cannot be read: {(error.strerror or str(error)).lower()}", "name another file", code=ExitCode.USAGE
        ) from error


def _decoded(source: str, data: bytes) -> str:
    if len(data) > FILE_BYTES_MAX:
        raise CommandFailed(source, f"it has more than {FILE_BYTES_MAX >> 20} MiB", "split it", code=ExitCode.USAGE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandFailed(
            source, f"byte {error.start} is not UTF-8", "save it as UTF-8", code=ExitCode.USAGE
        ) from error


def _parsed(source: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Documents that have something in them, by their number; a List's items count as documents of its own."""
    number = 0
    try:
        for found in yaml.load_all(text, Loader=_Loader):
            number += 1
            if found is None:
                continue
            if _count(found, _VALUES_MAX) > _VALUES_MAX:
                raise CommandFailed(
                    f"{source}, document {number}", f"more than {_VALUES_MAX} values", "split it", code=ExitCode.USAGE
                )
            items = (
                found.get("items") if isinstance(found, dict) and str(found.get("kind", "")).endswith("List") else None
            )
            for one in items if isinstance(items, list) else [found]:
                if not isinstance(one, dict):
                    raise CommandFailed(
                        f"{source}, document {number}",
                        "it is no resource",
                        "begin it with apiVersion and kind",
                        code=ExitCode.USAGE,
                    )
                yield number, one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        why = one_line(str(getattr(error, "problem", "") or error))
        raise CommandFailed(f"{source}{line}", f"it is not YAML: {why}", "mend it", code=ExitCode.USAGE) from error
    except (RecursionError, ValueError) as error:
        raise CommandFailed(source, "it is not YAML that can be read", "mend it", code=ExitCode.USAGE) from error


def _resource(document: dict[str, Any], where: str) -> Document | list[CommandFailed]:
    api_version, name = document.get("apiVersion"), document.get("kind")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if api_version != API_VERSION:
        return [
            _failure(
                where,
                Finding(
                    field="apiVersion",
                    value=_text(api_version),
                    why="bmq does not know it",
                    remedy=f"write {API_VERSION}",
                ),
            )
        ]
    if kind is None:
        remedy = f"write one of {', '.join(_KINDS)}"
        return [_failure(where, Finding(field="kind", value=_text(name), why="bmq does not know it", remedy=remedy))]
    found = check(kind, document)
    if isinstance(found, list):
        metadata = document.get("metadata")
        named = _text(metadata.get("name")) if isinstance(metadata, dict) else ""
        return [
            _failure(f"{where} ({kind.__name__} {named})" if named else f"{where} ({kind.__name__})", one)
            for one in found
        ]
    assert isinstance(found, Cluster | Topic | Lane | Channel | ParquetSink)
    return Document(where=where, resource=found)


def _failure(where: str, finding: Finding) -> CommandFailed:
    why = f"{finding.value!r}: {finding.why}" if finding.value else finding.why
    return CommandFailed(f"{where}, {finding.field}", why, finding.remedy, code=ExitCode.USAGE)


def _twice(documents: Sequence[Document]) -> Iterator[CommandFailed]:
    """A resource that stands there twice, and two Topics, Lanes or Channels for one name of a cluster's."""
    seen: dict[tuple[object, ...], Document] = {}
    for document in documents:
        resource = document.resource
        keys: list[tuple[object, ...]] = [(resource.kind, resource.metadata.namespace, resource.metadata.name)]
        match resource:
            case Topic():
                keys.append(("topic", cluster_of(resource), resource.topic_name))
            case Lane():
                keys.append(("lane", cluster_of(resource), resource.lane_name))
            case Channel():
                keys.append(("channel", cluster_of(resource), resource.channel_name))
        for key in keys:
            first = seen.setdefault(key, document)
            if first is not document:
                what = title(resource) if key[0] == resource.kind else f"{title(resource)}: {key[0]} {key[2]}"
                yield CommandFailed(
                    f"{document.where} ({what})",
                    f"{first.where} says it already",
                    "keep one of them",
                    code=ExitCode.USAGE,
                )
                break


def _count(value: object, most: int) -> int:
    """How many values there are in it; counted until there are more than `most`."""
    count, left = 0, [value]
    while left and count <= most:
        count += 1
        one = left.pop()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return count


def _text(value: object) -> str:
    return "" if value is None else str(value)[:60]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a key written twice, of which one would be lost silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value} stands there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)
