"""Protobuf schemas: .proto files with what they import, compiled by protoc, or descriptor sets; and which message of
them is meant.
"""

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from bmq_spark.errors import BmqError, ConfigurationError, ProtocFailed
from bmq_spark.values.protobuf_shipped import SHIPPED
from bmq_spark.values.schema_files import SchemaFile, read_schema

PROTOC_TIMEOUT_S: Final = 60
FILES: Final = 500
"""Files that one may import, all told."""
ROOTS_ABOVE: Final = 4
"""Folders above a file in which what it imports is looked for."""
_TOKEN: Final = re.compile(
    r"""/\*.*?(?:\*/|\Z)|//[^\n]*|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>[A-Za-z_]\w*)|(?P<mark>[^\s\w])""",
    re.DOTALL,
)
_OF_PROTOC: Final = "google/protobuf/"
REFUSED: Final = 1
"""The code with which protoc ends where it says what is wrong."""
_WARNING: Final = re.compile(r"(?::\d+:\d+)?: warning: ")
"""Behind a file's name, what it says of a file that it takes."""
_NOT_FOUND: Final = "File not found."
"""What it says of a file that is given to it only where that was taken away, or it may not open more of them."""
_NO_PATH: Final = frozenset((errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ))


def read_protobuf_schema(source: SchemaFile, message: str | None) -> tuple[bytes, str]:
    """A serialized FileDescriptorSet and the full name of the message. Raises ConfigurationError, ProtocFailed."""
    descriptors = (
        compiled(dict(_with_imports(source)), _file_name(source), source.name)
        if source.suffix == ".proto"
        else _descriptor_set(source)
    )
    return descriptors.SerializeToString(), _message(descriptors, message, source.name)


def compiled(files: dict[str, bytes], main: str, name: str) -> FileDescriptorSet:
    """What protoc makes of `main`, the files by the paths under which they import each other. Raises
    ConfigurationError where it refuses them, ProtocFailed where it came to no verdict.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="bmq-proto-") as temporary:
            folder, shipped, output = f"{temporary}/given", f"{temporary}/shipped", Path(temporary) / "descriptors"
            _write(folder, files, name)
            if any(b"google/type/" in content or b"confluent/" in content for content in files.values()):
                _write(shipped, SHIPPED, name)
            else:
                os.mkdir(shipped)
            run = subprocess.run(
                [
                    *(sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{shipped}", "--include_imports"),
                    f"--descriptor_set_out={output}",
                    f"{folder}/{main}",  # the whole path: a name that begins with a dash would be an option
                ],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=PROTOC_TIMEOUT_S,
                check=False,
            )
            if run.returncode:
                raise _refusal(run.returncode, run.stderr.replace(folder + "/", "").split("\n"), files, name)
            return FileDescriptorSet.FromString(output.read_bytes())
    except subprocess.TimeoutExpired as error:
        raise _no_verdict(name, f"took longer than {PROTOC_TIMEOUT_S} s") from error
    except OSError as error:
        raise _no_verdict(name, f"could not run ({type(error).__name__}: {error})") from error


def _refusal(code: int, said: list[str], files: Mapping[str, bytes], name: str) -> BmqError:
    """What to raise where protoc ended with another code than 0. Only lines that begin with the name of one of the
    files are its verdict on them: what ends it before, or leaves it no room for what it writes, are no lines of that
    kind.
    """
    verdict = next((line for line in said if any(_is_of(line, file) for file in files)), None)
    vanished = any(f"{file}: {_NOT_FOUND}" in said for file in files)
    if code == REFUSED and verdict is not None and not vanished:
        return ConfigurationError(
            f"schema {name}: protoc says {verdict.strip()[:300]}: mend the file, or give a descriptor set"
        )
    if code < 0:
        return _no_verdict(name, f"was ended by signal {-code}")
    last = next((line.strip() for line in reversed(said) if line.strip()), "no reason given")
    return _no_verdict(name, f"ended with code {code}: {last[:300]}")


def _is_of(line: str, file: str) -> bool:
    """Whether protoc says there what is wrong in the file."""
    return line.startswith(f"{file}:") and not _WARNING.match(line, len(file))


def _no_verdict(name: str, what: str) -> ProtocFailed:
    return ProtocFailed(
        f"schema {name}: protoc {what}: that is this machine's fault, and says nothing of the schema: give it more "
        "memory, and room where temporary files go (TMPDIR), and run the job again: the place is kept; a schema that "
        "needs more time may be given as a descriptor set"
    )


def _write(folder: str, files: Mapping[str, bytes], name: str) -> None:
    """Raises ConfigurationError where a path cannot be a file's beside the others, OSError where there is no room."""
    for path, content in files.items():
        place = Path(folder) / _inside(path, name)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_PATH:
                raise
            raise ConfigurationError(
                f"schema {name}: imports {path!r:.200}, which cannot be a file beside the others: give it another name"
            ) from error


def messages_of(descriptors: FileDescriptorSet) -> dict[tuple[int, ...], str]:
    """The messages of the last file, which is the one that was compiled, by their indexes as Confluent's wire format
    has them.
    """
    file = descriptors.file[-1]
    return dict(_numbered(file.message_type, _prefix(file.package), ()))


def _prefix(package: str) -> str:
    """What messages of a package have before their names."""
    return f"{package}." if package else ""


def _numbered(
    messages: Iterable[DescriptorProto], prefix: str, path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], str]]:
    for index, message in enumerate(messages):
        yield (*path, index), prefix + message.name
        yield from _numbered(message.nested_type, f"{prefix}{message.name}.", (*path, index))


def _message(descriptors: FileDescriptorSet, wanted: str | None, name: str) -> str:
    everywhere = {
        found: file.package
        for file in descriptors.file
        for _, found in _numbered(file.message_type, _prefix(file.package), ())
    }
    if wanted is not None:
        matching = (
            [found for found in everywhere if found == wanted]
            or [found for found, package in everywhere.items() if found.removeprefix(_prefix(package)) == wanted]
            or [found for found in everywhere if found.rpartition(".")[2] == wanted]
        )
        if len(matching) == 1:
            return matching[0]
        what = "is not in it" if not matching else f"could be any of {', '.join(matching)}"
        raise ConfigurationError(f"schema {name}: message {wanted} {what}: it has {_some(list(everywhere))}")
    own = [found for path, found in messages_of(descriptors).items() if len(path) == 1]
    if len(own) != 1:
        raise ConfigurationError(
            f"schema {name}: more than one message, or none: say which by its name (it has {_some(own)})"
        )
    return own[0]


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "") or "none"


def _descriptor_set(source: SchemaFile) -> FileDescriptorSet:
    try:
        descriptors = FileDescriptorSet.FromString(source.content)
    except DecodeError as error:
        raise source.broken(
            "not a descriptor set", "give a .proto file, or what protoc --include_imports --descriptor_set_out writes"
        ) from error
    if not descriptors.file:
        raise source.broken(
            "a descriptor set without files",
            "give a .proto file, or what protoc --include_imports --descriptor_set_out writes",
        )
    there = {file.name for file in descriptors.file}
    missing = [name for file in descriptors.file for name in file.dependency if name not in there]
    if missing:
        raise source.broken(
            f"{missing[0]} is imported and not in the descriptor set", "write it with protoc --include_imports"
        )
    return descriptors


def _with_imports(source: SchemaFile) -> Iterator[tuple[str, bytes]]:
    """The file and all that it imports, looked for beside it and in the folders above."""
    name = _file_name(source)
    path, mark, options = source.name.partition("?")
    folder = (path if "://" in path else os.path.abspath(path)).rpartition("/")[0]
    yield name, source.content
    waiting, seen = _imports(source), {name}
    while waiting:
        path = waiting.pop()
        if path in seen or path.startswith(_OF_PROTOC):
            continue
        seen.add(path)
        if len(seen) > FILES:
            raise source.broken(f"more than {FILES} files are imported", "give a descriptor set")
        found = _found(source, folder, _inside(path, source.name), mark + options)
        yield path, found.content
        waiting.extend(_imports(found))


def _found(source: SchemaFile, folder: str, path: PurePosixPath, options: str) -> SchemaFile:
    """In the folder (a whole path, or a URI without its options) or above it, or among SHIPPED. Raises
    ConfigurationError.
    """
    why = ""
    for _ in range(ROOTS_ABOVE + 1):
        try:
            return read_schema(f"{folder}/{path}{options}")
        except ConfigurationError as error:
            why = why or str(error)
        if "/" not in folder.partition("://")[2] and ("://" in folder or not folder):
            break
        folder = folder.rpartition("/")[0]
    if str(path) in SHIPPED:
        return SchemaFile(name=str(path), content=SHIPPED[str(path)])
    raise source.broken(
        f"imports {path}, which is neither beside it nor in the folders above ({why})",
        "put it there, or give a descriptor set",
    )


def _imports(source: SchemaFile) -> list[str]:
    """The paths as they are written; an escape in one is left to protoc, which does not find the file then."""
    found: list[str] = []
    parts: list[str] | None = None
    begins = True
    for token in _TOKEN.finditer(source.text):
        kind, text = token.lastgroup, token[0]
        if kind is None:  # a comment
            continue
        if parts is None:
            parts = [] if begins and text == "import" else None
        elif kind == "text":
            parts.append(text[1:-1])
        elif text not in ("public", "weak") or parts:
            found += ["".join(parts)] if text == ";" and parts else []
            parts = None
        begins = text in (";", "{", "}")
    return found


def _file_name(source: SchemaFile) -> str:
    return PurePosixPath(source.name.partition("?")[0]).name


def _inside(path: str, name: str) -> PurePosixPath:
    """An import's path, which must not lead out of the folder that is compiled."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise ConfigurationError(f"schema {name}: imports {path}: write paths below a folder, without '..'")
    return pure
