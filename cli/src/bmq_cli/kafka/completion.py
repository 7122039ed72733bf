"""Topic and group names from the cluster, for the shell's completion. Answers fast or with nothing: a completion never
fails and never hangs.
"""

import concurrent.futures
from typing import Final

import typer
from confluent_kafka import KafkaException

from bmq.naming.names import is_internal
from bmq_cli.kafka.connection import Connection, check_addresses, default_address
from bmq_cli.terminal.exit_codes import CommandFailed

_TIMEOUT_S: Final = 1.0


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Names of topics, internal ones only when an underscore was typed."""
    connection = _connection(context)
    try:
        names = sorted(connection.admin().list_topics(timeout=_TIMEOUT_S).topics) if connection else []
    except (CommandFailed, KafkaException):
        return []
    return [
        name for name in names if name.startswith(incomplete) and (incomplete.startswith("_") or not is_internal(name))
    ]


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Names of groups."""
    connection = _connection(context)
    try:
        if connection is None:
            return []
        listed = connection.admin().list_consumer_groups(request_timeout=_TIMEOUT_S).result(timeout=_TIMEOUT_S)
    except (CommandFailed, KafkaException, concurrent.futures.TimeoutError):
        return []
    return sorted(group.group_id for group in listed.valid or () if group.group_id.startswith(incomplete))


def _connection(context: typer.Context) -> Connection | None:
    scopes = [context, context.find_root()]
    given = [scope.params.get("bootstrap_server") for scope in scopes]
    address = next((address for address in given if address), default_address())
    try:
        return Connection(bootstrap_server=check_addresses(address), timeout_s=_TIMEOUT_S)
    except CommandFailed:
        return None
