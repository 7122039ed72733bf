"""What the process's exit code says, and the errors that lead to one. Pure; prints nothing.

An error is one line, `error: what: why. remedy`, and carries its exit code.
"""

import enum
import re
from collections.abc import Sequence
from typing import Final

from bmq.errors import BmqError, ConfigurationError, FolderInUse


class ExitCode(enum.IntEnum):
    """For scripts; documented in docs/cli.md."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NO_CONNECTION = 4
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "the operation failed, or a part of it; a folder is in use by another process; of a node: it "
    "cannot have what it needs (an address in use, a store that refuses or is not reached)",
    ExitCode.USAGE: "wrong usage, or a configuration that cannot be used",
    ExitCode.NOT_FOUND: "the topic, partition, group, lane or node does not exist",
    ExitCode.NO_CONNECTION: "cannot connect, or no answer, within `--timeout`",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
}


class CommandFailed(Exception):
    """A command that cannot go on. `what: why. remedy` is shown as one line."""

    def __init__(self, what: str, why: str, remedy: str = "", *, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(what, why, remedy)
        self.what, self.why, self.remedy, self.code = what, why, remedy, code

    def with_remedy(self, remedy: str) -> "CommandFailed":
        """The same where it is about something that is not there and names no remedy: then this is one."""
        if self.remedy or self.code is not ExitCode.NOT_FOUND:
            return self
        return CommandFailed(self.what, self.why, remedy, code=self.code)

    def __str__(self) -> str:
        line = f"{self.what}: {one_line(self.why).rstrip('.')}"
        return f"{line}. {self.remedy}" if self.remedy else line


class SeveralFailed(Exception):
    """Some of several targets failed; each failure is one line, the exit code is theirs when they agree, else 1."""

    def __init__(self, failures: Sequence[CommandFailed]) -> None:
        super().__init__(*failures)
        self.failures = tuple(failures)
        codes = {failure.code for failure in failures}
        self.code = codes.pop() if len(codes) == 1 else ExitCode.FAILED


def code_of(error: BmqError) -> ExitCode:
    """The exit code that an error of bmq's own leads to, of a node as of a command."""
    if isinstance(error, ConfigurationError) and not isinstance(error, FolderInUse):
        return ExitCode.USAGE
    return ExitCode.FAILED


def one_line(text: str) -> str:
    """`text` with its line breaks and runs of spaces as single spaces."""
    return re.sub(r"\s+", " ", text).strip()
