"""`bmq databus spool show`: what each channel has on disk, for people and for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bmq_cli.databus.failures import told_as_failures
from bmq_cli.terminal.output import Cell, Column, Output, counted
from bmq_cli.terminal.sizes import size_text
from bmq_cli.wall_clock import now_ms
from bmq_databus.backlog.channels import chosen
from bmq_databus.backlog.summary import Summary, summary_of

_COLUMNS: Final = (
    Column(title="CHANNEL"),
    Column(title="SEGMENTS", number=True),
    Column(title="WAITING", number=True),
    Column(title="BYTES", number=True),
    Column(title="OLDEST", number=True),
    Column(title="SENT", number=True),
    Column(title="REFUSED", number=True),
    Column(title="DAMAGED", number=True),
    Column(title="SET ASIDE", number=True),
)
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def show_spool(root: Path, output: Output, *, channel: str | None) -> None:
    """The command. Raises CommandFailed."""
    with told_as_failures():
        found = [summary_of(root, name) for name in chosen(root, channel)]
    at_ms = now_ms()
    output.document([_document(one, at_ms) for one in found])
    if not found:
        output.text(f"no channel has anything in {root}")
        return
    output.table(_COLUMNS, [_row(one, at_ms) for one in found])
    for one in found:
        for line in _hints(one):
            output.text(line)


def _document(one: Summary, at_ms: int) -> dict[str, Any]:
    age_s = None if one.oldest_accepted_ms is None else max(0, at_ms - one.oldest_accepted_ms) / 1000
    return {**asdict(one), "oldest_age_s": age_s}


def _row(one: Summary, at_ms: int) -> tuple[Cell, ...]:
    return (
        one.channel,
        one.segments,
        one.waiting,
        size_text(one.waiting_bytes),
        None if one.oldest_accepted_ms is None else _age(at_ms - one.oldest_accepted_ms),
        one.sent,
        one.refused + one.replaying,
        one.damaged,
        one.aside,
    )


def _age(age_ms: int) -> str:
    """`17s`, `3m`, `5h`, `2d`."""
    age_s = max(0, age_ms // 1000)
    return next((f"{age_s // unit_s}{name}" for unit_s, name in _UNITS if age_s >= unit_s), "0s")


def _hints(one: Summary) -> Iterator[str]:
    if one.too_new:
        yield f"{one.channel}: {counted(one.too_new, 'segment')} of a later version, which its sidecar can send"
    if one.damaged_segments:
        yield (
            f"{one.channel}: {counted(one.damaged_segments, 'segment')} of which nothing can be read as it is: a "
            "sidecar sets them aside when it starts"
        )
    if one.replaying:
        yield (
            f"{one.channel}: {counted(one.replaying, 'refused message')} of a replay that was ended: `replay "
            "--refused` goes on"
        )
