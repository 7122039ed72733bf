"""`bmq store`: what a store holds, whether it is whole, what it costs, copies of it, its end. On the store itself, with
or without a cluster.
"""

from pathlib import Path
from typing import Annotated

import typer

from bmq_cli.options import NoColorOption, OutputClosed, OutputOption, SharedOptions
from bmq_cli.terminal.output import Output

app = typer.Typer(name="store", help="Check a store, see what it costs, copy it, erase it.", no_args_is_help=True)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="The store, e.g. s3://bucket?endpoint=http://127.0.0.1:9000 (docs/stores.md)."
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The folder that bmq keeps everything in. Default: ./bmq-data",
        show_default=False,
        readable=False,  # what is wrong with it is said with the remedy where it is opened
    ),
]
NamedStore = Annotated[
    str | None,
    typer.Argument(
        metavar="[STORE]", help="The folder that bmq keeps everything in, or a store's URL.", show_default=False
    ),
]
"""What a person writes; --store and --data say the same."""
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=64, metavar="N", help="Requests at a time.")]


@app.command()
def check(
    context: typer.Context,
    named: NamedStore = None,
    *,
    store: StoreOption = None,
    data: DataOption = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not read segments: only whether they are there, with the length they should have. With "
            "--repair none of them is deleted.",
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Repair what can be repaired and delete what nothing can reach, after asking. Nothing may run on the "
            "store.",
        ),
    ] = False,
    stopped: Annotated[
        bool,
        typer.Option(
            "--stopped",
            help="With --repair on a bucket: every process of the cluster is stopped, also those that were killed.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    concurrency: Concurrency = 8,
    output: OutputOption = None,
    no_color: NoColorOption = None,
) -> None:
    """Read everything in a store and say what is wrong with it.

    Exit code 0: no faults, or all were repaired. 1: there are faults, or somebody works on a store that is to be
    repaired. 2: wrong usage, or no bmq store there.
    """
    from bmq_cli.store.check import check_store
    from bmq_cli.store.opening import url_of
    from bmq_cli.store.repair import repair_store

    if (stopped or yes) and not repair:
        raise typer.BadParameter("it goes with --repair only", param_hint="--stopped" if stopped else "--yes")
    shown = _output(context, output=output, no_color=no_color)
    try:
        url = url_of(named=named, store=store, data=data)
        if repair:
            code = repair_store(url, shown, quick=quick, at_once=concurrency, stopped=stopped, yes=yes)
        else:
            code = check_store(url, shown, quick=quick, at_once=concurrency)
    except BrokenPipeError as error:
        raise OutputClosed from error
    raise typer.Exit(code)


@app.command()
def cost(
    context: typer.Context,
    named: NamedStore = None,
    *,
    store: StoreOption = None,
    data: DataOption = None,
    prices: Annotated[
        str,
        typer.Option(
            "--prices", metavar="NAME|FILE", help="Whose prices: s3, gcs, free, or a YAML file (docs/store-cost.md)."
        ),
    ] = "s3",
    concurrency: Concurrency = 8,
    output: OutputOption = None,
    no_color: NoColorOption = None,
) -> None:
    """Show bytes, objects and requests by topic, and what they cost.

    Requests are those that what is stored tells of. Prices and formula are printed.
    """
    from bmq_cli.store.cost import cost_of_store
    from bmq_cli.store.opening import url_of

    shown = _output(context, output=output, no_color=no_color)
    try:
        code = cost_of_store(url_of(named=named, store=store, data=data), shown, prices=prices, at_once=concurrency)
    except BrokenPipeError as error:
        raise OutputClosed from error
    raise typer.Exit(code)


@app.command()
def copy(
    context: typer.Context,
    named: NamedStore = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="URL|DIR", help="Where the copy goes: a store's URL or a folder, with nothing of bmq in it."
        ),
    ],
    store: StoreOption = None,
    data: DataOption = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not read the copy afterwards to see whether it is whole.")
    ] = False,
    without_lost: Annotated[
        bool, typer.Option("--without-lost", help="Copy all the rest of a store that has lost objects.")
    ] = False,
    concurrency: Concurrency = 8,
    output: OutputOption = None,
    no_color: NoColorOption = None,
) -> None:
    """Copy a store while a cluster works on it, and check the copy.

    One that was interrupted goes on when it is run again. bmq started over the copy finds everything that was
    acknowledged before the copy began. Exit code 1: the copy has faults, or none could be made. 2: wrong usage, or no
    bmq store there.
    """
    from bmq_cli.store.copy import copy_store
    from bmq_cli.store.opening import target_of, url_of

    shown = _output(context, output=output, no_color=no_color)
    try:
        code = copy_store(
            url_of(named=named, store=store, data=data),
            target_of(to),
            shown,
            check=not no_check,
            without_lost=without_lost,
            at_once=concurrency,
        )
    except BrokenPipeError as error:
        raise OutputClosed from error
    raise typer.Exit(code)


@app.command()
def erase(
    context: typer.Context,
    named: NamedStore = None,
    *,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id", metavar="ID", help="Whose data is meant: the store of another cluster is refused."
        ),
    ],
    store: StoreOption = None,
    data: DataOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Delete it. Without: only say what would be deleted.")
    ] = False,
    concurrency: Concurrency = 16,
    output: OutputOption = None,
    no_color: NoColorOption = None,
) -> None:
    """Delete everything that a cluster has in a store, for good. Its processes must be stopped.

    One that was interrupted goes on when it is run again. Exit code 0: nothing of it is left, or, without --yes,
    nothing was done. 1: a cluster works on it. 2: it is another cluster's.
    """
    from bmq_cli.store.erase import erase_store
    from bmq_cli.store.opening import url_of

    shown = _output(context, output=output, no_color=no_color)
    try:
        code = erase_store(
            url_of(named=named, store=store, data=data), shown, cluster_id=cluster_id, at_once=concurrency, yes=yes
        )
    except BrokenPipeError as error:
        raise OutputClosed from error
    raise typer.Exit(code)


def _output(context: typer.Context, *, output: OutputOption, no_color: NoColorOption) -> Output:
    outer = context.find_root().obj
    given = SharedOptions(output=output, no_color=no_color)
    return (given.over(outer) if isinstance(outer, SharedOptions) else given).make_output()
