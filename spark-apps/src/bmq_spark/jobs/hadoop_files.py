"""A folder as Spark sees it: checkpoints may lie wherever Hadoop's file systems reach, which is more than locations.py
does.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from bmq.runtime.file_io import sync_file, sync_folder
from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.locations import Location

_OWN_SCHEMES: Final = ("file", "s3", "s3a", "gs", "az")
_CUT_OFF: Final = "org.apache.hadoop.fs.ChecksumException"


class HadoopFolder:
    """A folder by URI. Its methods raise JobStopped (one line) where it cannot be reached."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        scheme = uri.partition("://")[0] if "://" in uri else ""
        self.uri = Location.parse(uri).hadoop().rstrip("/") if scheme in ("", *_OWN_SCHEMES) else uri.rstrip("/")
        self._jvm: Any = spark._jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[no-untyped-call,unused-ignore]
        try:
            self._files = self._path("").getFileSystem(self._conf)
        except Py4JJavaError as error:
            raise ConfigurationError(
                f"--checkpoint {uri}: {_reason(error)}: name a folder or s3a://BUCKET/PREFIX"
            ) from error

    def names(self, name: str = "") -> list[str]:
        """What is in this folder, or one below it; nothing where it is not there."""
        try:
            if not self._files.exists(self._path(name)):
                return []
            return [str(found.getPath().getName()) for found in self._files.listStatus(self._path(name))]
        except Py4JJavaError as error:
            raise self._stopped("list", name, error) from error

    def read(self, name: str) -> str | None:
        """None where it is not there; nothing where its checksum says that it was cut off."""
        try:
            if not self._files.exists(self._path(name)):
                return None
            stream = self._files.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == _CUT_OFF:
                return ""
            raise self._stopped("read", name, error) from error

    def write(self, name: str, content: str) -> None:
        """Creates the file; one that is there is replaced. In a folder of this machine it is on the disk then: what is
        written next tells of it.
        """
        try:
            stream = self._files.create(self._path(name), True)
            try:
                stream.write(bytearray(content.encode()))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise self._stopped("write", name, error) from error
        if self._files.getScheme() == "file":
            _sync(Path(str(self._path(name).toUri().getPath())))

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it."""
        try:
            self._files.delete(self._path(name), True)
        except Py4JJavaError as error:
            raise self._stopped("delete", name, error) from error

    def child(self, name: str) -> str:
        """The URI of something in it."""
        return f"{self.uri}/{name}"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}" if name else self.uri)

    def _stopped(self, verb: str, name: str, error: Py4JJavaError) -> JobStopped:
        return JobStopped(
            f"--checkpoint {self.child(name)}: cannot {verb} it: {_reason(error)}: let this job's credentials read "
            "and write there"
        )


def _sync(path: Path) -> None:
    """The file and its checksums; Hadoop syncs nothing. As well as can be: what is lost is begun anew."""
    with suppress(OSError):
        for file in (path.with_name(f".{path.name}.crc"), path):
            if file.exists():
                fd = os.open(file, os.O_RDONLY)
                try:
                    sync_file(fd)
                finally:
                    os.close(fd)
        sync_folder(path.parent)


def _reason(error: Py4JJavaError) -> str:
    """The first line of what Java says."""
    text = str(error.java_exception.getMessage() or error.java_exception.toString())
    return text.splitlines()[0][:300]
