"""What Kafka's errors are as failures of a command. Pure."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode

_NOT_FOUND: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.RESOURCE_NOT_FOUND,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_GROUP,
    }
)
_USAGE: Final = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_GROUP_ID,
        KafkaError._INVALID_ARG,
    }
)
_NO_CONNECTION: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    }
)
_REASONS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "there is no such topic or partition",
    KafkaError._UNKNOWN_TOPIC: "there is no such topic",
    KafkaError._UNKNOWN_PARTITION: "there is no such partition",
    KafkaError.GROUP_ID_NOT_FOUND: "there is no such group",
}
_REMEDIES: Final = {
    KafkaError.NON_EMPTY_GROUP: "stop its members first",
    KafkaError.UNKNOWN_MEMBER_ID: "the group has members: stop them first",
    KafkaError.TOPIC_ALREADY_EXISTS: "choose another name, or add --if-not-exists",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes, or send smaller records",
}


def exit_code_of(error: KafkaError) -> ExitCode:
    """The exit code that a Kafka error leads to."""
    code = error.code()
    if code in _NOT_FOUND:
        return ExitCode.NOT_FOUND
    if code in _USAGE:
        return ExitCode.USAGE
    return ExitCode.NO_CONNECTION if code in _NO_CONNECTION else ExitCode.FAILED


def kafka_failure(what: str, error: KafkaError | KafkaException, remedy: str = "") -> CommandFailed:
    """`error`, met while doing `what`, as a failure of the command."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(cause, KafkaError):
        return CommandFailed(what, str(cause), remedy)
    return CommandFailed(
        what,
        _REASONS.get(cause.code()) or cause.str().removeprefix("Broker: ") or cause.name(),
        remedy or _REMEDIES.get(cause.code(), ""),
        code=exit_code_of(cause),
    )
