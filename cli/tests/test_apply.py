"""`bmq apply` against a started bmq: what it changes, what it shows, what it refuses."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from api_server import problem, serving
from cli_cluster import BMQ, environment

from bmq_cli.apply.documents import read_documents
from bmq_cli.main import execute
from bmq_cli.terminal.exit_codes import SeveralFailed

ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("apply")
    with (folder / "server.log").open("wb") as log:
        arguments = [
            BMQ,
            "up",
            "--data",
            str(folder / "data"),
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--no-fsync",
        ]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        matched = re.search(r"and (\S+) \(admin\)", process.stdout.readline())
        assert matched is not None, (folder / "server.log").read_text()
        yield f"http://{matched[1]}"
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@pytest.fixture
def run(admin: str) -> Run:
    def apply(*arguments: str, stdin: str = "") -> Done:
        env = environment("127.0.0.1:1") | {"BMQ_ADMIN_URL": admin}
        done = subprocess.run(
            [BMQ, "apply", *arguments], input=stdin, capture_output=True, env=env, timeout=60, check=False, text=True
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return apply


def topic(name: str, /, metadata: Any = None, **spec: Any) -> str:
    return resource("Topic", name, metadata, **spec)


def resource(kind: str, name: str, metadata: Any = None, /, **spec: Any) -> str:
    document = {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **(metadata or {})},
        "spec": spec,
    }
    return "---\n" + yaml.safe_dump(document)


def applied(done: Done) -> list[tuple[str, str, list[tuple[str, Any, Any]]]]:
    assert done.code == 0, done
    return [
        (one["name"], one["action"], [(c["field"], c["before"], c["after"]) for c in one["changes"]])
        for one in json.loads(done.out)
    ]


def test_topics_are_created_and_changed_and_a_second_time_nothing_is(run: Run) -> None:
    first = topic("t1", topicName="T_1", partitions=2, config={"retention.ms": "1000", "max.message.bytes": "9999"})

    dry = applied(run("-f", "-", "--dry-run", "-o", "json", stdin=first))
    made = applied(run("-f", "-", "-o", "json", stdin=first))
    expected = [
        ("partitions", None, 2),
        ("config.max.message.bytes", None, "9999"),
        ("config.retention.ms", None, "1000"),
    ]
    assert dry == made == [("t1", "created", expected)]
    assert applied(run("-f", "-", "-o", "json", stdin=first)) == [("t1", "unchanged", [])]

    second = topic("t1", topicName="T_1", partitions=5, config={"retention.ms": "2000"})
    differences = [
        ("partitions", 2, 5),
        ("config.max.message.bytes", "9999", None),
        ("config.retention.ms", "1000", "2000"),
    ]
    assert applied(run("-f", "-", "--dry-run", "-o", "json", stdin=second)) == [("t1", "changed", differences)]
    assert applied(run("-f", "-", "-o", "json", stdin=second)) == [("t1", "changed", differences)], (
        "the dry run changed nothing"
    )
    assert applied(run("-f", "-", "-o", "json", stdin=second)) == [("t1", "unchanged", [])]


def test_blanks_around_a_value_are_no_difference(run: Run) -> None:
    text = topic("blanks", config={"retention.ms": "1000\n"})
    assert applied(run("-f", "-", "-o", "json", stdin=text))[0][1] == "created"
    assert applied(run("-f", "-", "-o", "json", stdin=text)) == [("blanks", "unchanged", [])]
    text = resource("Cluster", "bmq", store={"minio": {"embedded": True}}, config={"num.partitions": " 7"})
    assert applied(run("-f", "-", "-o", "json", stdin=text))[0][1] == "changed"
    assert applied(run("-f", "-", "-o", "json", stdin=text)) == [("bmq", "unchanged", [])]
    back = resource("Cluster", "bmq", store={"minio": {"embedded": True}})
    assert applied(run("-f", "-", "-o", "json", stdin=back))[0][1] == "changed"


def test_the_differences_are_a_table_for_people(run: Run) -> None:
    done = run("-f", "-", "--dry-run", stdin=topic("table", partitions=3, config={"retention.ms": "5"}))

    assert done.out.splitlines() == [
        "KIND   NAME   ACTION            FIELD                BEFORE   AFTER",
        "Topic  table  would be created  partitions           default  3",
        "                                config.retention.ms  default  5",
        "1 resource: 1 would be created",
    ]


def test_fewer_partitions_are_refused_and_the_others_are_applied(run: Run) -> None:
    assert run("-f", "-", stdin=topic("many", partitions=4)).code == 0

    done = run("-f", "-", "-o", "json", stdin=topic("many", partitions=2) + topic("after", partitions=1))
    assert done.code == 2
    assert "standard input, document 1 (Topic many): partitions: 2: it has 4, and partitions can only grow" in done.err
    assert [(one["name"], one["action"]) for one in json.loads(done.out)] == [("many", "failed"), ("after", "created")]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_value_that_the_cluster_refuses_is_told_with_key_value_and_remedy(run: Run, *, dry_run: bool) -> None:
    wrong = topic("wrong", config={"retention.ms": "soon"})

    done = run("-f", "-", *(["--dry-run"] if dry_run else []), stdin=wrong)
    assert done.code == 2
    assert re.search(r"error: standard input, document 1 \(Topic wrong\): .*retention\.ms.*soon", done.err), done.err


def test_files_with_anything_wrong_in_them_change_nothing_and_all_of_it_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(topic("never-made") + topic("b", partitons=3) + topic("c", partitions="3"))
    (tmp_path / "b.yml").write_text(
        topic("d", topicName="a b")
        + "---\napiVersion: bmq.io/v2\nkind: Topic\n---\napiVersion: bmq.io/v1alpha1\nkind: Tpoic\n"
    )
    (tmp_path / "ignored.txt").write_text("no YAML: [")

    done = run("-f", str(tmp_path))
    assert done.code == 2
    lines = done.err.splitlines()
    assert len(lines) == 5, done.err
    assert (
        lines[0]
        == f"error: {tmp_path}/a.yaml, document 2 (Topic b), spec.partitons: '3': there is no such field. write "
        "partitions, or leave it out"
    )
    assert "a.yaml, document 3 (Topic c), spec.partitions: '3': it has to be a whole number" in lines[1]
    assert "b.yml, document 1 (Topic d), spec.topicName: 'a b'" in lines[2]
    assert "apiVersion: 'bmq.io/v2'" in lines[3] and "kind: 'Tpoic'" in lines[4]
    assert applied(run("-f", "-", "--dry-run", "-o", "json", stdin=topic("never-made")))[0][1] == "created"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "it is not YAML"),
        (topic("x").replace("kind: Topic", "kind: Topic\nkind: Lane"), "kind stands there twice"),
        ("just text", "it is no resource"),
        ("", "there is no Cluster, Topic, Lane, Channel or ParquetSink"),
        (topic("x") + topic("x"), "document 2 (Topic x): standard input, document 1 says it already"),
        (topic("x", topicName="N") + topic("y", topicName="N"), "Topic y: topic N"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcde", "bcdef", strict=True)),
            "values",
        ),
        (
            topic("x", clusterRef={"name": "one"}) + topic("y", clusterRef={"name": "two"}),
            "the files name default/one, default/two",
        ),
    ],
)
def test_what_cannot_be_read_is_told_and_exits_with_2(run: Run, text: str, said: str) -> None:
    done = run("-f", "-", stdin=text)
    assert (done.code, said in done.err) == (2, True), done.err


def test_of_several_clusters_the_one_that_is_named_is_applied(run: Run) -> None:
    both = topic("of-one", clusterRef={"name": "one"}) + topic(
        "of-two", clusterRef={"name": "two", "namespace": "other"}
    )

    assert [
        one[0] for one in applied(run("-f", "-", "-o", "json", "--dry-run", "--cluster", "other/two", stdin=both))
    ] == ["of-two"]
    assert [one[0] for one in applied(run("-f", "-", "-o", "json", "--dry-run", "--cluster", "one", stdin=both))] == [
        "of-one"
    ]
    assert run("-f", "-", "--cluster", "three", stdin=both).code == 2


def test_of_a_cluster_its_config_is_applied_and_what_needs_kubernetes_is_named(run: Run) -> None:
    text = resource(
        "Cluster", "bmq", store={"minio": {"embedded": True}}, config={"num.partitions": "7"}, brokers={"replicas": 2}
    )

    done = run("-f", "-", "-o", "json", stdin=text)
    assert applied(done) == [("bmq", "changed", [("config.num.partitions", None, "7")])]
    assert json.loads(done.out)[0]["notes"] == ["not applied without Kubernetes: store, brokers"]
    assert applied(run("-f", "-", "-o", "json", stdin=text))[0][1] == "unchanged"
    back = resource("Cluster", "bmq", store={"minio": {"embedded": True}})
    assert applied(run("-f", "-", "-o", "json", stdin=back)) == [
        ("bmq", "changed", [("config.num.partitions", "7", None)])
    ]


def test_a_topic_that_is_not_managed_is_left_alone_and_kubernetes_own_resources_are_passed_over(run: Run) -> None:
    done = run(
        "-f",
        "-",
        "-o",
        "json",
        stdin="apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n" + topic("alone", managed=False),
    )

    assert applied(done)[0][1] == "skipped"
    assert "passed over, Kubernetes' own: standard input, document 1 (Secret)" in done.err
    assert applied(run("-f", "-", "-o", "json", "--dry-run", stdin=topic("alone")))[0][1] == "created"


def test_lanes_are_created_and_changed_and_a_second_time_nothing_is(run: Run) -> None:
    first = resource("Lane", "feature", {}, ttlSeconds=3600, proxies={"replicas": 1})
    made = [("ttlSeconds", None, 3600), ("reads.base.enabled", None, False)]
    assert applied(run("-f", "-", "--dry-run", "-o", "json", stdin=first)) == [("feature", "created", made)]
    done = run("-f", "-", "-o", "json", stdin=first)
    assert applied(done) == [("feature", "created", made)]
    assert json.loads(done.out)[0]["notes"] == ["not applied without Kubernetes: proxies"]
    assert applied(run("-f", "-", "-o", "json", stdin=first)) == [("feature", "unchanged", [])]

    second = resource(
        "Lane", "feature", {}, reads={"base": {"enabled": True, "topics": ["a", "b-*"], "bytesPerSecond": 2048}}
    )
    changes = [
        ("ttlSeconds", 3600, 0),
        ("reads.base.enabled", False, True),
        ("reads.base.topics", None, "a, b-*"),
        ("reads.base.bytesPerSecond", None, 2048),
    ]
    assert applied(run("-f", "-", "--dry-run", "-o", "json", stdin=second)) == [("feature", "changed", changes)]
    assert applied(run("-f", "-", "-o", "json", stdin=second)) == [("feature", "changed", changes)], (
        "the dry run changed nothing"
    )
    assert applied(run("-f", "-", "-o", "json", stdin=second)) == [("feature", "unchanged", [])]

    third = resource("Lane", "feature", {}, quota={"partitions": 9, "writeBytesPerSecond": 4096})
    [(_, how, changes)] = applied(run("-f", "-", "-o", "json", stdin=third))
    assert how == "changed"
    assert {("quota.partitions", None, 9), ("quota.writeBytesPerSecond", None, 4096)} <= {*changes}
    assert applied(run("-f", "-", "-o", "json", stdin=third)) == [("feature", "unchanged", [])]


def test_a_lane_that_another_one_is_nested_in_is_made_before_it_wherever_it_stands(run: Run) -> None:
    inner = resource("Lane", "inner", {}, fallback="base", parent="outer")
    outer = resource("Lane", "outer", {}, laneName="outer", fallback="base")
    both = f"{inner}\n---\n{outer}"
    assert [(name, action) for name, action, _ in applied(run("-f", "-", "-o", "json", stdin=both))] == [
        ("outer", "created"),
        ("inner", "created"),
    ]
    assert {action for _, action, _ in applied(run("-f", "-", "-o", "json", stdin=both))} == {"unchanged"}
    moved = run("-f", "-", "-o", "json", stdin=resource("Lane", "inner", {}, fallback="base"))
    assert moved.code == 2
    assert "the lane was made in outer, which stays" in moved.err


def test_a_cluster_that_knows_no_lanes_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lane.yaml").write_text(resource("Lane", "feature"))
    with serving(problem(404, "NotFound")) as server:
        monkeypatch.setenv("BMQ_ADMIN_URL", server.url)
        assert execute(["apply", "-f", str(tmp_path)]) == 3
    assert (
        "document 1 (Lane feature): this cluster has no lanes. leave it out, or run a newer version of bmq"
        in capfd.readouterr().err
    )


def test_channels_are_created_and_changed_and_a_second_time_nothing_is(run: Run) -> None:
    first = resource("Channel", "orders", {}, channelName="shop.orders", spool={"maxBytes": 1 << 21}, enabled=True)
    made = [("spool.maxBytes", None, 1 << 21)]
    assert applied(run("-f", "-", "--dry-run", "-o", "json", stdin=first)) == [("orders", "created", made)]
    assert applied(run("-f", "-", "-o", "json", stdin=first)) == [("orders", "created", made)]
    assert applied(run("-f", "-", "-o", "json", stdin=first)) == [("orders", "unchanged", [])]

    second = resource("Channel", "orders", {}, channelName="shop.orders", topic="t", enabled=False)
    changes = [("enabled", None, False), ("spool.maxBytes", 1 << 21, None), ("topic", None, "t")]
    assert applied(run("-f", "-", "--dry-run", "-o", "json", stdin=second)) == [("orders", "changed", changes)]
    assert applied(run("-f", "-", "-o", "json", stdin=second)) == [("orders", "changed", changes)], (
        "the dry run changed nothing"
    )
    assert applied(run("-f", "-", "-o", "json", stdin=second)) == [("orders", "unchanged", [])]


def test_a_channel_that_cannot_be_is_refused_with_the_field(run: Run) -> None:
    done = run("-f", "-", stdin=resource("Channel", "orders", {}, spool={"maxByte": 1}))
    assert (done.code, "spec.spool.maxByte: '1': there is no such field" in done.err) == (2, True), done.err
    twice = resource("Channel", "a", {}, channelName="x") + resource("Channel", "b", {}, channelName="x")
    assert "says it already" in run("-f", "-", stdin=twice).err


def test_a_list_as_kubectl_prints_it_is_read(run: Run) -> None:
    items = [
        yaml.safe_load(topic(name, metadata={"uid": "1", "managedFields": []})) for name in ("in-list-1", "in-list-2")
    ]
    items[0]["status"] = {"topicId": "x", "somethingNew": 1}
    text = yaml.safe_dump({"apiVersion": "bmq.io/v1alpha1", "kind": "TopicList", "items": items})

    assert [one[:2] for one in applied(run("-f", "-", "-o", "json", stdin=text))] == [
        ("in-list-1", "created"),
        ("in-list-2", "created"),
    ]


def test_without_a_cluster_it_ends_with_4_and_one_line(run: Run) -> None:
    done = run("-f", "-", "--admin", "127.0.0.1:1", stdin=topic("x"))
    assert (done.code, done.err.count("\n")) == (4, 1)
    assert "cannot connect to http://127.0.0.1:1" in done.err


def test_the_examples_are_files_that_it_takes() -> None:
    examples = sorted(str(path) for path in (ROOT / "examples").glob("*.yaml"))
    assert len(examples) >= 4
    for example in examples:
        try:
            assert read_documents([example]).documents
        except SeveralFailed as failure:
            pytest.fail("; ".join(str(one) for one in failure.failures))
