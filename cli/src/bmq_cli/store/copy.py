"""`bmq store copy`: a copy of a store, made while a cluster works on it, and checked."""

from rich.progress import Progress, SpinnerColumn, TextColumn

from bmq.errors import ConfigurationError
from bmq.ports import ObjectStore
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.store_url import StoreUrl
from bmq.runtime.system import SystemRng
from bmq_audit.audit import Audited
from bmq_audit.findings import Level
from bmq_audit.reading import Progress as Where
from bmq_audit.reading import Reader
from bmq_backup.copied import Copied, NotCopied
from bmq_backup.copying import Copier
from bmq_cli.store.check import run, show, timed_audit
from bmq_cli.store.opening import opened
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Output, counted
from bmq_cli.terminal.sizes import size_text
from bmq_cli.wall_clock import monotonic_s

_DOING = "copy store"


def copy_store(
    url: StoreUrl, to: StoreUrl, output: Output, *, check: bool, without_lost: bool, at_once: int
) -> ExitCode:
    """The command. Raises CommandFailed, BmqError."""
    name, target_name = url.text.partition("?")[0], to.text.partition("?")[0]
    if url.text == to.text:
        raise ConfigurationError(f"--to {target_name}: that is the store itself: name another folder, bucket or prefix")
    if target_name.startswith(f"{name.rstrip('/')}/") or name.startswith(f"{target_name.rstrip('/')}/"):
        raise ConfigurationError(
            f"--to {target_name}: one of it and {name} lies within the other: name one that lies beside it"
        )
    ensure_bucket(to)
    began_s = monotonic_s()
    audited: Audited | None = None
    with opened(url, alone=False) as source, opened(to, alone=True) as target:
        try:
            copied = run(
                lambda: _copy(source, target, output, without_lost=without_lost, at_once=at_once), doing=_DOING
            )
        except NotCopied as error:
            raise CommandFailed(_DOING, str(error)) from error
        took_s = monotonic_s() - began_s
        if check:
            audited, check_s = timed_audit(target, output, quick=False, at_once=at_once)
    earlier = f" ({copied.there_already} more were there from an earlier try)" if copied.there_already else ""
    output.text(
        f"{name}: cluster {copied.cluster_id}: copied {counted(copied.objects, 'object')} with "
        f"{size_text(copied.size_bytes)} to {target_name} in {took_s:.1f} s{earlier}; it ends with entry "
        f"{copied.position} of the metadata log"
    )
    for key in copied.lost:
        output.text(f"not in it, because the store has lost it: {key}")
    if audited is not None:
        show(to, audited, output, took_s=check_s, quick=False)
    faults = audited.report.count(Level.FAULT) if audited is not None else 0
    output.document(
        {
            "store": name,
            "to": target_name,
            "cluster_id": copied.cluster_id,
            "metadata_entry": copied.position,
            "objects": copied.objects,
            "size_bytes": copied.size_bytes,
            "passes": copied.passes,
            "seconds": round(took_s, 3),
            "checked": audited is not None,
            "faults": faults,
            "lost": copied.lost,
        }
    )
    return ExitCode.FAILED if faults or copied.lost else ExitCode.OK


async def _copy(
    source: ObjectStore, target: ObjectStore, output: Output, *, without_lost: bool, at_once: int
) -> Copied:
    console = output.messages
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=4
    ) as bar:
        task = bar.add_task("list")

        def told(done: Copied) -> None:
            bar.update(
                task,
                description=f"copy: {counted(done.objects, 'object')}, {size_text(done.size_bytes)}, pass "
                f"{done.passes}",
            )

        reader = Reader(source, rng=SystemRng(), at_once=at_once, progress=Where())
        return await Copier(reader, target, rng=SystemRng(), without_lost=without_lost, told=told).run()
