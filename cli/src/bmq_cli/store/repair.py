"""`bmq store check --repair`: says what would be done and what is lost by it, makes sure that nothing runs on the
store, asks, and does it.
"""

import sys
from collections.abc import Iterable
from typing import Any, Final

import typer

from bmq.metadata.image import Image
from bmq.ports import ObjectStore
from bmq.runtime.logging import configure_logging
from bmq.runtime.self_test import prove_store
from bmq.runtime.store_url import StoreUrl
from bmq.runtime.system import SystemClock, SystemRng
from bmq_audit.audit import Audited
from bmq_audit.findings import Delete, Finding, Level, ManifestRepair, Repair, Report
from bmq_audit.liveness import is_stopped, sign_of_life
from bmq_audit.metadata import audit_metadata
from bmq_audit.reading import Progress, Reader
from bmq_audit.repair import Repaired, Repairer
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.snapshot import encode_state
from bmq_broker.partitions.producers import Producers
from bmq_cli.store.check import document, run, show, timed_audit
from bmq_cli.store.opening import opened
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Output, counted
from bmq_cli.terminal.sizes import size_text
from bmq_controller.settings import ControllerSettings

WATCH_S: Final = 1.5 * ControllerSettings().lease_s
"""How long a bucket has to be silent: a lease, and half of one more."""
DELETES_SHOWN_MAX: Final = 20


def repair_store(url: StoreUrl, output: Output, *, quick: bool, at_once: int, stopped: bool, yes: bool) -> ExitCode:
    """The command with --repair. Raises CommandFailed, BmqError."""
    configure_logging()
    with opened(url, alone=True) as store:
        if url.folder is None:
            run(lambda: _make_sure(store, output, stopped=stopped, at_once=at_once))
        audited, took_s = timed_audit(store, output, quick=quick, at_once=at_once)
        show(url, audited, output, took_s=took_s, quick=quick)
        repairs = audited.report.repairs
        _show_plan(repairs, output)
        repaired = Repaired()
        left = _unrepaired(audited.report.findings[Level.FAULT])
        if repairs and _agreed(yes=yes):
            repaired = run(lambda: _carry_out(store, repairs, audited.metadata.image, bucket=url.folder is None))
            after, _ = timed_audit(store, output, quick=True, at_once=at_once)
            left = list({finding.key: finding for finding in (*left, *after.report.findings[Level.FAULT])}.values())
        elif repairs:
            left = audited.report.findings[Level.FAULT]
    output.document(_document(url, audited, repaired, left, took_s=took_s, quick=quick))
    _show_outcome(repaired, left, output)
    return ExitCode.FAILED if left or repaired.failed else ExitCode.OK


async def _make_sure(store: ObjectStore, output: Output, *, stopped: bool, at_once: int) -> None:
    """That nothing runs on a bucket, as far as it shows; the user's word for the rest. Raises CommandFailed."""
    image = await _image(store, at_once=at_once)
    with output.waiting(f"looking for signs of life for {WATCH_S:.0f} s"):
        sign = await sign_of_life(store, image, wait_s=0.0 if is_stopped(image) else WATCH_S)
    if sign is not None:
        raise CommandFailed("repair store", f"a cluster works on it: {sign}", "Stop all of its processes first.")
    if is_stopped(image) or stopped:
        return
    nodes = ", ".join(map(str, sorted(image.nodes)))
    what = (
        f"nothing was written for {WATCH_S:.0f} s, but nodes did not say goodbye ({nodes}); a cluster that "
        "nobody asks anything writes nothing"
    )
    if not sys.stdin.isatty():
        raise CommandFailed("repair store", what, "Stop all of its processes, then add --stopped.")
    if not typer.confirm(f"{what}. Are all processes of this cluster stopped?", err=True):
        raise CommandFailed("repair store", "the cluster may be running", "Stop all of its processes first.")


async def _carry_out(store: ObjectStore, repairs: Iterable[Repair], image: Image, *, bucket: bool) -> Repaired:
    """Raises CommandFailed where somebody came meanwhile, StoreUnusable where the bucket lacks conditional creates."""
    rng = SystemRng()
    if bucket:
        sign = await sign_of_life(store, image, wait_s=0.0)
        if sign is not None:
            raise CommandFailed("repair store", f"a cluster works on it: {sign}", "Stop all of its processes first.")
        await prove_store(store, SystemClock(), rng)
    no_producers, no_groups = Producers().encode(), encode_state(DurableState())
    return await Repairer(
        store, rng=rng, cluster_id=image.cluster_id, no_producers=no_producers, no_groups=no_groups
    ).run(repairs)


async def _image(store: ObjectStore, *, at_once: int) -> Image:
    reader = Reader(store, rng=SystemRng(), at_once=at_once, progress=Progress())
    return (await audit_metadata(reader, Report())).image


def _unrepaired(faults: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in faults if not finding.repair]


def _agreed(*, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed(
            "repair store", "nobody is there to agree to it", "Look at what would be done, then add --yes."
        )
    return typer.confirm("Do this?", err=True)


def _show_plan(repairs: list[Repair], output: Output) -> None:
    """Says what is lost before it is."""
    if not repairs:
        output.text("nothing to repair")
        return
    output.text()
    output.text("--repair would")
    for repair in (each for each in repairs if isinstance(each, ManifestRepair)):
        output.text(f"  write manifest version {repair.base_number + 1} of {repair.topic}")
        for gain in repair.gains:
            output.text(f"    with {gain}")
        for loss in repair.loses:
            output.text(f"    without {loss}, for good")
        if not repair.loses:
            output.text("    nothing that can be read now is lost")
        if repair.unknown:
            output.text(f"    it cannot be known {repair.unknown}")
    deletes = [each for each in repairs if isinstance(each, Delete)]
    if deletes:
        size_bytes = sum(each.size_bytes for each in deletes)
        output.text(f"  delete {counted(sum(each.objects for each in deletes), 'object')}, {size_text(size_bytes)}")
        deletes.sort(key=lambda each: not each.loses)
        for delete in deletes[:DELETES_SHOWN_MAX]:
            output.text(
                f"    {delete.key}{f', and with it {delete.loses}, where no segment has them' if delete.loses else ''}"
            )
        if len(deletes) > DELETES_SHOWN_MAX:
            output.text(f"    and {len(deletes) - DELETES_SHOWN_MAX} more")


def _show_outcome(repaired: Repaired, left: list[Finding], output: Output) -> None:
    output.text()
    if repaired.partitions:
        output.text(f"repaired: {', '.join(repaired.partitions)}")
    if repaired.deleted_objects:
        output.text(f"deleted: {counted(repaired.deleted_objects, 'object')}")
    for what, why in repaired.failed:
        output.text(f"not repaired: {what}: {why}")
    for finding in left:
        output.text(f"left: {finding.kind}: {finding.key}")
    output.text(f"{counted(len(left), 'fault')} left" if left else "no faults left")


def _document(
    url: StoreUrl, audited: Audited, repaired: Repaired, left: list[Finding], *, took_s: float, quick: bool
) -> dict[str, Any]:
    found = document(url, audited, took_s=took_s, quick=quick)
    found["planned"] = [_planned(each) for each in audited.report.repairs]
    found["repaired"] = {
        "partitions": repaired.partitions,
        "deleted_objects": repaired.deleted_objects,
        "failed": [{"what": what, "why": why} for what, why in repaired.failed],
    }
    found["left"] = [{"kind": finding.kind.value, "key": finding.key} for finding in left]
    return found


def _planned(repair: Repair) -> dict[str, Any]:
    match repair:
        case ManifestRepair():
            gains, loses = list(repair.gains), list(repair.loses)
            return {
                "repair": repair.topic,
                "version": repair.base_number + 1,
                "with": gains,
                "without": loses,
                "unknown": repair.unknown,
            }
        case Delete():
            return {
                "delete": repair.key,
                "objects": repair.objects,
                "size_bytes": repair.size_bytes,
                "without": [repair.loses] if repair.loses else [],
            }
