"""What the API's pages are made with: pages of lists, versions, problems."""

from dataclasses import replace
from uuid import UUID

import pytest
from controller_committed import Committed
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import ControllerUnavailable, InvalidConfig, StoreUnavailable, TopicExists, UnknownTopic
from bmq.roles.controller import NewTopic
from bmq.values import NodeId, TopicId, TopicPartition
from bmq_controller.api.paging import ordered_page, page
from bmq_controller.api.placement import selected
from bmq_controller.api.problems import Refused, refusal_of, subject_of
from bmq_controller.api.statuses import VersionMismatch
from bmq_controller.api.versions import holds, node_version, partition_version, topic_version, wanted_versions
from bmq_controller.machine.moves import move
from bmq_controller.machine.nodes import cordon


def read_all(names: list[str], *, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    token = None
    while True:
        found = page(names, key=lambda name: (name,), view=str, limit=limit, after=token, kind="names")
        pages.append(found.items)
        token = found.next_token
        if token is None:
            return pages


@given(st.sets(st.text(max_size=4), max_size=30), st.integers(1, 7))
def test_pages_hold_every_item_once_and_in_order(names: set[str], limit: int) -> None:
    pages = read_all(list(names), limit=limit)
    assert [name for one in pages for name in one] == sorted(names)
    assert all(len(one) == limit for one in pages[:-1])


def test_an_item_that_goes_between_two_pages_hides_no_other() -> None:
    first = page(["a", "b", "c"], key=lambda name: (name,), view=str, limit=2, after=None, kind="names")
    then = page(["a", "c"], key=lambda name: (name,), view=str, limit=2, after=first.next_token, kind="names")
    assert (first.items, then.items, then.next_token) == (["a", "b"], ["c"], None)


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(1, 4), max_size=5),
    st.integers(1, 5),
    st.booleans(),
    st.sets(st.integers(1, 3)),
)
def test_pages_of_the_placement_hold_what_is_wanted_once_and_in_order(
    topics: dict[str, int], limit: int, moving: bool, nodes: set[int]
) -> None:
    cluster = Committed(brokers=3)
    cluster.create(*(NewTopic(name=f"t{name}", partitions=count) for name, count in topics.items()))
    for name in list(topics)[:2]:
        tp = cluster.tp(f"t{name}")
        cluster.commit(move(cluster.image, tp, NodeId(cluster.partition(f"t{name}").node_id % 3 + 1)).records)
    image = cluster.image

    def name_of(tp: TopicPartition) -> tuple[str, int]:
        return image.topics[tp.topic_id].name, tp.partition

    everything = [
        TopicPartition(topic.topic_id, index)
        for topic in image.topics.values()
        for index in range(len(topic.partitions))
    ]
    for node in (None, *nodes):
        wanted = sorted(
            name_of(tp)
            for tp in everything
            if (meta := image.partition(tp)) is not None
            and (node is None or meta.node_id == node)
            and (not moving or meta.moving_to != -1)
        )
        found: list[tuple[str, int]] = []
        token = None
        while True:
            one = ordered_page(
                lambda start, node=node: selected(image, start, topic=None, node=node, moving=moving),
                key=name_of,
                view=name_of,
                limit=limit,
                after=token,
                kind="placement",
            )
            found += one.items
            token = one.next_token
            if token is None:
                break
        assert found == wanted


@pytest.mark.parametrize("key", [(), ("a",), (1, 2), ("a", "b"), ("a", 1, 2)])
def test_a_token_whose_key_is_not_one_of_the_list_is_refused(key: tuple[str | int, ...]) -> None:
    image = Committed(brokers=1).image
    made = page([0, 1], key=lambda _: key, view=str, limit=1, after=None, kind="placement").next_token
    with pytest.raises(Refused, match="continue token"):
        ordered_page(
            lambda start: selected(image, start, topic="a", node=None, moving=False),
            key=lambda tp: (tp.partition,),
            view=str,
            limit=1,
            after=made,
            kind="placement",
        )


@pytest.mark.parametrize("token", ["", "x", "!!!", "kqVuYW1lc5EB", "a" * 2_000])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(Refused, match="continue token"):
        page(["a"], key=lambda name: (name,), view=str, limit=1, after=token, kind="names")


def test_a_token_of_another_list_is_refused() -> None:
    token = page(["a", "b"], key=lambda name: (name,), view=str, limit=1, after=None, kind="names").next_token
    with pytest.raises(Refused, match="continue token"):
        page(["a", "b"], key=lambda name: (name,), view=str, limit=1, after=token, kind="groups")


def test_a_topics_version_changes_with_what_can_be_changed_of_it_and_not_with_its_owners() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=2))
    topic = cluster.image.topics[cluster.image.topic_ids["a"]]
    version = topic_version(topic)
    assert version == topic_version(replace(topic, created_ms=77))
    moved = replace(topic.partitions[0], node_id=NodeId(9))
    assert version == topic_version(replace(topic, partitions=(moved, topic.partitions[1])))
    others = [
        replace(topic, configs={"retention.ms": "1"}),
        replace(topic, topic_id=TopicId(UUID(int=7))),
        replace(topic, partitions=(moved,)),
    ]
    assert len({version, *map(topic_version, others)}) == 4
    assert partition_version(topic.topic_id, 0, moved) != partition_version(topic.topic_id, 0, topic.partitions[0])


def test_a_nodes_version_changes_when_it_registers_again_and_when_it_is_cordoned() -> None:
    cluster = Committed(brokers=1)
    one = NodeId(1)
    versions = [node_version(cluster.image, one)]
    cluster.commit(cordon(cluster.image, one, cordoned=True).records)
    versions.append(node_version(cluster.image, one))
    cluster.register(1, boot=2)
    versions.append(node_version(cluster.image, one))
    assert len(set(versions)) == 3


def test_a_condition_holds_on_the_version_that_it_names_and_on_no_other() -> None:
    image = Committed(brokers=1).image
    for header in (None, "", '"a"', '"x", W/"a"', "*"):
        holds(header, lambda _: "a")(image)
    for header in ('"b"', '"b", "c"'):
        with pytest.raises(VersionMismatch, match="and this is version a"):
            holds(header, lambda _: "a")(image)
    with pytest.raises(VersionMismatch, match="it does not exist"):
        holds("*", lambda _: None)(image)
    assert wanted_versions('W/"a" , "b"') == {"a", "b"}


@pytest.mark.parametrize(
    ("error", "status", "why", "remedy"),
    [
        (UnknownTopic("There is no topic 'a'"), 404, "There is no topic 'a'", "look at the list of them"),
        (
            TopicExists("Topic 'a' already exists"),
            409,
            "Topic 'a' already exists",
            "choose another name, or use the one that is there",
        ),
        (InvalidConfig("retention.ms=x: set a whole number"), 400, "retention.ms=x", "set a whole number"),
        (ControllerUnavailable("nobody leads"), 503, "nobody leads", "look whether it was done, and try again"),
        (
            StoreUnavailable("the store is slow: host:9000"),
            503,
            "the store is slow: host:9000",
            "look at the object store's health, and try again",
        ),
        (VersionMismatch("it is another"), 412, "it is another", "read it again, and decide anew"),
    ],
)
def test_an_error_becomes_a_problem_with_what_why_and_remedy(
    error: Exception, status: int, why: str, remedy: str
) -> None:
    refusal = refusal_of(error, "topic a")  # type: ignore[arg-type]
    assert (refusal.status, refusal.why, refusal.remedy) == (status, why, remedy)
    document = refusal.document()
    assert document["detail"] == f"topic a: {why}. {remedy}"
    assert document["code"] == type(error).__name__
    assert ("retry-after" in refusal.reply().headers) == (status == 503)


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("/v1/topics/orders/configs", "topic orders"),
        ("/v1/groups/a/b", "group a/b"),
        ("/v1/placement/orders/3/move", "partition orders/3"),
        ("/v1/nodes/101/drain", "node 101"),
        ("/v1/topics", "GET /v1/topics"),
        ("/nowhere", "GET /nowhere"),
    ],
)
def test_a_problem_says_what_it_is_about(path: str, subject: str) -> None:
    assert subject_of("GET", path) == subject
