"""`bmq databus spool export`: a channel's messages as lines of JSON."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bmq_cli.databus.failures import told_as_failures
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Output, counted
from bmq_cli.terminal.sizes import size_text
from bmq_databus.backlog.channels import the_one
from bmq_databus.backlog.exporting import (
    Exported,
    Place,
    Write,
    export_damaged,
    export_refused,
    export_waiting,
    place_of,
)
from bmq_databus.http.bodies import BODY_BYTES_MAX
from bmq_databus.spool.clusters import folder_of


def export_spool(
    root: Path, output: Output, *, channel: str | None, refused: bool, damaged: bool, after: str | None, to: Path | None
) -> None:
    """The command. Raises CommandFailed."""
    if refused and damaged:
        raise CommandFailed("--damaged", "it goes not with --refused", "Export one of them.", code=ExitCode.USAGE)
    if after is not None and (refused or damaged):
        raise CommandFailed("--after", "it goes with what waits only", "Leave it out.", code=ExitCode.USAGE)
    place = None if after is None else place_of(after)
    if after is not None and place is None:
        raise CommandFailed(
            "--after", f"{after!r} is no place", "Give what an export said at its end.", code=ExitCode.USAGE
        )
    with told_as_failures():
        name = the_one(root, channel)
        with _opened(to) as file:
            exported = _export(folder_of(root, name), file.write, refused=refused, damaged=damaged, after=place)
    _tell_exported(output, name, exported, damaged=damaged)


def _export(folder: Path, write: Write, *, refused: bool, damaged: bool, after: Place | None) -> Exported:
    if refused:
        return export_refused(folder, write)
    return export_damaged(folder, write) if damaged else export_waiting(folder, write, after=after)


def _tell_exported(output: Output, name: str, exported: Exported, *, damaged: bool) -> None:
    place = f"; --after {exported.end} begins there" if exported.end is not None else ""
    output.note(f"{counted(exported.messages, 'message')} of {name} exported, {size_text(exported.size_bytes)}{place}")
    if exported.longest_bytes > BODY_BYTES_MAX:
        output.note(
            f"a line has {size_text(exported.longest_bytes)}, and a body {size_text(BODY_BYTES_MAX)} at most: send its "
            "value as it is"
        )
    if exported.unknown:
        output.note(
            f"of {counted(exported.unknown, 'segment')} it is not known what was sent: messages may be in their topics"
        )
    if exported.unreadable_count:
        lost = counted(exported.lost, "message") if exported.lost else "it is not known how many messages"
        failure = CommandFailed(
            f"channel {name}",
            f"{counted(exported.unreadable_count, 'place')} cannot be read ({lost}): {'; '.join(exported.unreadable)}",
        )
        if not damaged:
            raise failure
        output.note(str(failure))


@contextmanager
def _opened(to: Path | None) -> Iterator[BinaryIO]:
    if to is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = open(to, "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
    except FileExistsError:
        raise CommandFailed("--to", f"{to} is there", "Name a new file.", code=ExitCode.USAGE) from None
    except OSError as error:
        raise CommandFailed("--to", f"{to}: {error.strerror}", "Name another file.", code=ExitCode.USAGE) from error
    try:
        with file:
            yield file
    except BaseException:
        to.unlink(missing_ok=True)
        raise
