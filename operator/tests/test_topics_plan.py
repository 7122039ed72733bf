"""What is decided about a Topic, case by case."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from bmq_operator.claims import claims
from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.references import ClusterState
from bmq_operator.rivals import Rival
from bmq_operator.topics.plan import Create, Delete, Grow, Plan, SetConfigs, plan
from bmq_operator.topics.situation import Present, Situation
from bmq_resources.base import ObjectMeta
from bmq_resources.topic import Topic, TopicSpec, TopicStatus

OWNED = TopicStatus(owned=True, topic_id="A", partitions=3)
PRESENT = Present(topic_id="A", partitions=3, version="v1", configs={"retention.ms": "5"})


def topic(
    status: TopicStatus | None = None,
    *,
    name: str = "orders",
    deleted: bool = False,
    annotations: Any = None,
    **spec: Any,
) -> Topic:
    return Topic(
        metadata=ObjectMeta(
            name=name,
            namespace="shop",
            uid="u2",
            generation=4,
            creation_timestamp="2026-02-02T00:00:00Z",
            deletion_timestamp="2026-03-03T00:00:00Z" if deleted else None,
            annotations=annotations or {},
        ),
        spec=TopicSpec(**{"partitions": 3, "config": {"retention.ms": "5"}, **spec}),
        status=status or TopicStatus(),
    )


def situation(of: Topic, present: Present | None = None, **more: Any) -> Situation:
    return Situation(
        **{
            "topic": of,
            "cluster_name": "shop/bmq",
            "cluster": ClusterState.READY,
            "now_ms": 0,
            "present": present,
            **more,
        }
    )


def as_written(status: TopicStatus, *, generation: int = 4) -> TopicStatus:
    ready = Finding(status="True", reason="AsWritten")
    return status.model_copy(update={"conditions": next_conditions([], [ready], generation=generation, now_ms=0)})


def said(found: Plan) -> tuple[str, str]:
    return found.finding.status, found.finding.reason


def test_a_new_topic_is_first_written_down_as_intended_and_then_made() -> None:
    first = plan(situation(topic()))
    assert (first.action, first.owned, first.again_after_s, said(first)) == (None, True, 0.0, ("Unknown", "Creating"))

    then = plan(situation(topic(TopicStatus(owned=True))))
    assert then.action == Create(partitions=3, configs={"retention.ms": "5"})
    assert then.events == ()


def test_what_a_crash_left_between_making_and_telling_is_known_as_its_own() -> None:
    found = plan(situation(topic(TopicStatus(owned=True)), PRESENT))
    assert (said(found), found.owned, found.topic_id, found.action) == (("True", "AsWritten"), True, "A", None)


def test_what_an_api_server_refused_is_no_refusal_of_the_cluster() -> None:
    status = refused(TopicStatus(owned=True), by="Unknown")
    found = plan(situation(topic(status), PRESENT))
    assert (said(found), found.owned) == (("True", "AsWritten"), True)


def refused(status: TopicStatus, by: Literal["False", "Unknown"] = "False") -> TopicStatus:
    ready = Finding(status=by, reason="Refused")
    return status.model_copy(update={"conditions": next_conditions([], [ready], generation=3, now_ms=0)})


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        (TopicStatus(owned=True), {"partitions": 2}),
        (TopicStatus(owned=True), {"config": {}}),
        (refused(TopicStatus(owned=True)), {}),
    ],
    ids=["other partitions", "other configuration", "its creation was refused"],
)
def test_an_intent_takes_over_no_topic_that_it_cannot_have_made(status: TopicStatus, spec: dict[str, Any]) -> None:
    found = plan(situation(topic(status, **spec), PRESENT))
    assert (said(found), found.action, found.owned) == (("False", "AlreadyExists"), None, False)
    adopted = plan(situation(topic(status, existing="Adopt", **{**spec, "config": {"retention.ms": "7"}}), PRESENT))
    assert adopted.owned and [event.reason for event in adopted.events] == ["Adopted"]
    gone = plan(
        situation(
            topic(status, deleted=True, deletion_policy="Delete", annotations={"bmq.io/delete-data": "true"}, **spec),
            PRESENT,
        )
    )
    assert (gone.action, gone.finished) == (None, True)


def test_a_topic_that_is_as_written_is_left_alone() -> None:
    found = plan(situation(topic(OWNED), PRESENT))
    assert (said(found), found.action, found.events, found.again_after_s) == (("True", "AsWritten"), None, (), None)


def test_a_topic_that_was_there_before_is_refused_and_nothing_is_changed() -> None:
    found = plan(situation(topic(partitions=9), PRESENT))
    assert (said(found), found.action, found.owned) == (("False", "AlreadyExists"), None, False)
    assert "existing: Adopt" in found.finding.message


def test_a_topic_that_was_there_before_is_adopted_and_brought_to_what_is_written() -> None:
    found = plan(situation(topic(existing="Adopt", config={"retention.ms": "7"}), PRESENT))
    assert isinstance(found.action, SetConfigs)
    assert [(one.field, one.before, one.after) for one in found.action.differences] == [("retention.ms", "5", "7")]
    assert (found.owned, [event.reason for event in found.events]) == (True, ["Adopted"])


def test_what_an_adoption_would_put_back_to_its_default_is_asked_for_first() -> None:
    """Retention without limit would become the cluster's, and delete what is older."""
    found = plan(
        situation(
            topic(existing="Adopt", config={"segment.ms": "1"}),
            replace(PRESENT, configs={"retention.ms": "-1", "segment.ms": "2"}),
        )
    )
    assert (said(found), found.action, found.owned, found.events) == (("False", "ConfigDiffers"), None, False, ())
    assert "retention.ms: -1" in found.finding.message and "segment.ms" not in found.finding.message


def test_an_unmanaged_topic_is_looked_at_alone() -> None:
    found = plan(situation(topic(managed=False, partitions=5), PRESENT))
    assert (said(found), found.action, found.owned) == (("True", "Unmanaged"), None, False)
    assert "partitions 3 → 5" in found.finding.message
    assert said(plan(situation(topic(managed=False)))) == ("False", "TopicMissing")


def test_partitions_grow_before_anything_else_changes() -> None:
    found = plan(situation(topic(OWNED, partitions=5, config={}), PRESENT))
    assert found.action == Grow(total=5, version="v1")


def test_more_partitions_than_written_stay_and_are_said() -> None:
    found = plan(situation(topic(OWNED, partitions=2), PRESENT))
    assert (said(found), found.action, found.partitions) == (("False", "MorePartitions"), None, 3)
    assert "partitions: 2: the topic has 3" in found.finding.message and "write 3" in found.finding.message


def test_what_somebody_else_changed_is_put_back_and_told() -> None:
    drifted = replace(PRESENT, configs={"retention.ms": "6", "max.message.bytes": "7"})
    found = plan(situation(topic(as_written(OWNED)), drifted))
    assert isinstance(found.action, SetConfigs)
    assert {one.field: one.after for one in found.action.differences} == {
        "retention.ms": "5",
        "max.message.bytes": None,
    }
    [event] = found.events
    assert (event.reason, "retention.ms 6 → 5" in event.message) == ("DriftPutBack", True)


def test_what_was_written_otherwise_is_no_drift() -> None:
    found = plan(situation(topic(as_written(OWNED, generation=3), config={}), PRESENT))
    assert (found.action is not None, found.events) == (True, ())


def test_a_topic_that_somebody_deleted_is_made_again_and_never_silently() -> None:
    found = plan(situation(topic(as_written(OWNED))))
    assert isinstance(found.action, Create)
    [event] = found.events
    assert (event.reason, event.warning) == ("TopicLost", True)


def test_a_topic_that_somebody_made_again_is_kept_and_told() -> None:
    found = plan(situation(topic(OWNED), replace(PRESENT, topic_id="B")))
    [event] = found.events
    assert (event.reason, event.warning, found.topic_id, said(found)) == (
        "TopicReplaced",
        True,
        "B",
        ("True", "AsWritten"),
    )


def test_a_topic_that_somebody_made_again_keeps_what_was_given_to_it_until_that_is_written() -> None:
    theirs = replace(PRESENT, topic_id="B", configs={"retention.ms": "6", "cleanup.policy": "compact"})
    found = plan(situation(topic(as_written(OWNED)), theirs))
    assert (said(found), found.action, found.events, found.owned, found.topic_id) == (
        ("False", "ConfigDiffers"),
        None,
        (),
        True,
        "A",
    )
    assert "another one than before" in found.finding.message and "cleanup.policy: compact" in found.finding.message
    deleted = plan(situation(topic(OWNED, deleted=True, deletionPolicy="Delete"), theirs))
    assert (deleted.action, deleted.finished) == (None, True), "it is not the one that the resource made"
    written = plan(situation(topic(OWNED, config={"retention.ms": "5", "cleanup.policy": "compact"}), theirs))
    assert isinstance(written.action, SetConfigs) and written.topic_id == "B"
    assert [event.reason for event in written.events] == ["TopicReplaced"]


@pytest.mark.parametrize(
    ("state", "reason", "status", "text"),
    [
        (ClusterState.MISSING, "ClusterMissing", "False", "shop/bmq does not exist"),
        (ClusterState.ENDING, "ClusterEnding", "False", "is being deleted"),
        (ClusterState.NOT_ALLOWED, "NamespaceNotAllowed", "False", "topicsFrom.namespaces"),
        (ClusterState.NOT_READY, "ClusterNotReady", "Unknown", "no answer"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_waited_for_and_what_is_owned_stays_so(
    state: ClusterState, reason: str, status: str, text: str
) -> None:
    found = plan(situation(topic(OWNED), cluster=state, why="no answer"))
    assert (said(found), found.action, found.owned, found.topic_id, found.partitions) == (
        (status, reason),
        None,
        True,
        "A",
        3,
    )
    assert text in found.finding.message
    assert found.again_after_s


@pytest.mark.parametrize(("name", "text"), [("a" * 250, "at most 249"), ("__consumer_offsets", "coordinators' own")])
def test_a_name_that_cannot_be_is_said(name: str, text: str) -> None:
    found = plan(
        situation(
            topic(name="x").model_copy(
                update={"spec": TopicSpec.model_construct(**{**dict(topic().spec), "topic_name": name})}
            )
        )
    )
    assert (said(found), found.action) == (("False", "InvalidName"), None)
    assert text in found.finding.message and "topicName" in found.finding.message


def rival(*, created: str = "2026-01-01T00:00:00Z", uid: str = "u1", owned: bool = False) -> Rival:
    return Rival(kind="Topic", namespace="other", name="first", uid=uid, created=created, owned=owned)


def test_of_two_for_one_name_the_oldest_wins_and_the_other_names_it() -> None:
    found = plan(situation(topic(), rivals=[rival()]))
    assert (said(found), found.action, found.owned) == (("False", "Collision"), None, False)
    assert "Topic other/first" in found.finding.message
    assert plan(situation(topic(), rivals=[rival(created="2026-02-02T00:00:01Z")])).owned


def test_of_many_for_one_name_those_that_do_not_have_it_are_looked_at_ever_more_rarely() -> None:
    fresh = plan(situation(topic(), rivals=[rival()]))
    waiting = TopicStatus(conditions=next_conditions([], [fresh.finding], generation=1, now_ms=0))
    later = plan(situation(topic(waiting), rivals=[rival()], now_ms=20 * 60_000))
    assert (fresh.again_after_s, later.again_after_s) == (10, 60)


def test_of_two_that_are_equally_old_exactly_one_wins() -> None:
    same = topic().metadata.creation_timestamp
    assert said(plan(situation(topic(), rivals=[rival(created=same, uid="u1")])))[1] == "Collision"
    assert said(plan(situation(topic(), rivals=[rival(created=same, uid="u3")])))[1] == "Creating"


def test_who_owns_it_already_wins_over_an_older_one_that_came_to_it_later() -> None:
    assert said(plan(situation(topic(OWNED), PRESENT, rivals=[rival()])))[1] == "AsWritten"
    assert said(plan(situation(topic(OWNED), PRESENT, rivals=[rival(owned=True)])))[1] == "Collision"


def test_who_collides_and_is_not_managed_only_looks() -> None:
    assert said(plan(situation(topic(managed=False), PRESENT, rivals=[rival()])))[1] == "Unmanaged"


def test_claims_are_by_cluster_and_topic_and_of_managed_topics_alone() -> None:
    def manifest(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "t"}, "spec": spec}

    found = claims(
        [
            manifest("a"),
            manifest("b", topicName="a"),
            manifest("c", topicName="a", managed=False),
            manifest("d", clusterRef={"name": "x"}),
        ],
        kind="Topic",
        named_by="topicName",
    )
    assert {claim: [one.name for one in rivals] for claim, rivals in found.items()} == {
        ("shop", "bmq", "a"): ["a", "b"],
        ("shop", "x", "d"): ["d"],
    }


def deleted(status: TopicStatus = OWNED, **more: Any) -> Topic:
    return topic(status, deleted=True, **{"deletion_policy": "Delete", **more})


def test_a_topic_without_records_is_deleted_with_its_resource() -> None:
    asked = plan(situation(deleted(), PRESENT))
    assert (asked.needs_record_count, asked.action) == (True, None)
    found = plan(situation(deleted(), PRESENT, holds_records=False))
    assert (found.action, found.finished) == (Delete(version="v1"), False)
    assert plan(situation(deleted())).finished, "it is gone"


def test_a_topic_that_holds_records_waits_for_the_annotation() -> None:
    found = plan(situation(deleted(), PRESENT, holds_records=True))
    assert (said(found), found.action, found.finished) == (("False", "DataProtected"), None, False)
    assert "bmq.io/delete-data" in found.finding.message and "Retain" in found.finding.message
    for value, action in (("true", Delete(version="v1")), ("false", None), ("True", None)):
        annotated = deleted(annotations={"bmq.io/delete-data": value})
        assert plan(situation(annotated, PRESENT, holds_records=True)).action == action


@pytest.mark.parametrize(
    "stays",
    [
        situation(deleted(deletion_policy="Retain"), PRESENT),
        situation(deleted(managed=False), PRESENT),
        situation(deleted(TopicStatus()), PRESENT),
        situation(deleted(), PRESENT, namespace_ending=True),
        situation(deleted(), PRESENT, cluster=ClusterState.MISSING),
        situation(deleted(), PRESENT, cluster=ClusterState.ENDING),
        situation(deleted(), PRESENT, cluster=ClusterState.NOT_ALLOWED),
        situation(deleted(), replace(PRESENT, topic_id="B")),
        situation(deleted(), PRESENT, rivals=[rival(owned=True)]),
    ],
)
def test_the_topic_stays_and_nothing_is_waited_for(stays: Situation) -> None:
    found = plan(stays)
    assert (found.finished, found.action) == (True, None)


def test_a_cluster_that_does_not_answer_is_waited_for_and_the_way_out_is_said() -> None:
    found = plan(situation(deleted(), cluster=ClusterState.NOT_READY, why="no answer"))
    assert (found.finished, said(found), found.owned) == (False, ("Unknown", "ClusterNotReady"), True)
    assert "deletionPolicy: Retain" in found.finding.message


@pytest.mark.parametrize(
    ("state", "first_s", "later_s"),
    [
        (ClusterState.MISSING, 10, 60),
        (ClusterState.ENDING, 10, 60),
        (ClusterState.NOT_ALLOWED, 10, 60),
        (ClusterState.NOT_READY, 10, 10),
    ],
)
def test_what_watches_tell_the_end_of_is_asked_for_ever_more_rarely(
    state: ClusterState, first_s: float, later_s: float
) -> None:
    fresh = plan(situation(topic(), cluster=state))
    waiting = TopicStatus(conditions=next_conditions([], [fresh.finding], generation=1, now_ms=0))
    later = plan(situation(topic(waiting), cluster=state, now_ms=10 * 60_000))
    assert (fresh.again_after_s, later.again_after_s) == (first_s, later_s)
