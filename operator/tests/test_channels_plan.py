"""What is decided about a Channel, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from bmq_operator.channels.plan import GIVE_UP_MS, Change, Declare, Delete, Plan, plan
from bmq_operator.channels.situation import PresentChannel, Situation
from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.references import ClusterState
from bmq_operator.rivals import Rival
from bmq_resources.base import ObjectMeta
from bmq_resources.channel import Channel, ChannelStatus, DeclaredChannelSpec

SAID = {"topic": "clicks-raw"}
OWNED = ChannelStatus(owned=True, created_ms=7)
PRESENT = PresentChannel(created_ms=7, version="v1", spec=SAID)
DELETED_MS = 1_772_496_000_000


def channel(status: ChannelStatus | None = None, *, deleted: bool = False, **spec: Any) -> Channel:
    return Channel(
        metadata=ObjectMeta(
            name="clicks",
            namespace="shop",
            uid="u2",
            generation=4,
            creation_timestamp="2026-02-02T00:00:00Z",
            deletion_timestamp="2026-03-03T00:00:00Z" if deleted else None,
        ),
        spec=DeclaredChannelSpec(**{**SAID, **spec}),
        status=status or ChannelStatus(),
    )


def situation(of: Channel, present: PresentChannel | None = None, **more: Any) -> Situation:
    return Situation(
        **{
            "channel": of,
            "cluster_name": "shop/bmq",
            "cluster": ClusterState.READY,
            "now_ms": 0,
            "present": present,
            **more,
        }
    )


def told(status: ChannelStatus, reason: str, *, generation: int = 4) -> ChannelStatus:
    ready = Finding(status="False" if reason == "Refused" else "True", reason=reason)
    return status.model_copy(update={"conditions": next_conditions([], [ready], generation=generation, now_ms=0)})


def said(found: Plan) -> tuple[str, str]:
    return found.finding.status, found.finding.reason


def rival(**more: Any) -> Rival:
    found = {"namespace": "other", "name": "x", "uid": "u1", "created": "2026-01-01T00:00:00Z", "owned": True}
    return Rival(kind="Channel", **{**found, **more})


def test_a_new_channel_is_first_written_down_as_intended_and_then_declared() -> None:
    first = plan(situation(channel()))
    assert (first.action, first.owned, first.again_after_s, said(first)) == (None, True, 0.0, ("Unknown", "Creating"))
    then = plan(situation(channel(ChannelStatus(owned=True))))
    assert (then.action, then.events) == (Declare(spec=SAID), ())


def test_what_a_crash_left_between_declaring_and_telling_is_known_as_its_own() -> None:
    found = plan(situation(channel(ChannelStatus(owned=True)), PRESENT))
    assert (said(found), found.owned, found.created_ms, found.action) == (("True", "AsWritten"), True, 7, None)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (ChannelStatus(), {}),
        (ChannelStatus(owned=True), {"present": replace(PRESENT, spec={"topic": "theirs"})}),
        (told(ChannelStatus(owned=True), "Refused"), {}),
        (ChannelStatus(owned=True), {"made_none": True}),
    ],
    ids=["nothing was meant", "another look", "its declaration was refused", "nothing was asked for"],
)
def test_a_channel_that_it_cannot_have_made_is_refused_left_alone_and_not_deleted(
    status: ChannelStatus, more: dict[str, Any]
) -> None:
    there = {"present": PRESENT, **more}
    found = plan(situation(channel(status), **there))
    assert (said(found), found.action, found.owned) == (("False", "AlreadyExists"), None, False)
    assert "existing: Adopt" in found.finding.message
    gone = plan(situation(channel(status, deleted=True), **there))
    assert (gone.action, gone.finished) == (None, True)
    adopted = plan(situation(channel(status, existing="Adopt", enabled=False), **there))
    assert adopted.owned and [event.reason for event in adopted.events] == ["Adopted"]
    assert adopted.action == Change(spec=SAID | {"enabled": False}, version="v1")


def test_what_differs_is_changed_and_told_as_drift_where_it_was_as_written() -> None:
    theirs = replace(PRESENT, spec={"topic": "theirs", "spool": {"maxBytes": 9 << 20}})
    found = plan(situation(channel(told(OWNED, "AsWritten")), theirs))
    assert found.action == Change(spec=SAID, version="v1")
    assert [(one.reason, "spool.maxBytes, topic" in one.message) for one in found.events] == [("DriftPutBack", True)]
    newer = plan(situation(channel(told(OWNED, "AsWritten", generation=3)), theirs))
    assert newer.action is not None and newer.events == (), "the resource was changed, not the channel"


def test_a_channel_that_is_gone_is_made_again_and_one_in_its_place_is_managed() -> None:
    lost = plan(situation(channel(OWNED)))
    assert isinstance(lost.action, Declare) and [one.reason for one in lost.events] == ["ChannelLost"]
    replaced = plan(situation(channel(OWNED), replace(PRESENT, created_ms=8)))
    assert (replaced.created_ms, [one.reason for one in replaced.events]) == (8, ["ChannelReplaced"])
    gone = plan(situation(channel(OWNED, deleted=True), replace(PRESENT, created_ms=8)))
    assert (gone.action, gone.finished) == (None, True), "what is in doubt stays"


def test_of_two_resources_for_one_channel_the_owner_stands_for_it() -> None:
    other = plan(situation(channel(), PRESENT, rivals=[rival()]))
    assert (said(other), other.owned) == (("False", "Collision"), False) and "Channel other/x" in other.finding.message
    mine = plan(situation(channel(OWNED), PRESENT, rivals=[rival(owned=False)]))
    assert said(mine) == ("True", "AsWritten")
    gone = plan(situation(channel(OWNED, deleted=True), PRESENT, rivals=[rival()]))
    assert (gone.action, gone.finished) == (None, True)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ClusterState.MISSING, "ClusterMissing"),
        (ClusterState.ENDING, "ClusterEnding"),
        (ClusterState.NOT_ALLOWED, "NamespaceNotAllowed"),
        (ClusterState.NOT_READY, "ClusterNotReady"),
    ],
)
def test_what_is_known_stays_while_the_cluster_cannot_be_asked(state: ClusterState, reason: str) -> None:
    found = plan(situation(channel(OWNED), cluster=state, why="nobody answers"))
    assert (found.finding.reason, found.owned, found.created_ms, found.action) == (reason, True, 7, None)
    assert found.again_after_s is not None


def test_a_cluster_of_before_channels_is_told_so() -> None:
    found = plan(situation(channel(), knows_channels=False))
    assert (said(found), found.owned) == (("False", "NoChannels"), False)
    assert plan(situation(channel(OWNED, deleted=True), knows_channels=False)).finished


def test_a_deletion_takes_the_channel_along() -> None:
    found = plan(situation(channel(OWNED, deleted=True), PRESENT))
    assert (found.action, found.finished) == (Delete(version="v1"), False)
    assert plan(situation(channel(OWNED, deleted=True))).finished


def test_a_deletion_waits_five_minutes_for_a_cluster_that_does_not_answer() -> None:
    silent = situation(channel(OWNED, deleted=True), cluster=ClusterState.NOT_READY, kube_ms=DELETED_MS)
    waits = plan(silent)
    assert not waits.finished and waits.owned and "2026-03-03T00:05:00Z" in waits.finding.message
    assert plan(replace(silent, kube_ms=DELETED_MS + GIVE_UP_MS)).finished
    assert plan(replace(silent, namespace_ending=True)).finished
    assert plan(replace(silent, cluster=ClusterState.MISSING)).finished
