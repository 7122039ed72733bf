"""`bmq store erase`: says what a cluster has in a store, makes sure that it is the one that was meant and that nobody
works on it, and deletes it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bmq.errors import FolderInUse
from bmq.metadata.codec import LOG_PREFIX
from bmq.ports import ObjectStore
from bmq.runtime.store_url import StoreUrl
from bmq.runtime.system import SystemRng
from bmq_audit.erasing import Amount, Eraser, amount_of
from bmq_audit.findings import Report
from bmq_audit.liveness import is_stopped, sign_of_life
from bmq_audit.metadata import Metadata, NoMetadata, audit_metadata
from bmq_audit.reading import Progress as Where
from bmq_audit.reading import Reader
from bmq_cli.store.check import run
from bmq_cli.store.opening import opened
from bmq_cli.store.repair import WATCH_S
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Output, counted
from bmq_cli.terminal.sizes import size_text

_DOING: Final = "erase store"


def erase_store(url: StoreUrl, output: Output, *, cluster_id: str, at_once: int, yes: bool) -> ExitCode:
    """The command. Without `yes` nothing is deleted. Raises CommandFailed, BmqError."""
    name = url.text.partition("?")[0]
    with _opened(url, alone=yes) as store:
        found = run(lambda: _found(store, output, cluster_id=cluster_id, at_once=at_once), doing=_DOING)
        what = f"{counted(found.objects, 'object')} with {size_text(found.size_bytes)}"
        erased = Amount()
        if not found.objects:
            output.text(f"{name}: there is nothing of bmq")
        elif not yes:
            output.text(f"{name}: cluster {cluster_id}: {what} would be deleted, for good")
            output.text("nothing was deleted: add --yes")
        else:
            erased = run(
                lambda: _erase(store, output, found, cluster_id=cluster_id, at_once=at_once, bucket=url.folder is None),
                doing=_DOING,
            )
            output.text(
                f"{name}: cluster {cluster_id}: deleted {counted(erased.objects, 'object')} with "
                f"{size_text(erased.size_bytes)}"
            )
    if found.strangers:
        output.text(f"not bmq's, and left: {counted(found.strangers, 'object')}")
    output.document(
        {
            "store": name,
            "cluster_id": cluster_id,
            "objects": found.objects,
            "size_bytes": found.size_bytes,
            "deleted_objects": erased.objects,
            "deleted_bytes": erased.size_bytes,
            "not_of_bmq": found.strangers,
        }
    )
    return ExitCode.OK


@contextmanager
def _opened(url: StoreUrl, *, alone: bool) -> Iterator[ObjectStore]:
    """Raises CommandFailed where a cluster works on the folder, as for one that works on a bucket."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(opened(url, alone=alone))
        except FolderInUse as error:
            raise CommandFailed(
                _DOING, f"a cluster works on it: {str(error).partition(': ')[0]}", "Stop all of its processes first."
            ) from None
        yield store


async def _found(store: ObjectStore, output: Output, *, cluster_id: str, at_once: int) -> Amount:
    """What there is. Raises CommandFailed where it is another cluster's, or nobody knows whose."""
    with _progress(output, total=None) as shown:
        reader = _reader(store, at_once=at_once, told=lambda where: shown(f"list: {where.listed} objects", 0))
        found = await amount_of(reader)
    if found.objects:
        await _check_cluster(reader, cluster_id)
    return found


async def _check_cluster(reader: Reader, cluster_id: str) -> Metadata:
    try:
        metadata = await audit_metadata(reader, Report())
    except NoMetadata:
        raise CommandFailed(
            _DOING,
            "there are objects of bmq, and nothing that tells of which cluster",
            "Delete them with the store's own tools.",
            code=ExitCode.USAGE,
        ) from None
    if metadata.image.cluster_id != cluster_id:
        raise CommandFailed(
            _DOING,
            f"the store belongs to cluster {metadata.image.cluster_id!r}, not to {cluster_id!r}",
            "Name that cluster's own store, or the store's own cluster.",
            code=ExitCode.USAGE,
        )
    return metadata


async def _erase(
    store: ObjectStore, output: Output, found: Amount, *, cluster_id: str, at_once: int, bucket: bool
) -> Amount:
    reader = _reader(store, at_once=at_once)
    if bucket:  # a folder is locked
        await _make_sure(store, reader, output, await _check_cluster(reader, cluster_id))
    with _progress(output, total=found.objects) as shown:
        eraser = Eraser(
            store,
            reader,
            rng=SystemRng(),
            at_once=at_once,
            told=lambda done: shown(f"delete: {size_text(done.size_bytes)}", done.objects),
        )
        return await eraser.run()


async def _make_sure(store: ObjectStore, reader: Reader, output: Output, metadata: Metadata) -> None:
    """That nobody works on it, as far as it shows. Raises CommandFailed."""
    image = metadata.image
    if metadata.whole and is_stopped(image):
        return
    newest = max(await reader.numbers(LOG_PREFIX), default=0)  # of a log that is half erased, the image has less
    with output.waiting(f"looking for signs of life for {WATCH_S:.0f} s"):
        sign = await sign_of_life(store, replace(image, position=newest), wait_s=WATCH_S)
    if sign is not None:
        raise CommandFailed(_DOING, f"a cluster works on it: {sign}", "Stop all of its processes first.")


def _reader(store: ObjectStore, *, at_once: int, told: Callable[[Where], None] = lambda _: None) -> Reader:
    return Reader(store, rng=SystemRng(), at_once=at_once, progress=Where(told=told))


@contextmanager
def _progress(output: Output, *, total: int | None) -> Iterator[Callable[[str, int], None]]:
    console = output.messages
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total} objects"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=4
    ) as bar:
        task = bar.add_task("list", total=total)
        yield lambda text, done: bar.update(task, description=text, completed=done)
