"""Topic names, and the configurations of topics and of the cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.config.cluster_config import (
    CLUSTER_KEYS,
    check_together,
    describe_cluster,
    resolve_cluster,
    validate_cluster,
    without_contradictions,
)
from bmq.config.config_keys import ConfigSource, ConfigType
from bmq.config.topic_config import TOPIC_KEYS, describe_topic, resolve, topic_key, validate
from bmq.errors import InvalidConfig, InvalidTopicName
from bmq.naming.names import check_topic_name, collision_key, is_internal, may_collide


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_kafka_allows_are_allowed(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a\0", "٣"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b") == collision_key("a_b") != collision_key("ab")
    assert may_collide("a.b") and may_collide("a_b") and not may_collide("a-b")
    assert is_internal("__consumer_offsets") and not is_internal("orders")


def test_without_configuration_a_topic_has_the_defaults() -> None:
    config = resolve({})
    assert config.retention_ms == 604_800_000
    assert config.retention_bytes == -1
    assert config.segment_bytes == 64 * 1024 * 1024
    assert config.max_message_bytes == 1_048_588
    assert config.timestamp_type == "CreateTime"
    assert config.timestamp_before_max_ms == 2**63 - 1
    assert config.timestamp_after_max_ms == 3_600_000
    assert config.delete and not config.compact


def test_every_default_is_a_legal_value() -> None:
    validate({name: key.default for name, key in TOPIC_KEYS.items()})
    validate_cluster({name: key.default for name, key in CLUSTER_KEYS.items()})


def test_a_topics_own_value_comes_before_the_clusters() -> None:
    defaults = {"log.retention.ms": "10", "message.max.bytes": "20"}
    config = resolve({"retention.ms": "30"}, defaults)
    assert (config.retention_ms, config.max_message_bytes) == (30, 20)


def test_values_with_spaces_and_capitals_are_read_as_java_reads_them() -> None:
    config = resolve({"retention.ms": " 5 ", "message.timestamp.type": "LogAppendTime"})
    assert config.retention_ms == 5
    assert config.timestamp_type == "LogAppendTime"
    validate({"preallocate": "TRUE"})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention.ms", "x", "whole number"),
        ("retention.ms", "", "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "٣", "whole number"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "9223372036854775808", "at most 9223372036854775807"),
        ("segment.bytes", "2147483648", "at most 2147483647"),
        ("segment.bytes", "100", "at least 65536"),
        ("max.message.bytes", "999999999", "at most 67108864"),
        ("message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
        ("cleanup.policy", "compact", "does not compact"),
        ("cleanup.policy", "compact,delete", "does not compact"),
        ("cleanup.policy", "", "does not compact"),
        ("cleanup.policy", "shred", "delete or compact"),
        ("cleanup.policy", "delete,delete", "once"),
        ("compression.type", "brotli", "set producer or uncompressed or gzip or snappy or lz4 or zstd"),
        ("compression.gzip.level", "10", "set at most 9"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "at most 1"),
        ("min.cleanable.dirty.ratio", "nan", "decimal"),
        ("retention.m", "1", "did you mean retention.ms"),
        ("no.such.thing.at.all", "1", "no topic configuration"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_key_and_remedy(name: str, value: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as raised:
        validate({name: value})
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_internal_topics_may_be_compacted() -> None:
    validate({"cleanup.policy": "compact"}, internal=True)
    assert resolve({"cleanup.policy": "compact"}).compact


def test_names_of_a_newer_bmq_are_passed_over_when_resolving() -> None:
    assert resolve({"from.the.future": "1"}) == resolve({})


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)), st.text(max_size=30)))
def test_what_validates_resolves(configs: dict[str, str]) -> None:
    try:
        validate(configs)
    except InvalidConfig:
        return
    resolve(configs)


def test_a_description_names_the_source_and_all_synonyms_in_order() -> None:
    rows = {
        row.name: row
        for row in describe_topic(
            {"retention.ms": "1"}, dynamic_defaults={"log.retention.ms": "2"}, static_defaults={"log.retention.ms": "3"}
        )
    }
    row = rows["retention.ms"]
    assert (row.value, row.source, row.type) == ("1", ConfigSource.DYNAMIC_TOPIC, ConfigType.LONG)
    assert [(s.name, s.value, s.source) for s in row.synonyms] == [
        ("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.ms", "3", ConfigSource.STATIC_BROKER),
        ("log.retention.ms", "604800000", ConfigSource.DEFAULT),
    ]
    assert rows["flush.ms"].source == ConfigSource.DEFAULT
    assert "No effect in bmq" in rows["flush.ms"].documentation
    assert list(rows) == sorted(rows)


def test_the_cluster_gives_topics_their_defaults_under_kafkas_names() -> None:
    for name in (
        "log.retention.ms",
        "message.max.bytes",
        "log.segment.bytes",
        "log.message.timestamp.type",
        "compression.type",
    ):
        assert name in CLUSTER_KEYS
    with pytest.raises(InvalidConfig):
        validate_cluster({"log.retention.ms": "x"})
    with pytest.raises(InvalidConfig, match="set delete"):
        validate_cluster({"log.cleanup.policy": "compact"})


LOW, HIGH = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({LOW: "7000", HIGH: "6999"}, f"{HIGH}=6999 is below {LOW}=7000, .*: set {HIGH} to no less than {LOW}"),
        ({HIGH: "5999"}, f"{HIGH}=5999 is below {LOW}=6000 \\(its default\\)"),
        ({LOW: "1800001"}, f"{HIGH}=1800000 \\(its default\\) is below {LOW}=1800001"),
    ],
)
def test_a_maximum_below_its_minimum_is_refused(configs: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        validate_cluster(configs)
    with pytest.raises(InvalidConfig, match=told):
        check_together(configs, {HIGH})
    check_together(configs, {"num.partitions"})


@pytest.mark.parametrize("configs", [{LOW: "7000", HIGH: "7000"}, {HIGH: "6000"}, {LOW: "1"}, {}])
def test_a_maximum_that_is_no_less_than_its_minimum_may_be_set(configs: dict[str, str]) -> None:
    assert validate_cluster(configs) == configs
    assert without_contradictions(configs, {}) == configs


def test_instead_of_a_stored_maximum_below_its_minimum_holds_what_was_there_at_the_start() -> None:
    stored = {LOW: "7000", HIGH: "10", "num.partitions": "3"}
    assert without_contradictions(stored, {}) == {"num.partitions": "3"}
    assert without_contradictions(stored, {LOW: "5"}) == {"num.partitions": "3", LOW: "5"}
    assert without_contradictions(stored, {LOW: "5", HIGH: "4"}) == {"num.partitions": "3"}
    assert without_contradictions({LOW: "of a newer version", HIGH: "10"}, {}) == {}


def test_the_clusters_configuration_resolves_and_is_described() -> None:
    config = resolve_cluster({"num.partitions": "6", "auto.create.topics.enable": "false"})
    assert (config.num_partitions, config.auto_create_topics, config.offsets_topic_partitions) == (6, False, 16)
    rows = {row.name: row for row in describe_cluster(dynamic={"num.partitions": "6"}, static={"num.partitions": "4"})}
    assert (rows["num.partitions"].value, rows["num.partitions"].source) == ("6", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert [s.value for s in rows["num.partitions"].synonyms] == ["6", "4", "1"]


def test_values_that_were_kept_with_any_number_of_blanks_are_described_without_them() -> None:
    stored = {"retention.ms": "5" + " " * 100_000}
    rows = {row.name: row for row in describe_topic(stored, dynamic_defaults={"log.retention.ms": "6" + " " * 100_000})}
    row = rows["retention.ms"]
    assert [row.value, *(one.value for one in row.synonyms)][:3] == ["5", "5", "6"]


def test_a_value_has_no_more_bytes_than_may_be_whatever_its_characters() -> None:
    key = topic_key("leader.replication.throttled.replicas")
    assert key.accept("😀" * 1_024) == "😀" * 1_024
    with pytest.raises(InvalidConfig, match="a value of 4100 bytes: at most 4096"):
        key.accept("😀" * 1_025)
