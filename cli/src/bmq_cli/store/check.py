"""`bmq store check`: runs the audit with a progress bar, and prints what it found."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import uvloop
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from bmq.naming.names import CONSUMER_OFFSETS
from bmq.ports import ObjectStore
from bmq.runtime.store_url import StoreUrl
from bmq.runtime.system import SystemRng
from bmq_audit.audit import Audited, AuditOptions, audit_store
from bmq_audit.findings import Finding, Level, Report
from bmq_audit.metadata import NoMetadata
from bmq_audit.reading import Progress as Where
from bmq_audit.reading import StoreLost
from bmq_broker.coordinators.groups.snapshot import decode_state
from bmq_broker.partitions.producers import Producers
from bmq_broker.segments.manifests import KEPT_VERSIONS
from bmq_cli.store.opening import opened
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Output, counted
from bmq_cli.terminal.sizes import size_text
from bmq_cli.wall_clock import monotonic_s

T = TypeVar("T")
SHOWN_MAX: Final = 50
"""Lines of garbage and of notes for people; programs get all."""
_TITLES: Final = {Level.FAULT: "fault", Level.GARBAGE: "garbage", Level.NOTE: "note"}


def check_store(url: StoreUrl, output: Output, *, quick: bool, at_once: int) -> ExitCode:
    """The command without --repair. Raises CommandFailed, BmqError."""
    with opened(url, alone=False) as store:
        audited, took_s = timed_audit(store, output, quick=quick, at_once=at_once)
    output.document(document(url, audited, took_s=took_s, quick=quick))
    show(url, audited, output, took_s=took_s, quick=quick)
    return ExitCode.FAILED if audited.report.count(Level.FAULT) else ExitCode.OK


def timed_audit(store: ObjectStore, output: Output, *, quick: bool, at_once: int) -> tuple[Audited, float]:
    """The audit, and how many seconds it took. Raises CommandFailed."""
    began_s = monotonic_s()
    audited = run(lambda: audit(store, output, quick=quick, at_once=at_once))
    return audited, monotonic_s() - began_s


def run(main: Callable[[], Awaitable[T]], *, doing: str = "check store") -> T:
    """Runs it on an event loop of its own. Raises CommandFailed where the store is none, or is lost on the way."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_awaited(main))
    except NoMetadata as error:
        raise CommandFailed(doing, str(error), code=ExitCode.USAGE) from error
    except StoreLost as error:
        if re.search(r"HTTP 4[0-9]{2}\b", str(error)):
            raise CommandFailed(doing, str(error), "Check the URL and the keys.", code=ExitCode.USAGE) from error
        raise CommandFailed(doing, str(error), "Try again when it answers.", code=ExitCode.NO_CONNECTION) from error


async def audit(store: ObjectStore, output: Output, *, quick: bool, at_once: int) -> Audited:
    """The audit, with a progress bar on standard error where that is a terminal."""
    options = AuditOptions(
        decode_producers=Producers.decode,
        decode_state=_decode_state,
        versions_kept=KEPT_VERSIONS,
        quick=quick,
        at_once=at_once,
    )
    with _progress(output) as progress:
        return await audit_store(store, rng=SystemRng(), options=options, progress=progress)


def document(url: StoreUrl, audited: Audited, *, took_s: float, quick: bool) -> dict[str, Any]:
    """What programs get."""
    report, checked = audited.report, audited.report.checked
    return {
        "store": url.text.partition("?")[0],
        "cluster_id": report.cluster_id,
        "metadata_entry": audited.metadata.position,
        "quick": quick,
        "seconds": round(took_s, 3),
        "written_meanwhile": report.moved_on,
        "checked": {name: getattr(checked, name) for name in checked.__slots__},
        "counts": {
            level.value: {
                "findings": report.count(level),
                "objects": report.objects[level],
                "size_bytes": report.size_bytes[level],
            }
            for level in Level
        },
        **{
            f"{level.value}s" if level is not Level.GARBAGE else "garbage": [
                _row(each) for each in report.findings[level]
            ]
            for level in Level
        },
    }


def show(url: StoreUrl, audited: Audited, output: Output, *, took_s: float, quick: bool) -> None:
    """What people get."""
    report, checked = audited.report, audited.report.checked
    for level in Level:
        _show_level(report, level, output)
    output.text(
        f"{url.text.partition('?')[0]}: cluster {report.cluster_id}, {counted(checked.objects, 'object')} with "
        f"{size_text(checked.size_bytes)}: {counted(checked.partitions, 'partition')}, "
        f"{counted(checked.segments, 'segment')}, {counted(checked.wal_objects, 'WAL object')}"
    )
    looked = (
        "segments were only looked for"
        if quick
        else f"{counted(checked.batches, 'batch')} with {counted(checked.records, 'record')} checked"
    )
    output.text(f"read {size_text(checked.read_bytes)} in {took_s:.1f} s; {looked}".replace("batchs", "batches"))
    if report.moved_on:
        output.text("the cluster wrote metadata meanwhile")
    faults = report.count(Level.FAULT)
    output.text(f"{counted(faults, 'fault')}" if faults else "no faults")


def _show_level(report: Report, level: Level, output: Output) -> None:
    found = report.findings[level]
    if not found:
        return
    shown = found if level is Level.FAULT else found[:SHOWN_MAX]
    for each in shown:
        output.text(f"{_TITLES[level]} {each.kind}: {each.key}{f' ({each.topic})' if each.topic else ''}")
        amount = (
            f"{counted(each.objects, 'object')}, {size_text(each.size_bytes)}: "
            if level is not Level.FAULT and each.size_bytes
            else ""
        )
        output.text(f"    {amount}{each.means}")
        if each.repair and level is Level.FAULT:
            output.text(f"    --repair: {each.repair}")
    left_out = report.count(level) - len(shown)
    if left_out:
        output.text(
            f"and {counted(left_out, 'more ' + _TITLES[level])}: -o json has "
            f"{'them' if level is not Level.FAULT else 'no more'}"
        )
    output.text()


def _row(finding: Finding) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": finding.kind.value, "key": finding.key, "means": finding.means}
    if finding.topic:
        row["partition"] = finding.topic
    if finding.level is not Level.FAULT:
        row["objects"] = finding.objects
    if finding.size_bytes:
        row["size_bytes"] = finding.size_bytes
    if finding.repair:
        row["repair"] = finding.repair
    return row


@contextmanager
def _progress(output: Output) -> Iterator[Where]:
    console = output.messages
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=4
    ) as bar:
        task = bar.add_task("list", total=None)

        def told(where: Where) -> None:
            text = f"list: {where.listed} objects" if where.stage == "list" else where.stage
            bar.update(task, description=text, completed=where.done_bytes, total=where.total_bytes or None)

        yield Where(told=told)


def _decode_state(topic: str, data: bytes) -> object:
    return decode_state(data) if topic == CONSUMER_OFFSETS else None


async def _awaited(main: Callable[[], Awaitable[T]]) -> T:
    return await main()
