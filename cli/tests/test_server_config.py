"""The configuration of `bmq server`: which source counts, and the one line about what cannot be used."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from cli_cluster import BMQ

from bmq.config.limits import limits_of
from bmq.errors import ConfigurationError
from bmq_cli.main import execute
from bmq_controller.settings import ControllerSettings
from bmq_node.configuration.limits_reference import limits_reference
from bmq_node.configuration.node_settings import node_settings
from bmq_node.configuration.server_config import ServerConfig, about, flag_of, variable_of
from bmq_node.configuration.server_reference import server_reference
from bmq_node.configuration.sources import read_config, unknown_variables
from bmq_node.configuration.values import MIB, Role

PAGE = Path(__file__).parents[2] / "docs" / "server-configuration.md"
GIVEN = {"node_id": "7", "store": "memory://"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("BMQ_")]:
        monkeypatch.delenv(name)
    yield


def refused(flags: dict[str, Any], file: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_config({**GIVEN, **flags}, file)
    line = str(caught.value)
    assert "\n" not in line
    return line


def written(folder: Path, text: str) -> Path:
    file = folder / "bmq.yaml"
    file.write_text(text)
    return file


def test_the_page_is_what_the_keys_say() -> None:
    assert PAGE.read_text() == server_reference(), (
        "run: python -m bmq_node.configuration.server_reference >docs/server-configuration.md"
    )


def test_the_page_of_limits_is_what_their_tables_say() -> None:
    page = PAGE.with_name("limits.md")
    assert page.read_text() == limits_reference(), (
        "run: python -m bmq_node.configuration.limits_reference >docs/limits.md"
    )


def test_a_limit_is_set_by_name_and_one_that_cannot_be_is_refused_with_its_range() -> None:
    assert limits_of({"request_elements_max": "2000"}).request_elements_max == 2000
    for given, why in (
        ({"requests": "1"}, "requests is no limit"),
        ({"request_elements_max": "5"}, "set a whole number from 1000 to 100000"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            limits_of(given)


def test_every_key_has_documentation_a_group_and_a_remedy() -> None:
    for key, field in ServerConfig.model_fields.items():
        assert field.description, key
        assert about(key, "group"), key
        assert about(key, "remedy"), key
        assert flag_of(key) in PAGE.read_text(), key
        assert variable_of(key) in PAGE.read_text(), key
        assert not re.search(r"(^|_)port$", key), "Kubernetes sets such a variable for each Service"


def test_every_key_is_read_by_something() -> None:
    by_name = {"node_id_base"}  # by the name of the host, before there is a configuration
    root = PAGE.parents[1]
    files = [path for folder in ("node/src", "cli/src") for path in (root / folder).rglob("*.py")]
    read = {
        key
        for path in files
        if path.name != "server_config.py"  # which checks them
        for key in re.findall(r"config\.(\w+)", path.read_text())
    }
    assert ServerConfig.model_fields.keys() - by_name - read == set()


def test_every_default_is_a_value_that_may_be_given() -> None:
    defaults = read_config(GIVEN)
    assert read_config(GIVEN | defaults.model_dump()).model_dump() == defaults.model_dump()


def test_flags_go_before_variables_before_the_file_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "linger_ms: 1\nrack: from-file\nlisten: 127.0.0.1:1\nnode_id: 1\nstore: memory://\n")
    monkeypatch.setenv("BMQ_LINGER_MS", "2")
    monkeypatch.setenv("BMQ_RACK", "from-variable")
    config = read_config({"linger_ms": "3"}, file)
    assert (config.linger_ms, config.rack, config.listen, config.admin) == (
        3,
        "from-variable",
        "127.0.0.1:1",
        "127.0.0.1:9080",
    )


def test_an_empty_variable_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMQ_LINGER_MS", "")
    assert read_config(GIVEN).linger_ms == 5


def test_roles_and_sizes_and_settings_of_the_cluster_are_read_from_each_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(
        tmp_path,
        "roles: [broker, proxy]\nflush_bytes: 1MiB\ncluster_config:\n  num.partitions: 3\n  "
        "auto.create.topics.enable: false\n",
    )
    config = read_config(GIVEN, file)
    assert (config.roles, config.flush_bytes) == ((Role.BROKER, Role.PROXY), MIB)
    assert config.cluster_config == {"num.partitions": "3", "auto.create.topics.enable": "false"}
    monkeypatch.setenv("BMQ_ROLES", "controller, broker")
    monkeypatch.setenv("BMQ_FLUSH_BYTES", "2097152")
    monkeypatch.setenv("BMQ_CLUSTER_CONFIG", "num.partitions=4,group.max.size=9")
    config = read_config(GIVEN, file)
    assert (config.roles, config.flush_bytes) == ((Role.CONTROLLER, Role.BROKER), 2 * MIB)
    assert config.cluster_config == {"num.partitions": "4", "group.max.size": "9"}
    config = read_config({**GIVEN, "roles": "proxy", "cluster_config": ["num.partitions=5"]}, file)
    assert (config.roles, config.cluster_config) == ((Role.PROXY,), {"num.partitions": "5"})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"node_id": "-1"}, ("--node-id '-1'", "0 to 2147483647", "each process")),
        ({"node_id": "one"}, ("--node-id 'one'", "whole number")),
        ({"roles": "broker,king"}, ("--roles 'broker,king'", "controller, broker, proxy")),
        ({"roles": "broker,broker"}, ("--roles", "broker,broker", "at most once")),
        ({"listen": "localhost"}, ("--listen", "'localhost'", "HOST:PORT")),
        ({"listen": "localhost:70000"}, ("--listen", "localhost:70000", "HOST:PORT")),
        ({"admin": "none"}, ("--admin", "'none'", "HOST:PORT")),
        ({"linger_ms": "60000"}, ("--linger-ms '60000'", "0 to 10000")),
        ({"linger_ms": "nan"}, ("--linger-ms 'nan'", "0 to 10000")),
        ({"flush_bytes": "1PiB"}, ("--flush-bytes '1PiB'", "4MiB", "64KiB to 64MiB")),
        ({"flush_bytes": "1GiB"}, ("--flush-bytes '1GiB'", "64KiB to 64MiB")),
        ({"in_flight_max": "9"}, ("--in-flight-max '9'", "1 to 8")),
        ({"cluster_id": "-x"}, ("--cluster-id '-x'", "letters, digits")),
        ({"log_level": "loud"}, ("--log-level 'loud'", "debug, info, warning or error")),
        ({"cluster_config": ["num.partition=3"]}, ("--cluster-config", "num.partition", "num.partitions")),
        ({"cluster_config": ["num.partitions=many"]}, ("--cluster-config", "num.partitions=many", "whole number")),
        ({"cluster_config": ["num.partitions"]}, ("--cluster-config", "num.partitions", "KEY=VALUE")),
        (
            {"cluster_config": ["group.max.session.timeout.ms=5000"]},
            ("--cluster-config", "group.max.session.timeout.ms=5000", "group.min.session.timeout.ms=6000", "set"),
        ),
        ({"listen": "0.0.0.0:9092"}, ("listen 0.0.0.0:9092", "advertised_listen")),
        ({"internal_listen": "0.0.0.0:9190"}, ("internal_listen 0.0.0.0:9190", "advertised_internal")),
        ({"advertised_listen": "0.0.0.0:9092"}, ("advertised_listen 0.0.0.0:9092", "a name or an address")),
        ({"tail_limit_bytes": "64MiB"}, ("tail_limit_bytes 64MiB", "tail_budget_bytes 128MiB", "raise")),
    ],
)
def test_a_flag_that_cannot_be_used_is_named_with_its_value_and_a_remedy(
    flags: dict[str, Any], says: tuple[str, ...]
) -> None:
    line = refused(flags)
    assert [part for part in says if part not in line] == [], line


@pytest.mark.parametrize("value", ["schlüssel-für-prüfer-äöü", "abcdefghijklmnop\x01q"])
@pytest.mark.parametrize("key", ["admin_token", "admin_tokens_accepted", "cluster_secret", "cluster_secrets_accepted"])
def test_a_secret_that_clients_cannot_send_is_refused_and_not_shown(key: str, value: str) -> None:
    line = refused({key: value})
    assert flag_of(key) in line and value not in line


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMQ_IN_FLIGHT_MAX", "many")
    assert refused({}) == "BMQ_IN_FLIGHT_MAX 'many': set a number from 1 to 8"


def test_a_wrong_value_in_the_file_is_named_with_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "in_flight_max: many\n")
    assert refused({}, file) == f"in_flight_max in {file} 'many': set a number from 1 to 8"


@pytest.mark.parametrize("key", ["node_id", "store"])
def test_what_has_to_be_given_is_asked_for_by_all_its_names(key: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"^{key} is missing: .*{flag_of(key)}, {variable_of(key)} or {key} in the file of --config( .or|$)",
    ):
        read_config({name: value for name, value in GIVEN.items() if name != key})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("linger: 5\n", "linger in {file}: there is no such key: did you mean linger_ms?"),
        ("quux: 5\n", "quux in {file}: there is no such key: docs/server-configuration.md has all"),
        ("- node_id\n", "--config {file}: it is a list: write lines of KEY: VALUE"),
        ("node_id: [\n", "--config {file}: line 2 is not YAML: write lines of KEY: VALUE"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    assert refused({}, file) == says.format(file=file)


def test_an_empty_file_is_one_without_keys(tmp_path: Path) -> None:
    assert read_config(GIVEN, written(tmp_path, "# nothing yet\nrack:\n")).rack == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"#" * ((1 << 20) + 1), "has more than 1048576 bytes: name a YAML file of lines KEY: VALUE"),
        (b"node_id: " + b"[" * 10_000, "is nested too deeply: write lines of KEY: VALUE"),
    ],
)
def test_a_file_that_is_no_configuration_by_its_size_or_depth_is_refused(
    content: bytes, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "bmq.yaml"
    file.write_bytes(content)
    assert refused({}, file) == f"--config {file}: it {says}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert (
        refused({}, tmp_path / "none.yaml")
        == f"--config {tmp_path}/none.yaml: no such file or directory: name a readable YAML file"
    )


def test_a_variable_that_is_nearly_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMQ_LINGERMS", "5")
    assert refused({}) == "BMQ_LINGERMS '5': there is no such key: did you mean BMQ_LINGER_MS?"


def test_variables_of_others_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes sets these where Services are named bmq, bmq-admin and bmq-listen."""
    for name in (
        "BMQ_PORT",
        "BMQ_SERVICE_HOST",
        "BMQ_ADMIN_PORT_9080_TCP",
        "BMQ_LISTEN_PORT",
        "BMQ_ADMIN_SERVICE_PORT_HTTP",
        "BMQ_TEAM",
    ):
        monkeypatch.setenv(name, "tcp://10.0.0.1:9092")
    assert read_config(GIVEN).node_id == 7
    assert unknown_variables() == ["BMQ_TEAM"]


def test_variables_that_are_no_keys_are_told_at_the_start_by_their_names() -> None:
    """The process ends at once, for want of a store."""
    named = {"BMQ_NOPE": "secret", "BMQ_PROBE_TOPIC": "t", "BMQ_LANE": "dev", "BMQ_SERVICE_HOST": "h"}
    command = [BMQ, "server", "--node-id", "7", "--store", "file:///dev/null/none"]
    ended = subprocess.run(
        command, env={**os.environ, **named}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    [told] = [line for line in ended.stderr.splitlines() if "no keys of bmq" in line]
    assert "BMQ_NOPE" in told and not any(word in told for word in ("secret", "PROBE", "LANE", "SERVICE"))


def test_the_command_refuses_in_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["server", "--node-id", "x", "--store", "memory://"]) == 2
    assert capsys.readouterr().err == "error: --node-id 'x': " + str(about("node_id", "remedy")) + "\n"


def test_a_store_that_cannot_be_used_has_exit_code_2() -> None:
    command = [BMQ, "server", "--node-id", "1", "--store", "s3://bucket?regoin=x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"error: store s3://bucket: regoin .*\n", done.stderr)


def test_times_of_the_controllers_lead_to_each_other_and_to_the_brokers() -> None:
    settings = node_settings(read_config(GIVEN), one_disk=True, log_dir="x")
    assert settings.controller == ControllerSettings(balance_interval_s=1.0), (
        "the defaults are those of the role, but that the cluster is balanced"
    )
    config = read_config(
        {**GIVEN, "lease_ms": "20000", "takeover_ms": "10000", "balance_interval_ms": "0", "balance_rest_ms": "1500"}
    )
    settings = node_settings(config, one_disk=True, log_dir="x")
    assert (settings.controller.lease_s, settings.broker.lease_ms) == (20, 20_000)
    assert settings.controller.sign_of_life_s * 2 < settings.controller.takeover_s == 10
    assert settings.controller.standby_look_s < settings.controller.standby_quiet_s < settings.controller.takeover_s
    assert (settings.controller.balance_interval_s, settings.controller.balance_rest_s) == (0, 1.5)


def test_what_roles_are_told_by_default_is_what_they_have_by_default() -> None:
    settings = node_settings(ServerConfig(store="s3://bucket", node_id=1), one_disk=False, log_dir="x")
    told_otherwise = {"balance_interval_s", "eager", "advertised_port"}
    """A cluster is balanced; a bucket's requests cost something; and where the proxy listens is known."""
    for role in (settings.controller, settings.broker, settings.groups, settings.proxy):
        by_itself = type(role)()
        for field in fields(role):
            if field.name not in told_otherwise:
                assert getattr(role, field.name) == getattr(by_itself, field.name), field.name


def test_a_takeover_that_takes_longer_than_a_lease_is_refused() -> None:
    assert refused({"takeover_ms": "6000"}) == (
        "takeover_ms 6000: it is not below lease_ms 6000, so nodes would be taken for dead while nobody leads: "
        "raise the second or lower the first"
    )
    assert read_config({**GIVEN, "takeover_ms": "6000", "lease_ms": "6001"}).takeover_ms == 6000
    assert "from 1000 to 60000" in refused({"takeover_ms": "10"})


def on_host(name: str, flags: dict[str, Any], file: Path | None = None) -> ServerConfig:
    return read_config({"store": "memory://", **flags}, file, host_name=name)


@pytest.mark.parametrize("host", ["bmq-broker-12", "bmq-broker-12.bmq-nodes.prod.svc.cluster.local", "b12"])
def test_a_node_id_is_the_base_and_the_number_at_the_end_of_the_host_name(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_host(host, {"node_id_base": "1000"}).node_id == 1012
    assert on_host(host, {}, written(tmp_path, "node_id_base: 0\n")).node_id == 12
    monkeypatch.setenv("BMQ_NODE_ID_BASE", "7")
    assert on_host(host, {}).node_id == 19


@pytest.mark.parametrize(
    ("host", "flags", "says"),
    [
        (
            "bmq-broker",
            {"node_id_base": "1000"},
            "node_id_base 1000: the host's name 'bmq-broker' does not end in a number: set node_id instead, or",
        ),
        (
            "db-7.eu-1",
            {"node_id_base": "2147483641"},
            "node_id_base 2147483641: with the 7 of db-7 it is above 2147483647: lower it",
        ),
        (
            "b-1",
            {"node_id_base": "5", "node_id": "6"},
            "node_id 6 and node_id_base 5 are both given: leave one of them out",
        ),
        ("b-1", {"node_id_base": "-5"}, "--node-id-base '-5': set a whole number from 0"),
        ("b-1", {"node_id_base": "many"}, "--node-id-base 'many': set a whole number from 0"),
        ("b-1", {}, "node_id is missing: .* in the file of --config \\(or node_id_base\\)$"),
        (
            "b",
            {"node_id": "1", "advertised_internal": "b-{ordinal}:1"},
            "advertised_internal b-{ordinal}:1: the host's name 'b' does not end in a num",
        ),
        (
            "b",
            {"node_id": "1", "advertised_listen": "{host}:1"},
            "advertised_listen {host}:1: {host} stands for nothing: use {hostname} or {ordinal}",
        ),
        ("b", {"node_id": "1", "advertised_listen": "{hostname}"}, "--advertised-listen 'b': write HOST:PORT"),
    ],
)
def test_what_a_host_name_cannot_give_is_refused_with_a_remedy(host: str, flags: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        on_host(host, flags)
    assert re.match(says if "\\(" in says else re.escape(says), str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_addresses_that_others_are_told_are_made_from_the_host_name(tmp_path: Path) -> None:
    file = written(tmp_path, 'node_id_base: 10000\nlisten: "*:9092"\nadvertised_listen: "{hostname}.nodes.svc:9092"\n')
    config = on_host(
        "bmq-proxy-3.nodes.svc.cluster.local",
        {"internal_listen": "*:9190", "advertised_internal": "n{ordinal}.example:9190"},
        file,
    )
    assert (config.advertised_listen, config.advertised_internal) == ("bmq-proxy-3.nodes.svc:9092", "n3.example:9190")
    assert config.node_id == 10003


def test_listeners_are_read_from_each_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(
        tmp_path,
        'listeners: {external: "0.0.0.0:9094"}\nadvertised_listeners:\n  external: "n{ordinal}.example:31001"\n',
    )
    config = on_host("proxy-4", {"node_id": "7"}, file)
    assert (config.listeners, config.advertised_listeners) == (
        {"external": "0.0.0.0:9094"},
        {"external": "n4.example:31001"},
    )
    monkeypatch.setenv("BMQ_LISTENERS", "external=127.0.0.1:9094, lan=[::1]:9095")
    monkeypatch.setenv("BMQ_ADVERTISED_LISTENERS", "lan={hostname}:0")
    config = on_host("proxy-4", {"node_id": "7"}, file)
    assert (config.listeners, config.advertised_listeners) == (
        {"external": "127.0.0.1:9094", "lan": "[::1]:9095"},
        {"lan": "proxy-4:0"},
    )
    flags = {
        "node_id": "7",
        "listeners": ["a=127.0.0.1:1,b=127.0.0.1:2", "c=127.0.0.1:3"],
        "advertised_listeners": ["a={hostname}:1"],
    }
    config = on_host("proxy-4", flags)
    assert (list(config.listeners), config.advertised_listeners) == (["a", "b", "c"], {"a": "proxy-4:1"})


OUTSIDE = ["out=127.0.0.1:9094"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            {"listeners": ["out=127.0.0.1:1", "out=127.0.0.1:2"]},
            "--listeners 'out=127.0.0.1:2': there is a listener out already: give each its own",
        ),
        ({"listeners": ["out"]}, "--listeners 'out': write NAME=HOST:PORT"),
        ({"listeners": ["out=nine"]}, "--listeners out=nine: write NAME=HOST:PORT, for example external=0.0.0.0:9094"),
        (
            {"listeners": ["9=127.0.0.1:1"]},
            "--listeners 9=127.0.0.1:1: no name for a listener: use 1 to 63 letters, digits, - and _, beginning with",
        ),
        (
            {"listeners": ["internal=127.0.0.1:1"]},
            "--listeners internal=127.0.0.1:1: internal is the listener of `listen`, which is always there: ch",
        ),
        (
            {"listeners": ["a=127.0.0.1:1", "b=127.0.0.1:1"]},
            "listeners b=127.0.0.1:1: port 1 is that of the listener a: give each a port of its own",
        ),
        (
            {"listen": "127.0.0.1:9080"},
            "admin 127.0.0.1:9080: port 9080 is that of listen: give each a port of its own",
        ),
        (
            {"internal_listen": "127.0.0.1:9092"},
            "internal_listen 127.0.0.1:9092: port 9092 is that of listen: give each a port of its own",
        ),
        (
            {"listeners": ["a=127.0.0.1:9092"]},
            "listeners a=127.0.0.1:9092: port 9092 is that of listen: give each a port of its own",
        ),
        (
            {"listeners": ["a=127.0.0.1:9190"]},
            "listeners a=127.0.0.1:9190: port 9190 is that of internal_listen: give each a port of its own",
        ),
        (
            {"listeners": ["a=0.0.0.0:9080"], "advertised_listeners": ["a=h:1"]},
            "listeners a=0.0.0.0:9080: port 9080 is that of admin: give each",
        ),
        (
            {"listeners": ["a=0.0.0.0:9094"]},
            "listeners a=0.0.0.0:9094: it does not say where clients reach this node: set advertised_listeners to a=",
        ),
        (
            {"listeners": OUTSIDE, "advertised_listeners": ["in=h:1"]},
            "advertised_listeners in=h:1: there is no such listener, there are out: add it",
        ),
        (
            {"advertised_listeners": ["in=h:1"]},
            "advertised_listeners in=h:1: there is no such listener, there are none: add it to listeners, or",
        ),
        (
            {"listeners": OUTSIDE, "advertised_listeners": ["out=*:1"]},
            "advertised_listeners out=*:1: nobody can connect to that: set a name or",
        ),
        (
            {"advertised_listeners_file": "x"},
            "advertised_listeners_file x: there are no listeners: set them too, or leave it out",
        ),
    ],
)
def test_listeners_that_cannot_be_are_refused_with_a_remedy(flags: dict[str, Any], says: str) -> None:
    line = refused(flags)
    assert line.startswith(says), line


def test_a_key_that_is_in_the_file_twice_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "rack: a\nlisteners:\n  out: 127.0.0.1:1\n  out: 127.0.0.1:2\n")
    assert refused({}, file) == f"--config {file}: line 4: out is there twice: leave one of them out"
    file = written(tmp_path, "rack: a\nrack: b\n")
    assert refused({}, file) == f"--config {file}: line 2: rack is there twice: leave one of them out"


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 65, "ü", "a/b"])
def test_a_pool_has_a_name_that_topics_can_give(name: str) -> None:
    assert "1 to 64 letters" in refused({"pool": name})
    assert read_config({**GIVEN, "pool": "gold.eu-1_x"}).pool == "gold.eu-1_x"
