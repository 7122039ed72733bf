"""`bmq debug`: what whoever looks for a fault asks for first."""

from pathlib import Path
from typing import Annotated

import typer

from bmq_cli.cluster.session import ClusterSession, with_cluster
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Column, counted
from bmq_cli.wall_clock import utc_text

app = typer.Typer(name="debug", help="Collect what is needed to find a fault.", no_args_is_help=True)


@app.command()
@with_cluster
def bundle(
    session: ClusterSession,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Where to write it. Default: bmq-debug-TIME.tar.gz in the present folder.",
            show_default=False,
        ),
    ] = None,
    entries: Annotated[
        int,
        typer.Option("--entries", min=1, max=1_000, metavar="N", help="How many of the newest metadata log entries."),
    ] = 200,
) -> None:
    """Write a tar.gz with the metadata and its newest log entries, and each node's version, configuration and metrics.

    The health of the store, the load and the groups are in it, too. It has names (topics, groups, hosts) and no
    records, no keys and no tokens. What cannot be had is noted in it; the rest is written all the same.
    """
    from bmq_cli.debug.bundle import collect, write

    path = file if file is not None else Path(f"bmq-debug-{utc_text()}.tar.gz")
    with session.output.waiting("asking the nodes …"):
        found = collect(session.client.at_once(), entries=entries)
    try:
        size_bytes = write(found, path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise CommandFailed(f"write {path}", why, "name another file with --file", code=ExitCode.FAILED) from error
    document = {
        "file": str(path),
        "bytes": size_bytes,
        "entries": [one.name for one in found.parts],
        "missing": found.missing,
    }
    session.output.document(document)
    if found.missing:
        session.output.table(
            [Column(title="MISSING"), Column(title="WHY")], [[one["name"], one["why"]] for one in found.missing]
        )
    session.output.text(f"wrote {path}: {counted(len(found.parts), 'file')}, {size_bytes} bytes")
