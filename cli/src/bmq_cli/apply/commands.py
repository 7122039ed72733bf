"""`bmq apply`: resources from files, without Kubernetes, by the admin REST API."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from bmq_cli.apply.changes import CHANGED, CREATED, FAILED, UNCHANGED, Applier, Outcome
from bmq_cli.apply.documents import Document, Documents, cluster_of, read_documents
from bmq_cli.cluster.nested_lanes import depths
from bmq_cli.cluster.session import ClusterSession, with_cluster
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Cell, Column, Output, counted
from bmq_cli.topics.commands import raise_failures
from bmq_resources.lane import Lane

_ORDER: Final = ("Cluster", "Topic", "Lane", "Channel", "ParquetSink")
_COLUMNS: Final = (
    Column(title="KIND"),
    Column(title="NAME"),
    Column(title="ACTION"),
    Column(title="FIELD"),
    Column(title="BEFORE"),
    Column(title="AFTER"),
)


@with_cluster
def apply(
    session: ClusterSession,
    *,
    files: Annotated[
        list[str],
        typer.Option(
            "--file", "-f", metavar="PATH", help="A file, a folder of files, or - for standard input; may be repeated."
        ),
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would change, after the cluster has checked it, and change nothing."),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="[NAMESPACE/]NAME",
            help="Only the resources of this Cluster. Needed where the files name several.",
        ),
    ] = None,
) -> None:
    """Make a cluster what files say: Cluster (its config), Topics, Lanes and Channels, as for Kubernetes.

    Topics are created, given more partitions, and their configuration set: a key that is not written goes back to its
    default. Nothing is deleted, and no topic gets fewer partitions. A topic that was there before is changed like any
    other: without Kubernetes nothing remembers who made it. Applying twice changes nothing the second time. Files with
    anything wrong in them change nothing at all; exit code 2.
    """
    documents = read_documents(files)
    chosen = _of_cluster(documents, cluster)
    applier = Applier(session.client, dry_run=dry_run)
    outcomes: list[Outcome] = []
    failures: list[CommandFailed] = []
    for document in _in_order(chosen):
        try:
            outcomes.append(applier.apply(document))
        except CommandFailed as failure:
            if failure.code is ExitCode.NO_CONNECTION and not outcomes and not failures:
                raise
            failures.append(failure)
            outcomes.append(Outcome(resource=document.resource, action=FAILED, notes=[str(failure)]))
    session.output.document([one.document(dry_run=dry_run) for one in outcomes])
    _show(session.output, outcomes, dry_run=dry_run)
    for line in documents.passed_over:
        session.output.note(f"passed over, Kubernetes' own: {line}")
    raise_failures(failures)


def _in_order(documents: Sequence[Document]) -> list[Document]:
    """What others need comes first: also the lane that another one is nested in."""
    lanes = [document.resource for document in documents if isinstance(document.resource, Lane)]
    depth = depths({lane.lane_name: lane.spec.parent for lane in lanes})

    def place(document: Document) -> tuple[int, int]:
        resource = document.resource
        return _ORDER.index(resource.kind), depth(resource.lane_name) if isinstance(resource, Lane) else 0

    return sorted(documents, key=place)


def _of_cluster(documents: Documents, wanted: str | None) -> Sequence[Document]:
    """Those of the one cluster that is asked. Raises CommandFailed."""
    clusters = sorted({cluster_of(document.resource) for document in documents.documents})
    if wanted is None:
        if len(clusters) > 1:
            names = ", ".join("/".join(one) for one in clusters)
            raise CommandFailed(
                "--cluster",
                f"the files name {names}",
                "choose one of them, whose address --admin is",
                code=ExitCode.USAGE,
            )
        return documents.documents
    namespace, _, name = wanted.rpartition("/")
    chosen = [one for one in clusters if one[1] == name and namespace in ("", one[0])]
    if len(chosen) != 1:
        names = ", ".join("/".join(one) for one in clusters)
        why = f"the files name {names}" if chosen else f"there is none of it in the files, which name {names}"
        raise CommandFailed(f"--cluster {wanted}", why, "write NAMESPACE/NAME of one of them", code=ExitCode.USAGE)
    return [document for document in documents.documents if cluster_of(document.resource) == chosen[0]]


def _show(output: Output, outcomes: Sequence[Outcome], *, dry_run: bool) -> None:
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        beginning: list[Cell] = [
            outcome.resource.kind,
            outcome.resource.metadata.name,
            _action(outcome.action, dry_run=dry_run),
        ]
        if not outcome.differences:
            rows.append([*beginning, "", "", ""])
        for one in outcome.differences:
            rows.append(
                [
                    *beginning,
                    one.field,
                    "default" if one.before is None else one.before,
                    "default" if one.after is None else one.after,
                ]
            )
            beginning = ["", "", ""]
    output.table(_COLUMNS, rows)
    if not output.for_people:
        return
    for outcome in outcomes:
        if outcome.action != FAILED:
            for note in outcome.notes:
                output.note(f"{outcome.resource.kind} {outcome.resource.metadata.name}: {note}")
    counts = {action: sum(1 for one in outcomes if one.action == action) for action in (CREATED, CHANGED, UNCHANGED)}
    shown = ", ".join(f"{count} {_action(action, dry_run=dry_run)}" for action, count in counts.items() if count)
    output.text(f"{counted(len(outcomes), 'resource')}: {shown or 'nothing done'}")


def _action(action: str, *, dry_run: bool) -> str:
    if not dry_run:
        return action
    return {CREATED: "would be created", CHANGED: "would be changed"}.get(action, action)
