"""The admin API asked for what it does not have, by whom it does not know, in words that it does not understand."""

import json
import random
from typing import Any

from admin_api_asked import ask
from nodes_in_one_loop import Cluster, run

PATHS = (
    *(
        "/v1/topics",
        "/v1/topics/a",
        "/v1/topics/a/partitions",
        "/v1/topics/a/configs",
        "/v1/topics/\u00e9",
        "/v1/configs",
        "/v1/groups",
        "/v1/groups/a/b",
    ),
    *(
        "/v1/nodes",
        "/v1/nodes/1",
        "/v1/nodes/1/drain",
        "/v1/nodes/-1",
        "/v1/nodes/99999999999999999999",
        "/v1/placement",
        "/v1/placement/a/0/move",
    ),
    *("/v1/lanes", "/v1/lanes/dev", "/v1/lanes/l"),
    *(
        "/v1/placement/a/99999999999",
        "/v1/load",
        "/v1/balance",
        "/v1/self",
        "/v1/debug/log",
        "/v1/debug/store",
        "/v1/",
        "/",
    ),
)
BODIES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        10**30,
        float("nan"),
        "a",
        "\u0000",
        [],
        {},
        {"name": "b", "partitions": 10**20},
        {"name": "", "configs": {"": None}},
    ),
    *(
        {"name": "c", "configs": {"retention.ms": {}}},
        {"total": "x"},
        {"to": -1},
        {"to": 2**40},
        {"moves_max": 0},
        {"retention.ms": 1e400},
        {"a": "b"},
    ),
    *(
        {"follower.replication.throttled.replicas": "\ud800"},
        {"name": "\ud800"},
        {"name": "l", "reads_base": {"enabled": True, "topics": ["\udc00"]}},
    ),
    *(
        "\ud800",
        {"\ud800": 1},
        b'{"name": "\xed\xa0\x80"}',
        b'"\\ud800',
        b"[" * 100_000,
        b'{"partitions": ' + b"9" * 5_000 + b"}",
        b"\xff\xfe\x00",
    ),
)
QUERIES = (
    "",
    "limit=0",
    "limit=99999999999999999999",
    "continue=",
    "continue=%FF",
    "limit=5&limit=6",
    "moving=maybe",
    "node=99999999999",
    "topic=%ff",
    "&&=",
)


def test_what_was_not_understood_is_told_with_the_field_that_it_is_about() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        for path, body, words in (
            ("/v1/topics", {"name": "a", "colour": "red"}, "colour"),
            ("/v1/topics", {"partitions": 1}, "name"),
            ("/v1/topics", [1], "body"),
        ):
            refused = await ask(node, "POST", path, body)
            assert (refused.status, refused.body["code"], words in refused.body["why"]) == (
                400,
                "InvalidRequest",
                True,
            ), refused
        assert (await ask(node, "GET", "/v1/topics", query="limit=5000")).status == 400
        assert (await ask(node, "GET", "/v1/topics", query="continue=%21")).body["code"] == "InvalidContinue"
        assert (await ask(node, "PUT", "/v1/topics")).status == 405
        assert (await ask(node, "GET", "/v1/nothing")).status == 404

    run(test)


def test_a_parameter_that_a_page_does_not_know_or_has_twice_is_refused_before_anything_is_done() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        await ask(node, "POST", "/v1/topics", {"name": "a"})
        for method, path, body, query, words in (
            ("POST", "/v1/topics", {"name": "b"}, "validate_onyl=true", "'validate_onyl'"),
            ("POST", "/v1/topics", {"name": "b"}, "validate_only=true&validate_only=false", "'validate_only'"),
            ("DELETE", "/v1/topics/a", None, "validate_only=true", "'validate_only'"),
            ("GET", "/v1/topics", None, "Limit=5", "'Limit'"),
            ("GET", "/v1/topics", None, "&".join(f"x{n}" for n in range(9)), "and 4 more"),
            ("GET", "/v1/cluster", None, "limit=5", "'limit'"),
            ("GET", "/v1/debug/image", None, "%ff", "'\\ufffd'"),
        ):
            refused = await ask(node, method, path, body, query=query)
            assert (refused.status, refused.body["code"]) == (400, "InvalidRequest"), refused
            assert words in refused.body["why"], refused
        assert (
            "validate_only"
            in (await ask(node, "POST", "/v1/topics", {"name": "b"}, query="dry_run=true")).body["remedy"]
        )
        names = [one["name"] for one in (await ask(node, "GET", "/v1/topics")).body["items"]]
        assert "a" in names
        assert "b" not in names

    run(test)


def test_no_page_tells_the_clusters_secret() -> None:
    async def test(cluster: Cluster) -> None:
        secret = "known-to-the-nodes-alone"
        node = await cluster.start(1, "controller,broker,proxy", cluster_secret=secret)
        for path in ("/v1/self", "/v1/nodes/1/self", "/v1/debug/image", "/v1/debug/log", "/v1/configs", "/v1/cluster"):
            answer = await ask(node, "GET", path)
            assert answer.status == 200, answer
            assert secret not in json.dumps(answer.body), path
        assert (await ask(node, "GET", "/v1/self")).body["configuration"]["cluster_secret"] == "(hidden)"

    run(test)


def test_half_a_character_anywhere_in_a_body_is_refused_by_its_field_and_the_controller_goes_on() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        await ask(node, "POST", "/v1/topics", {"name": "a"})
        half = "\ud800"
        for method, path, body, field in (
            ("POST", "/v1/topics", {"name": f"a{half}"}, "name"),
            ("POST", "/v1/topics", {"name": "b", "lane": half}, "lane"),
            ("POST", "/v1/topics", {"name": "b", "configs": {"retention.ms": half}}, "configs.retention.ms"),
            ("POST", "/v1/topics", {"name": "b", "configs": {half: "5"}}, "configs.\\ud800 (its name)"),
            (
                "PATCH",
                "/v1/topics/a/configs",
                {"follower.replication.throttled.replicas": half},
                "follower.replication.throttled.replicas",
            ),
            ("PATCH", "/v1/topics/a/configs", b'{"bmq.pool": "\xed\xa0\x80"}', "bmq.pool"),
            ("PATCH", "/v1/configs", {half: half}, "\\ud800 (its name)"),
            (
                "POST",
                "/v1/lanes",
                {"name": "dev", "reads_base": {"enabled": True, "topics": ["orders", half]}},
                "reads_base.topics[1]",
            ),
        ):
            refused = await ask(node, method, path, body)
            assert (refused.status, refused.body["code"]) == (400, "InvalidRequest"), refused
            assert refused.body["why"].startswith(f"{field} has half a character (U+D800"), refused
            assert refused.body["remedy"] == "leave that character out", refused
        assert (await ask(node, "POST", "/v1/topics", {"name": "b"})).status == 201

    run(test)


def test_whatever_is_sent_the_answer_is_a_page_or_a_problem_with_its_remedy() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy")
        await ask(node, "POST", "/v1/topics", {"name": "a", "partitions": 2})
        chosen = random.Random(7)
        for _ in range(400):
            method, path, query = (
                chosen.choice(("GET", "POST", "PATCH", "PUT")),
                chosen.choice(PATHS),
                chosen.choice(QUERIES),
            )
            body = chosen.choice(BODIES)
            answer = await ask(
                node,
                method,
                path,
                body,
                query=query,
                headers=chosen.choice(({}, {"if-match": ',,"x'}, {"content-type": "a/b"})),
            )
            sent = (method, path, query, body, answer)
            assert answer.status < 500 or (answer.status == 503 and answer.headers["retry-after"]), sent
            if answer.status >= 400:
                assert {"what", "why", "remedy", "code", "status", "detail"} <= set(answer.body), sent

    run(test)
