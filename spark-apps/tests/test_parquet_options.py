from pathlib import Path

import pytest
from free_ports import free_port

from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.jobs import cluster, iceberg
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.options import size_bytes, time_ms

LEAST = ["--topic", "orders", "--output", "/tables/orders"]


def test_little_has_to_be_said() -> None:
    options = parse(LEAST)
    assert (options.bootstrap_servers, options.format, options.partition_by, options.source) == (
        "127.0.0.1:9092",
        "bytes",
        "hour",
        "kafka",
    )
    assert (options.group, options.trigger_ms, options.once) == ("parquet-orders", 60_000, False)
    assert (options.target_file_size_bytes, options.retention_ms) == (128 << 20, None)


def test_the_cluster_is_the_one_that_every_command_of_bmq_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMQ_BOOTSTRAP_SERVER", "kafka.example:9094")
    assert parse(LEAST).bootstrap_servers == "kafka.example:9094"
    for option in ("--bootstrap-servers", "--bootstrap-server", "-b"):  # as bmq's own commands call it, too
        assert parse([*LEAST, option, "other:1"]).bootstrap_servers == "other:1"
    monkeypatch.setenv("BMQ_BOOTSTRAP_SERVER", "")
    assert parse(LEAST).bootstrap_servers == "127.0.0.1:9092"


def test_a_run_that_reaches_no_broker_makes_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its format would be for good. Spark is not asked for anything before that."""
    monkeypatch.setattr(cluster, "WAIT_S", 1)
    nobody = ["--topic", "orders", "--bootstrap-servers", f"127.0.0.1:{free_port()}", "--once"]
    with pytest.raises(JobStopped, match="no answer"):
        run(parse([*nobody, "--output", str(tmp_path / "table"), "--format", "json"]), None)  # type: ignore[arg-type]
    assert not (tmp_path / "table").exists()
    options = iceberg.parse(
        [*nobody, "--table", "lake.db.orders", "--catalog-type", "hadoop", "--warehouse", str(tmp_path / "warehouse")]
    )
    with pytest.raises(JobStopped, match="no answer"):
        iceberg.run(options, None)  # type: ignore[arg-type]
    assert not (tmp_path / "warehouse").exists()


def test_several_topics_share_a_group() -> None:
    assert parse([*LEAST, "--topic", "payments", "--topic", "orders"]).topics == ("orders", "payments")
    assert parse([*LEAST, "--topic", "payments"]).group == "parquet-orders-payments"


def test_a_lane_is_told_by_the_clients_name() -> None:
    assert parse([*LEAST, "--lane", "dev"]).client_id == "bmq-spark,lane=dev"
    assert parse(LEAST).client_id == "bmq-spark"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--topic", "no/topic"], "--topic 'no/topic': no topic's name: write one name, and repeat --topic for more"),
        (["--source", "bmq"], "--source bmq: needs --store"),
        (["--store", "/data"], "only --source bmq reads it"),
        (["--format", "avro"], "--format avro: needs --schema FILE_OR_URI or --registry URL"),
        (["--schema", "a.json"], "--schema: --format bytes takes none"),
        (["--format", "json", "--message", "Order"], "only --format protobuf has messages"),
        (["--trigger", "soon"], "--trigger 'soon': write a time like 30s"),
        (["--target-file-size", "0MiB"], "--target-file-size '0MiB': write a size like 128MiB"),
        (["--max-records-per-batch", "0"], "--max-records-per-batch 0: give 1 or more"),
        (["--consumer-config", "x"], "--consumer-config 'x': write KEY=VALUE"),
        (["--consumer-config", "group.id=g"], "the job sets it itself"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(more: list[str], line: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse([*LEAST, *more])
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("30s", 30_000), ("1.5m", 90_000), ("12h", 43_200_000), ("30d", 2_592_000_000)],
)
def test_times_have_units(text: str, milliseconds: int) -> None:
    assert time_ms("--trigger", text) == milliseconds


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("128MiB", 128 << 20), ("1GB", 10**9), ("0.5KiB", 512)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert size_bytes("--target-file-size", text) == size
