"""Deleting several of what a cluster's admin API knows by name."""

from collections.abc import Callable, Sequence

from bmq_admin.requests import Request
from bmq_cli.cluster.client import ApiFailed
from bmq_cli.cluster.session import ClusterSession
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.topics.commands import raise_failures


def delete_each(session: ClusterSession, kind: str, names: Sequence[str], ask: Callable[[str], Request[None]]) -> None:
    """Each by itself, once; says which were. Raises what failed of the others at the end, and at once where nobody
    answers.
    """
    failures: list[CommandFailed] = []
    deleted = []
    for name in dict.fromkeys(names):
        try:
            session.client.ask(ask(name))
        except ApiFailed as failure:
            if failure.code is ExitCode.NO_CONNECTION:
                raise
            failures.append(failure)
        else:
            deleted.append(name)
            session.output.text(f"deleted {kind} {name}")
    session.output.document(deleted)
    raise_failures(failures)
