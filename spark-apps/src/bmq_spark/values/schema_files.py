"""A schema as somebody wrote it: its text and where it lies, so that errors can name the file and the place in it."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from bmq_spark.errors import BmqError, ConfigurationError
from bmq_spark.locations import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFile:
    """`name` is what an error calls it: a path, a URI, or where else it came from."""

    name: str
    content: bytes

    @property
    def text(self) -> str:
        """Raises ConfigurationError."""
        try:
            return self.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.broken(f"not UTF-8 at byte {error.start}", "is this the right file?") from error

    @property
    def suffix(self) -> str:
        """`.avsc`, `.proto`, `.json`, `.ddl`, …; empty without one."""
        return PurePosixPath(self.name.partition("?")[0]).suffix.lower()

    def broken(self, what: str, remedy: str, *, position: int | None = None) -> ConfigurationError:
        """An error about this file; `position` counts characters of the text."""
        place = ""
        if position is not None:
            before = self.text[:position]
            place = f" line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}:"
        return ConfigurationError(f"schema {self.name}:{place} {what}: {remedy}")


def read_schema(uri: str) -> SchemaFile:
    """A file's or an object's content. Raises ConfigurationError."""
    folder, _, name = uri.partition("?")[0].rpartition("/")
    options = uri[len(folder) + len(name) + 1 :] if folder else ""
    try:
        return SchemaFile(name=uri, content=Location.parse((folder + options) if folder else ".").read(name))
    except ConfigurationError:
        raise
    except BmqError as error:
        raise ConfigurationError(
            f"schema {uri}: cannot be read ({error}): give a file's path, or an object's URI that this process may read"
        ) from error
