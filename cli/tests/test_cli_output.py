"""Tables, documents and errors as they are printed."""

import io
import json

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from bmq_cli.kafka.connection import check_addresses
from bmq_cli.kafka.failures import kafka_failure
from bmq_cli.main import execute
from bmq_cli.options import SharedOptions
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, SeveralFailed
from bmq_cli.terminal.output import Column, Output, counted, fields, shown
from bmq_cli.terminal.output_format import OutputFormat
from bmq_cli.topics.commands import show_topic

COLUMNS = (Column(title="TOPIC"), Column(title="PARTITIONS", number=True))

TOPIC = {
    "name": "orders",
    "id": "V1Iuog2SRnm0ck8KFpIo7g",
    "internal": False,
    "partitions": [
        {"partition": 0, "leader": 1, "leader_epoch": 4, "log_start_offset": 10, "high_watermark": 25, "records": 15},
        {
            "partition": 1,
            "leader": None,
            "leader_epoch": None,
            "log_start_offset": 0,
            "high_watermark": 0,
            "records": 0,
        },
    ],
    "configuration": [{"name": "retention.ms", "value": "60000", "source": "topic", "read_only": False}],
}
TOPIC_TEXT = """\
orders  partitions 2  records 15  id V1Iuog2SRnm0ck8KFpIo7g
PARTITION  LEADER  EPOCH  LOG START  HIGH WATERMARK  RECORDS
        0       1      4         10              25       15
        1       -      -          0               0        0

CONFIGURATION  VALUE  SOURCE
retention.ms   60000  topic
"""


def printed(form: OutputFormat) -> tuple[Output, io.StringIO, io.StringIO]:
    stdout, stderr = io.StringIO(), io.StringIO()
    return Output(form=form, stdout=stdout, stderr=stderr), stdout, stderr


def test_a_table_is_aligned_and_has_no_trailing_spaces() -> None:
    output, stdout, _ = printed(OutputFormat.TABLE)
    output.table(COLUMNS, [("orders", 12), ("b", None)])
    assert stdout.getvalue() == "TOPIC   PARTITIONS\norders          12\nb                -\n"


def test_a_table_that_is_no_terminal_is_never_cut_or_broken() -> None:
    output, stdout, _ = printed(OutputFormat.TABLE)
    output.table(COLUMNS, [("x" * 400, 1)])
    assert [len(line) for line in stdout.getvalue().splitlines()] == [412, 412]


def test_markup_in_names_is_printed_as_it_is() -> None:
    output, stdout, stderr = printed(OutputFormat.TABLE)
    output.table((Column(title="T"),), [("[bold]x[/bold] :smile:",)])
    output.error("[red]x[/red]: y")
    assert stdout.getvalue() == "T\n[bold]x[/bold] :smile:\n"
    assert stderr.getvalue() == "error: [red]x[/red]: y\n"


def test_json_and_yaml_print_the_document_and_no_tables() -> None:
    document = [{"name": "ö", "partitions": 3, "leader": None}]
    for form, read in ((OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)):
        output, stdout, _ = printed(form)
        output.document(document)
        output.table(COLUMNS, [("ö", 3)])
        output.text("created")
        assert read(stdout.getvalue()) == document
        assert "ö" in stdout.getvalue()


def test_in_a_table_the_document_is_not_printed() -> None:
    output, stdout, _ = printed(OutputFormat.TABLE)
    output.document({"a": 1})
    assert stdout.getvalue() == ""


def test_a_topic_is_shown_with_its_partitions_and_configuration() -> None:
    output, stdout, _ = printed(OutputFormat.TABLE)
    show_topic(output, TOPIC)
    assert stdout.getvalue() == TOPIC_TEXT


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "-"), (True, "yes"), (False, "no"), (0, "0"), (2.5, "2.5"), (0.0, "0"), (1.23456, "1.235")],
)
def test_cells_are_shown_for_people(cell: str | float | bool | None, text: str) -> None:
    assert shown(cell) == text


def test_small_texts() -> None:
    assert fields([("state", "empty"), ("lag", None)]) == "state empty  lag -"
    assert (counted(1, "record"), counted(0, "record"), counted(2, "byte")) == ("1 record", "0 records", "2 bytes")


def test_an_error_is_one_line_of_what_why_and_remedy() -> None:
    assert (
        str(CommandFailed("topic t", "there is\n no such topic.", "create it"))
        == "topic t: there is no such topic. create it"
    )
    assert str(CommandFailed("topic t", "broken")) == "topic t: broken"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ExitCode.NOT_FOUND),
        (KafkaError.GROUP_ID_NOT_FOUND, ExitCode.NOT_FOUND),
        (KafkaError.INVALID_CONFIG, ExitCode.USAGE),
        (KafkaError.INVALID_PARTITIONS, ExitCode.USAGE),
        (KafkaError._TRANSPORT, ExitCode.NO_CONNECTION),
        (KafkaError._TIMED_OUT, ExitCode.NO_CONNECTION),
        (KafkaError.TOPIC_ALREADY_EXISTS, ExitCode.FAILED),
        (KafkaError.NON_EMPTY_GROUP, ExitCode.FAILED),
    ],
)
def test_kafka_errors_lead_to_exit_codes_for_scripts(code: int, exit_code: ExitCode) -> None:
    assert kafka_failure("x", KafkaError(code)).code is exit_code
    assert kafka_failure("x", KafkaException(KafkaError(code))).code is exit_code


def test_several_failures_share_their_code_or_are_a_plain_failure() -> None:
    missing = CommandFailed("a", "b", code=ExitCode.NOT_FOUND)
    assert SeveralFailed([missing, missing]).code is ExitCode.NOT_FOUND
    assert SeveralFailed([missing, CommandFailed("a", "b")]).code is ExitCode.FAILED


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "[::1]:9092", "a.example:1,b.example:65535"])
def test_addresses_are_accepted(address: str) -> None:
    assert check_addresses(address) == address


@pytest.mark.parametrize(
    "address", ["", "x", "x:", ":9092", "x:0", "x:65536", "x:9092,", "http://x:9092", "x:9092/y", "x y:1"]
)
def test_what_is_no_address_is_an_error_of_usage(address: str) -> None:
    with pytest.raises(CommandFailed, match="not HOST:PORT") as caught:
        check_addresses(address)
    assert caught.value.code is ExitCode.USAGE


def test_options_after_the_command_go_before_those_in_front_of_it() -> None:
    outer = SharedOptions(bootstrap_server="a:1", output=OutputFormat.YAML, timeout=5)
    inner = SharedOptions(bootstrap_server="b:2", timeout=1)
    assert inner.over(outer) == SharedOptions(bootstrap_server="b:2", output=OutputFormat.YAML, timeout=1)
    assert SharedOptions().over(outer) == outer


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topics", "lst"], "error: usage: No such command 'lst'. Did you mean 'list'? Try `bmq topics --help`\n"),
        (["topics", "create"], "error: usage: Missing argument 'NAME'. Try `bmq topics create --help`\n"),
        (["topics", "list", "-o", "xml"], None),
        (["topics", "list", "--timeout", "0"], None),
        (
            ["-b", "nowhere", "topics", "list"],
            "error: --bootstrap-server nowhere: 'nowhere' is not HOST:PORT. for example 127.0.0.1:9092\n",
        ),
        (["topics", "create", "t", "--config", "x", "-b", "h:1"], None),
        (
            ["topics", "alter", "t"],
            "error: alter topic t: nothing to change. give --partitions, --config or --delete-config\n",
        ),
        (["consume", "t", "--from", "soon"], None),
        (["consume", "t", "-f", "%q"], None),
        (["consume", "t", "-f", "%v", "-o", "json"], None),
        (["consume", "t", "-g", "g", "-p", "0"], None),
        (["produce", "t", "--json", "--key-separator", ":"], None),
        (
            ["produce", "t", "-f", "/no/such/file"],
            "error: --file /no/such/file: no such file or directory. name a file that can be read, or leave --file out "
            "to read standard input\n",
        ),
        (
            ["groups", "reset-offsets", "g", "--to", "end"],
            "error: reset-offsets: it is not clear of which topics. give --topic or --all-topics\n",
        ),
        (
            ["groups", "reset-offsets", "g", "--topic", "t"],
            "error: reset-offsets: the target is not clear. give one of --to and --shift-by\n",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], error: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == ExitCode.USAGE
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert error is None or err == error


def test_nobody_listening_is_exit_code_4_with_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.3"]) == ExitCode.NO_CONNECTION
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: cannot connect to 127.0.0.1:1: Connection refused. start one with `bmq up`")


def test_the_version_and_the_help_are_no_errors(capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == ExitCode.OK
    assert execute(["topics", "--help"]) == ExitCode.OK
    out, err = capfd.readouterr()
    assert out.startswith("bmq ")
    assert err == ""


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), st.none() | st.integers() | st.booleans()),
        max_size=5,
    )
)
def test_any_document_survives_json_and_yaml(rows: list[tuple[str, int | bool | None]]) -> None:
    document = [{"name": name, "value": value} for name, value in rows]
    for form, read in ((OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)):
        output, stdout, _ = printed(form)
        output.document(document)
        assert read(stdout.getvalue()) == document


def test_a_reader_that_has_gone_is_the_commands_to_deal_with() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    output = Output(stdout=Gone())
    for printed in (
        lambda: output.text("a line"),
        lambda: output.table(COLUMNS, [("orders", 3)]),
        lambda: output.table(COLUMNS, [], title="none"),
    ):
        with pytest.raises(BrokenPipeError):
            printed()


@pytest.mark.parametrize("form", list(OutputFormat))
def test_names_with_a_terminals_commands_in_them_do_nothing(form: OutputFormat) -> None:
    evil = "a\x1b[2J\x9b31m\u202e"
    stdout, stderr = io.StringIO(), io.StringIO()
    output = Output(form=form, stdout=stdout, stderr=stderr)
    output.table([Column(title="NAME")], [[evil]])
    output.document({"name": evil})
    output.text(evil)
    output.note(evil)
    output.error(evil)
    written = stdout.getvalue() + stderr.getvalue()
    assert all(line.isprintable() for line in written.split("\n"))
    if form is OutputFormat.JSON:
        assert json.loads(stdout.getvalue()) == {"name": evil}
