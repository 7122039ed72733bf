"""What is decided about a Lane, case by case, and which objects it has."""

from typing import Any, Literal

import pytest

from bmq_operator.conditions import Finding, next_conditions, timestamp
from bmq_operator.lanes.claims import lane_claims
from bmq_operator.lanes.desired import desired, names_of, why_unusable
from bmq_operator.lanes.plan import (
    ChangeLane,
    CreateLane,
    DeleteLane,
    DeleteResource,
    Known,
    Plan,
    may_be_over,
    plan,
    told_expiry,
)
from bmq_operator.lanes.situation import PresentLane, Ready, Situation, present_from
from bmq_operator.lanes.slots import FIRST, WIDTH, free_from
from bmq_operator.references import ClusterState
from bmq_operator.rivals import Rival
from bmq_resources.base import ObjectMeta
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane, LaneSpec, LaneStatus

CREATED_MS = 1_770_000_000_000
NO_READS = {"enabled": False, "topics": ["*"], "bytes_per_second": 1_048_576}


def shown(*, ttl_seconds: int = 0, own_brokers: bool = False, expires_ms: int | None = None) -> PresentLane:
    times = {"ttl_seconds": ttl_seconds, "expires_ms": expires_ms}
    return present_from(
        {
            "version": "v1",
            **times,
            "own_brokers": own_brokers,
            "reads_base": NO_READS,
            "topics": 7,
            "number": 3,
            "created_ms": 5,
        }
    )


PRESENT = shown()
DECLARED = LaneStatus(lane_name="feature", node_ids_from=FIRST)


def lane(
    status: LaneStatus = DECLARED, *, name: str = "feature", deleted: bool = False, namespace: str = "shop", **spec: Any
) -> Lane:
    return Lane(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid="u2",
            generation=4,
            creation_timestamp="2026-02-02T02:40:00Z",
            deletion_timestamp="2026-02-03T00:00:00Z" if deleted else None,
        ),
        spec=LaneSpec.model_validate(spec),
        status=status,
    )


def situation(of: Lane, present: PresentLane | None = None, **more: Any) -> Situation:
    now_ms = more.get("now_ms", CREATED_MS)
    given = {
        "cluster": ClusterState.READY,
        "now_ms": now_ms,
        "kube_ms": now_ms,
        "cluster_ms": now_ms,
        "free_node_ids_from": FIRST + WIDTH,
        "proxies": Ready(there=1, ready=1),
    }
    return Situation(**{"lane": of, "cluster_name": "shop/bmq", "present": present, **given, **more})


def said(found: Plan) -> tuple[str, str]:
    return found.finding.status, found.finding.reason


def test_an_intent_takes_over_no_lane_that_it_cannot_have_declared() -> None:
    theirs = shown(ttl_seconds=77)
    none = Ready()
    found = plan(situation(lane(existing="Refuse"), theirs, proxies=none))
    assert (said(found), found.action, found.lane_name, found.node_ids_from) == (
        ("False", "AlreadyExists"),
        None,
        "",
        -1,
    )
    gone = plan(situation(lane(existing="Refuse", deleted=True), theirs, proxies=none))
    assert (gone.action, gone.finished) == (None, True)
    adopted = plan(situation(lane(existing="Adopt"), theirs, proxies=none))
    assert isinstance(adopted.action, ChangeLane)
    of_another = lane(DECLARED.model_copy(update={"number": 2}), existing="Refuse")
    assert said(plan(situation(of_another, theirs, proxies=none))) == ("False", "AlreadyExists"), (
        "the one that it had is gone"
    )
    crashed = plan(situation(lane(existing="Refuse", deleted=True), PRESENT, proxies=none))
    assert isinstance(crashed.action, DeleteLane), "the answer to its own declaration was lost"


OWN = DECLARED.model_copy(update={"number": 3, "created_ms": 5})


def test_a_lane_of_the_same_number_in_another_cluster_is_not_its_own_though_it_is_the_same_in_all_else() -> None:
    theirs = OWN.model_copy(update={"created_ms": 4})
    found = plan(situation(lane(theirs, existing="Refuse"), PRESENT))
    assert (said(found), found.action, found.lane_name) == (("False", "AlreadyExists"), None, "")
    gone = plan(situation(lane(theirs, existing="Refuse", deleted=True), PRESENT))
    assert (gone.action, gone.finished) == (None, True)
    for own in (OWN, OWN.model_copy(update={"created_ms": 0})):  # an operator of before noted no time
        found = plan(situation(lane(own, existing="Refuse"), PRESENT))
        assert (said(found), found.known) == (("True", "AsWritten"), Known(number=3, created_ms=5))


def test_a_lane_that_is_gone_is_declared_anew_once_that_is_written_down() -> None:
    told = OWN.model_copy(
        update={"conditions": next_conditions([], [Finding(status="True", reason="AsWritten")], generation=4, now_ms=0)}
    )
    first = plan(situation(lane(told, existing="Refuse")))
    assert (first.action, first.declaring, first.again_after_s) == (None, True, 0.0)
    assert [event.reason for event in first.events] == ["LaneLost"]
    conditions = next_conditions([], [first.finding], generation=4, now_ms=0)
    declaring = told.model_copy(update={"declaring": True, "conditions": conditions})
    then = plan(situation(lane(declaring, existing="Refuse")))
    assert isinstance(then.action, CreateLane) and not then.events
    successor = PresentLane(
        **{**{name: getattr(PRESENT, name) for name in PresentLane.__dataclass_fields__}, "number": 9, "created_ms": 99}
    )
    answer_lost = plan(situation(lane(declaring, existing="Refuse"), successor))
    assert (said(answer_lost), answer_lost.known.number, answer_lost.declaring) == (("True", "AsWritten"), 9, False)
    other = plan(situation(lane(told, existing="Refuse"), successor))
    assert said(other) == ("False", "AlreadyExists"), "somebody deleted it and made another one"


@pytest.mark.parametrize(("by", "reason"), [("False", "AlreadyExists"), ("Unknown", "AsWritten")])
def test_what_an_api_server_refused_is_no_refusal_of_the_cluster(by: Literal["False", "Unknown"], reason: str) -> None:
    ready = Finding(status=by, reason="Refused")
    status = DECLARED.model_copy(update={"conditions": next_conditions([], [ready], generation=3, now_ms=0)})
    found = plan(situation(lane(status, existing="Refuse", proxies={"replicas": 0}), PRESENT, proxies=Ready()))
    assert found.finding.reason == reason


def test_a_new_lane_is_written_down_with_its_node_ids_and_then_declared() -> None:
    first = plan(situation(lane(LaneStatus())))
    assert (first.action, first.lane_name, first.node_ids_from, first.again_after_s) == (
        None,
        "feature",
        FIRST + WIDTH,
        0.0,
    )
    then = plan(situation(lane()))
    assert then.action == CreateLane(
        body={
            "name": "feature",
            "ttl_seconds": 0,
            "own_brokers": False,
            "reads_base": NO_READS,
            "fallback": "none",
        },
    )
    assert (then.node_ids_from, then.objects) == (FIRST, True)


def test_a_lane_that_is_as_written_is_left_alone_and_shows_its_topics() -> None:
    found = plan(situation(lane(), PRESENT))
    assert (said(found), found.action, found.topics, found.events) == (("True", "AsWritten"), None, 7, ())


def test_what_differs_is_changed_in_its_version_alone() -> None:
    reads = {"base": {"enabled": True, "topics": ["a-*"], "bytesPerSecond": 2048}}
    found = plan(situation(lane(reads=reads, ttlSeconds=9_999_999), PRESENT))
    assert found.action == ChangeLane(
        body={
            "ttl_seconds": 9_999_999,
            "own_brokers": False,
            "reads_base": {"enabled": True, "topics": ["a-*"], "bytes_per_second": 2048},
            "fallback": "none",
        },
        version="v1",
    )


def test_limits_of_reads_that_are_not_enabled_are_no_difference() -> None:
    found = plan(situation(lane(reads={"base": {"bytesPerSecond": 4096}}), PRESENT))
    assert said(found) == ("True", "AsWritten")


def test_topics_move_to_brokers_of_their_own_once_one_is_ready() -> None:
    starting = plan(situation(lane(brokers={"replicas": 2}), PRESENT))
    assert (said(starting), starting.action) == (("False", "BrokersStarting"), None)
    ready = plan(situation(lane(brokers={"replicas": 2}), PRESENT, brokers=Ready(there=2, ready=1)))
    assert isinstance(ready.action, ChangeLane) and ready.action.body["own_brokers"] is True
    restarting = plan(
        situation(lane(brokers={"replicas": 2}), shown(own_brokers=True), brokers=Ready(there=2, ready=0))
    )
    assert restarting.action is None, "they stay there while the brokers are away for a moment"
    without = plan(situation(lane(), shown(own_brokers=True), brokers=Ready(there=2, ready=2)))
    assert isinstance(without.action, ChangeLane) and without.action.body["own_brokers"] is False


def test_proxies_that_are_not_ready_are_said() -> None:
    found = plan(situation(lane(proxies={"replicas": 3}), PRESENT))
    assert (said(found), found.finding.message) == (
        ("False", "ProxiesStarting"),
        "1 of 3 proxies of the lane are ready",
    )
    assert said(plan(situation(lane(proxies={"replicas": 0}), PRESENT, proxies=Ready()))) == ("True", "AsWritten")


def test_a_lane_that_was_there_before_is_not_touched() -> None:
    found = plan(situation(lane(LaneStatus()), PRESENT))
    assert (said(found), found.action, found.lane_name, found.objects) == (("False", "AlreadyExists"), None, "", None)


def test_a_lane_that_was_there_before_is_adopted_where_that_is_written() -> None:
    found = plan(situation(lane(LaneStatus(), existing="Adopt"), PRESENT))
    assert (said(found), found.action, found.lane_name, found.node_ids_from) == (
        ("Unknown", "Creating"),
        None,
        "feature",
        FIRST + WIDTH,
    )
    assert [event.reason for event in found.events] == ["Adopted"]
    then = plan(situation(lane(existing="Adopt"), PRESENT))
    assert (said(then), then.action, then.objects, then.events) == (("True", "AsWritten"), None, True, ())
    assert plan(situation(lane(LaneStatus(), existing="Adopt"))).events == (), "there is nothing to adopt"


def test_an_adopted_lane_is_over_when_the_cluster_says_so_and_is_not_made_again_empty() -> None:
    soon_ms = CREATED_MS + 60_000
    present = shown(ttl_seconds=3600, expires_ms=soon_ms)
    of = lane(existing="Adopt", ttlSeconds=3600)
    assert plan(situation(of, present)).action is None
    assert isinstance(plan(situation(of, present, now_ms=soon_ms)).action, DeleteResource)
    remembered = DECLARED.model_copy(update={"expires_at": timestamp(soon_ms), "observed_generation": 4})
    of = lane(remembered, existing="Adopt", ttlSeconds=3600)
    assert isinstance(plan(situation(of, None, now_ms=soon_ms)).action, DeleteResource), "the cluster forgot it first"
    longer = of.model_copy(update={"metadata": of.metadata.model_copy(update={"generation": 5})})
    assert isinstance(plan(situation(longer, None, now_ms=soon_ms)).action, CreateLane), (
        "another time was written since"
    )


def test_the_time_of_a_lane_that_is_not_its_own_is_over_without_it() -> None:
    found = plan(situation(lane(LaneStatus(), ttlSeconds=3600), shown(ttl_seconds=3600, expires_ms=CREATED_MS - 1)))
    assert (said(found), found.action) == (("False", "AlreadyExists"), None)


def test_a_lane_deleted_behind_our_back_is_made_again_and_told() -> None:
    ready = next_conditions([], [Finding(status="True", reason="AsWritten")], generation=4, now_ms=0)
    found = plan(situation(lane(DECLARED.model_copy(update={"conditions": ready}))))
    assert isinstance(found.action, CreateLane)
    assert [(event.reason, event.warning) for event in found.events] == [("LaneLost", True)]


def test_of_two_for_one_lane_the_oldest_wins() -> None:
    other = Rival(kind="Lane", namespace="other", name="first", uid="u1", created="2026-01-01T00:00:00Z", owned=False)
    found = plan(situation(lane(LaneStatus()), rivals=[other]))
    assert (said(found), found.lane_name, "Lane other/first" in found.finding.message) == (
        ("False", "Collision"),
        "",
        True,
    )
    assert found.objects is False, "the other one needs their names"
    waits = next_conditions([], [found.finding], generation=4, now_ms=CREATED_MS)
    later_ms = CREATED_MS + 20 * 60_000
    later = plan(situation(lane(LaneStatus(conditions=waits)), rivals=[other], now_ms=later_ms))
    assert (found.again_after_s, later.again_after_s) == (10, 60), "there may be many for one lane"
    assert plan(situation(lane(), PRESENT, rivals=[other])).finding.reason == "AsWritten", "who has it keeps it"


@pytest.mark.parametrize("state", [state for state in ClusterState if state is not ClusterState.READY])
def test_a_cluster_that_cannot_be_asked_is_waited_for_and_nothing_is_forgotten(state: ClusterState) -> None:
    found = plan(situation(lane(), cluster=state, why="no answer"))
    assert (found.action, found.objects, found.lane_name, found.node_ids_from) == (None, None, "feature", FIRST)
    assert found.again_after_s and found.finding.message


@pytest.mark.parametrize("name", ["a.b", "a" * 33])
def test_a_resources_name_that_is_no_lanes_is_said(name: str) -> None:
    found = plan(situation(lane(LaneStatus(), name=name)))
    assert (said(found), "laneName" in found.finding.message) == (("False", "InvalidName"), True)


def test_a_lane_goes_when_its_time_is_over_whatever_else_is_the_case() -> None:
    kept = plan(situation(lane(ttlSeconds=60), shown(ttl_seconds=60), now_ms=CREATED_MS + 59_000))
    assert (said(kept), kept.again_after_s) == (("True", "AsWritten"), 1.0)
    announced = DECLARED.model_copy(update={"expires_at": timestamp(CREATED_MS + 60_000)})
    for state in ClusterState:
        found = plan(situation(lane(announced, ttlSeconds=60), cluster=state, now_ms=CREATED_MS + 60_000))
        over = (DeleteResource(), ["Expired"]) if state is not ClusterState.NOT_READY else (None, [])
        assert (found.action, [event.reason for event in found.events]) == over, "who may have its topics is waited for"


AHEAD_MS = CREATED_MS + 9 * 3_600_000
"""What a clock says that is hours ahead."""
OF_HOURS = lane(
    DECLARED.model_copy(update={"expires_at": timestamp(CREATED_MS + 8 * 3_600_000), "observed_generation": 4}),
    ttlSeconds=8 * 3600,
)


@pytest.mark.parametrize("cluster_ms", [CREATED_MS + 60_000, None], ids=["the cluster has another time", "has none"])
@pytest.mark.parametrize("of", [OF_HOURS, lane(LaneStatus(), ttlSeconds=8 * 3600, existing="Adopt")])
def test_no_lane_ends_by_the_operators_own_clock(of: Lane, cluster_ms: int | None) -> None:
    present = shown(ttl_seconds=8 * 3600, expires_ms=CREATED_MS + 8 * 3_600_000)
    for there in (present, None):
        found = plan(situation(of, there, now_ms=AHEAD_MS, kube_ms=CREATED_MS, cluster_ms=cluster_ms))
        assert found.action is None or isinstance(found.action, CreateLane)
    found = plan(situation(OF_HOURS, present, now_ms=AHEAD_MS, kube_ms=CREATED_MS, cluster_ms=cluster_ms))
    assert (said(found), found.again_after_s) == (("True", "AsWritten"), 30.0), "it is not asked each second"


@pytest.mark.parametrize("state", [state for state in ClusterState if state is not ClusterState.READY])
def test_nor_where_its_cluster_cannot_be_asked(state: ClusterState) -> None:
    for kube_ms in (CREATED_MS, None):
        found = plan(situation(OF_HOURS, cluster=state, now_ms=AHEAD_MS, kube_ms=kube_ms, cluster_ms=None))
        assert found.action is None


def test_a_clock_that_is_behind_keeps_no_lane_whose_time_is_over_by_its_cluster() -> None:
    late = {"now_ms": CREATED_MS, "cluster_ms": AHEAD_MS}
    assert isinstance(plan(situation(OF_HOURS, **late)).action, DeleteResource)
    had = OF_HOURS.model_copy(update={"status": OF_HOURS.status.model_copy(update={"number": 3})})
    assert may_be_over(had, None, now_ms=CREATED_MS), "the cluster may have deleted it, and is asked"


def test_a_cluster_that_tells_no_time_ends_the_lane_itself_and_then_the_resource_goes() -> None:
    present = shown(ttl_seconds=8 * 3600, expires_ms=CREATED_MS + 8 * 3_600_000)
    before: dict[str, Any] = {"now_ms": AHEAD_MS, "cluster_ms": None, "tells_time": False}
    assert plan(situation(OF_HOURS, present, **before)).action is None
    assert isinstance(plan(situation(OF_HOURS, None, **before)).action, DeleteResource)


def test_the_deletion_of_a_lane_waits_as_long_by_the_clock_that_says_when_it_began() -> None:
    deleted_ms = 1_770_076_800_000
    for kube_ms, finished in ((deleted_ms + 60_000, False), (deleted_ms + 300_000, True)):
        of = situation(lane(deleted=True), cluster=ClusterState.NOT_READY, now_ms=AHEAD_MS * 2, kube_ms=kube_ms)
        assert plan(of).finished is finished
    texts = {
        plan(situation(lane(deleted=True), cluster=ClusterState.NOT_READY, kube_ms=deleted_ms + ms)).finding.message
        for ms in (1_000, 60_000)
    }
    assert len(texts) == 1, "what is said once need not be written again"


@pytest.mark.parametrize("state", list(ClusterState))
def test_a_time_in_the_status_that_is_none_ends_nothing(state: ClusterState) -> None:
    odd = DECLARED.model_copy(update={"expires_at": "soon", "observed_generation": 4})
    for now_ms in (CREATED_MS, CREATED_MS + 3_600_000):
        found = plan(situation(lane(odd, ttlSeconds=7_200), cluster=state, now_ms=now_ms))
        assert found.action is None or isinstance(found.action, CreateLane)


def test_a_time_to_live_that_is_over_when_it_is_written_ends_no_lane() -> None:
    found = plan(situation(lane(ttlSeconds=60), PRESENT, now_ms=CREATED_MS + 3_600_000))
    assert (said(found), found.action, found.topics) == (("False", "TtlTooShort"), None, 7)
    assert "write 7200 or more" in found.finding.message
    later = plan(situation(lane(ttlSeconds=60), PRESENT, now_ms=CREATED_MS + 3_660_000))
    assert later.finding == found.finding, "nothing is new"
    in_force = plan(situation(lane(ttlSeconds=60), shown(ttl_seconds=60), now_ms=CREATED_MS + 3_600_000))
    assert in_force.action == DeleteResource(), "nobody looked since it was over"


@pytest.mark.parametrize("told", ["", timestamp(CREATED_MS + 7_200_000)])
def test_nor_does_it_while_nobody_can_be_asked_what_was_in_force(told: str) -> None:
    of = lane(DECLARED.model_copy(update={"expires_at": told, "observed_generation": 4}), ttlSeconds=60)
    for state in (one for one in ClusterState if one is not ClusterState.READY):
        found = situation(of, cluster=state, now_ms=CREATED_MS + 3_600_000)
        assert plan(found).action is None
        assert told_expiry(found) == told, "what was announced stays announced"


def test_a_lane_goes_with_its_resource() -> None:
    asked = plan(situation(lane(deleted=True), PRESENT))
    assert (asked.action, asked.objects, asked.finished) == (DeleteLane(version="v1"), False, False)
    done = plan(situation(lane(deleted=True)))
    assert (done.objects, done.finished) == (False, True)


@pytest.mark.parametrize("state", [ClusterState.MISSING, ClusterState.ENDING, ClusterState.NOT_ALLOWED])
def test_without_a_cluster_nothing_is_waited_for(state: ClusterState) -> None:
    assert plan(situation(lane(deleted=True), cluster=state)).finished


def test_a_cluster_that_does_not_answer_is_waited_for_and_not_for_ever() -> None:
    deleted_ms = 1_770_076_800_000
    waits = plan(
        situation(lane(deleted=True), cluster=ClusterState.NOT_READY, why="no answer", now_ms=deleted_ms + 299_000)
    )
    assert (waits.finished, waits.objects, "until 2026-02-03T00:05:00Z" in waits.finding.message) == (
        False,
        False,
        True,
    )
    assert plan(situation(lane(deleted=True), cluster=ClusterState.NOT_READY, now_ms=deleted_ms + 300_000)).finished
    assert plan(
        situation(lane(deleted=True), cluster=ClusterState.NOT_READY, now_ms=deleted_ms, namespace_ending=True)
    ).finished


def test_the_lowest_free_slot_is_given() -> None:
    assert free_from([]) == FIRST
    assert free_from([FIRST, FIRST + 2 * WIDTH]) == FIRST + WIDTH
    assert free_from([FIRST + index * WIDTH for index in range(500)]) == FIRST + 500 * WIDTH


def test_claims_tell_lanes_and_node_ids_by_cluster() -> None:
    manifest = {
        "metadata": {"name": "a", "namespace": "n", "uid": "1"},
        "spec": {"laneName": "x"},
        "status": {"nodeIdsFrom": 20_200, "laneName": "x"},
    }
    found = lane_claims([manifest])
    assert found.node_ids == {("n", "bmq"): {"1": 20_200}}
    assert [(claim, [one.owned for one in rivals]) for claim, rivals in found.rivals.items()] == [
        (("n", "bmq", "x"), [True])
    ]


CLUSTER = Cluster(metadata=ObjectMeta(name="bmq", namespace="shop", uid="c1"))
BASE = {
    "spec": {
        "template": {
            "metadata": {"annotations": {"bmq.io/config-hash": "h"}},
            "spec": {"containers": [{"image": "registry:5000/bmq:7"}]},
        }
    }
}


def objects(of: Lane, *, with_brokers: bool = False) -> dict[tuple[str, str], Any]:
    made = desired(of, CLUSTER, BASE, node_ids_from=20_200, with_brokers=with_brokers)
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def variables(stateful_set: Any) -> dict[str, str]:
    return {
        one["name"]: one["value"]
        for one in stateful_set["spec"]["template"]["spec"]["containers"][0]["env"]
        if "value" in one
    }


def test_a_lane_has_proxies_of_its_own_that_serve_it_alone() -> None:
    found = objects(lane(proxies={"replicas": 2}))
    proxies = found["StatefulSet", "bmq-lane-feature-proxy"]
    assert (proxies["spec"]["replicas"], proxies["spec"]["template"]["spec"]["containers"][0]["image"]) == (
        2,
        "registry:5000/bmq:7",
    )
    assert {"BMQ_LANE": "feature", "BMQ_ROLES": "proxy", "BMQ_NODE_ID_BASE": "20200"}.items() <= variables(
        proxies
    ).items()
    selector = proxies["spec"]["selector"]["matchLabels"]
    assert found["Service", "bmq-lane-feature"]["spec"]["selector"] == selector
    assert found["PodDisruptionBudget", "bmq-lane-feature-proxy"]["spec"]["selector"]["matchLabels"] == selector
    assert selector["bmq.io/lane"] == "feature"
    assert len(found) == 3


def test_a_lanes_brokers_have_a_pool_and_node_ids_of_their_own() -> None:
    brokers = objects(lane(brokers={"replicas": 3}), with_brokers=True)["StatefulSet", "bmq-lane-feature-broker"]
    assert {"BMQ_POOL": "lane-feature", "BMQ_ROLES": "broker", "BMQ_NODE_ID_BASE": "20300"}.items() <= variables(
        brokers
    ).items()
    assert "BMQ_LANE" not in variables(brokers)


def test_a_lane_owns_its_objects_where_it_can_and_else_its_cluster_does() -> None:
    for of, kind in ((lane(), "Lane"), (lane(namespace="elsewhere"), "Cluster")):
        for one in objects(of).values():
            meta = one["metadata"]
            assert (meta["namespace"], meta["ownerReferences"][0]["kind"]) == ("shop", kind)
            assert meta["annotations"] == {"bmq.io/of-lane": "feature", "bmq.io/of-namespace": of.metadata.namespace}


def test_names_that_would_be_too_long_are_told_with_what_fits() -> None:
    long = Cluster(metadata=ObjectMeta(name="a-cluster-with-a-rather-long-name", namespace="shop"))
    assert why_unusable(names_of(long, lane(laneName="sixsix"))) == ""
    assert "create another Lane with a laneName of at most 6 characters" in why_unusable(
        names_of(long, lane(laneName="seven-7"))
    )
