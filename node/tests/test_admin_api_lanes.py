"""Lanes by the admin API of a cluster's nodes."""

from admin_api_asked import ask, with_topic
from nodes_in_one_loop import Cluster, run


def test_a_lane_is_made_read_changed_and_deleted_by_its_version() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        made = await ask(proxy, "POST", "/v1/lanes", {"name": "dev", "ttl_seconds": 3600})
        assert (made.status, made.headers["location"]) == (201, "/v1/lanes/dev")
        assert (made.body["expires_ms"] - made.body["created_ms"], made.body["reads_base"]["enabled"]) == (
            3_600_000,
            False,
        )
        again = await ask(proxy, "POST", "/v1/lanes", {"name": "dev"})
        assert (again.status, again.body["code"]) == (409, "LaneExists")
        seen = {"if-match": made.headers["etag"]}
        changed = await ask(
            proxy,
            "PUT",
            "/v1/lanes/dev",
            {"reads_base": {"enabled": True, "topics": ["or*"], "bytes_per_second": 4096}},
            headers=seen,
        )
        assert (changed.status, changed.body["expires_ms"], changed.body["reads_base"]["topics"]) == (
            200,
            None,
            ["or*"],
        )
        assert changed.headers["etag"] != made.headers["etag"]
        for method, body in (("PUT", {}), ("DELETE", None)):
            refused = await ask(proxy, method, "/v1/lanes/dev", body, headers=seen)
            assert (refused.status, refused.body["code"]) == (412, "VersionMismatch"), method
        read = await ask(proxy, "GET", "/v1/lanes/dev")
        assert (read.status, read.headers["etag"]) == (200, changed.headers["etag"])
        assert (await ask(proxy, "DELETE", "/v1/lanes/dev", headers={"if-match": read.headers["etag"]})).status == 204
        missing = await ask(proxy, "GET", "/v1/lanes/dev")
        assert (missing.status, missing.body["code"], missing.body["what"]) == (404, "UnknownLane", "lane dev")

    run(test)


def test_the_time_by_which_lanes_end_is_told_by_the_leader_whoever_is_asked() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        told = await ask(proxy, "GET", "/v1/clock")
        assert (told.status, told.body["trusted"]) == (200, True)
        made = await ask(proxy, "POST", "/v1/lanes", {"name": "dev", "ttl_seconds": 3600})
        assert 0 <= made.body["created_ms"] - told.body["now_ms"] < 3_600_000

    run(test)


def test_a_lanes_topics_are_listed_only_where_the_lane_is_asked_for() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "lane": "dev"})).status == 404
        assert (await ask(proxy, "POST", "/v1/lanes", {"name": "dev"})).status == 201
        made = await ask(proxy, "POST", "/v1/topics", {"name": "orders", "lane": "dev"})
        assert (made.status, made.headers["location"], made.body["name"], made.body["lane"]) == (
            201,
            "/v1/topics/dev:orders",
            "dev:orders",
            "dev",
        )
        base = (await ask(proxy, "GET", "/v1/topics", query="prefix=o")).body["items"]
        lane = (await ask(proxy, "GET", "/v1/topics", query="prefix=o&lane=dev")).body["items"]
        assert [(one["name"], one["lane"]) for one in (*base, *lane)] == [("orders", ""), ("dev:orders", "dev")]
        assert base[0]["partitions"] == lane[0]["partitions"] == 4
        assert [one["topics"] for one in (await ask(proxy, "GET", "/v1/lanes")).body["items"]] == [1]
        assert (await ask(proxy, "GET", "/v1/topics/dev:orders")).status == 200
        assert (await ask(proxy, "DELETE", "/v1/lanes/dev")).status == 204
        assert (await ask(proxy, "GET", "/v1/topics/dev:orders")).status == 404
        assert (await ask(proxy, "GET", "/v1/topics/orders")).status == 200

    run(test)


def test_what_a_lane_cannot_be_is_refused_with_the_field_and_the_remedy() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        for body, says in (
            ({"name": "Dev"}, "lower-case"),
            ({"name": "dev", "fallback": "other"}, "fallback"),
            ({"name": "dev", "fallback": "base", "reads_base": {"enabled": True}}, "fallback"),
            ({"name": "dev", "ttl_seconds": -1}, "ttl_seconds"),
            ({"name": "dev", "reads_base": {"enabled": True, "bytes_per_second": 5}}, "bytes_per_second"),
            ({"name": "dev", "quota": {"write_bytes_per_second": 5}}, "quota.write_bytes_per_second = 5"),
            ({"name": "dev", "quota": {"storage_bytes": 1 << 20}}, "quota.partitions"),
            ({"name": "dev", "quota": {"bytes": 1}}, "bytes"),
            ({"name": "dev", "surprise": 1}, "surprise"),
        ):
            refused = await ask(proxy, "POST", "/v1/lanes", body)
            assert (refused.status, says in refused.body["detail"]) == (400, True), refused.body
        assert (await ask(proxy, "GET", "/v1/lanes")).body["items"] == []

    run(test)


def test_a_lanes_quota_is_shown_kept_and_changed_like_all_that_it_is() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await with_topic(cluster)
        quota = {"write_bytes_per_second": 4096, "read_bytes_per_second": 0, "partitions": 6, "storage_bytes": 6 << 20}
        made = await ask(proxy, "POST", "/v1/lanes", {"name": "dev", "quota": quota})
        assert (made.status, made.body["quota"], made.body["partitions"]) == (201, quota, 0)
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "orders", "lane": "dev"})).status == 201
        topic = (await ask(proxy, "GET", "/v1/topics/dev:orders")).body
        assert (topic["partitions"], topic["configs"]) == (4, {}), "what it keeps is the lane's to say"
        full = await ask(proxy, "POST", "/v1/topics", {"name": "more", "lane": "dev", "partitions": 3})
        assert (full.status, full.body["code"]) == (409, "LaneFull")
        assert "has 4 partitions and would have 7; its quota is 6" in full.body["detail"]
        changed = await ask(proxy, "PUT", "/v1/lanes/dev", {"quota": {"partitions": 7}})
        assert (changed.status, changed.body["quota"]["storage_bytes"], changed.body["partitions"]) == (200, 0, 4)
        assert changed.headers["etag"] != made.headers["etag"]
        assert (await ask(proxy, "POST", "/v1/topics", {"name": "more", "lane": "dev", "partitions": 3})).status == 201

    run(test)
