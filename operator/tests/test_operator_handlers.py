"""What kopf is told."""

import itertools

import kopf

from bmq_operator.allowed import USE
from bmq_operator.clusters.names import CLUSTER_LABEL, OF_LANE, OF_NAMESPACE
from bmq_operator.handlers import CHILDREN, due_by_child, kopf_settings
from bmq_operator.runner import FINALIZER
from bmq_operator.workqueue import Key


def test_kopf_does_not_take_away_the_finalizer_that_the_operator_puts_on() -> None:
    assert kopf_settings(namespaced=True).persistence.finalizer != FINALIZER


def test_a_watch_that_is_silent_is_begun_anew_and_no_request_waits_for_ever() -> None:
    settings = kopf_settings(namespaced=True)
    assert 0 < settings.watching.inactivity_timeout <= 75
    assert settings.watching.connect_timeout
    assert settings.networking.request_timeout


def test_tries_of_a_request_never_end_and_are_never_far_apart() -> None:
    backoffs = kopf_settings(namespaced=True).networking.error_backoffs
    for _ in range(2):  # every request begins anew
        first = list(itertools.islice(iter(backoffs), 1_000))  # type: ignore[arg-type]
        assert len(first) == 1_000
        assert min(first) > 0 and max(first) <= 60


def test_of_what_may_belong_to_a_cluster_only_what_has_its_label_is_asked_for() -> None:
    resources = [kopf.Resource(group=group, version=version, plural=plural) for group, version, plural in CHILDREN]
    selectors = kopf_settings(namespaced=True).watching.label_selectors
    assert [selectors.collect(one) for one in resources] == [[CLUSTER_LABEL]] * len(CHILDREN)
    assert selectors.collect(kopf.Resource(group="", version="v1", plural="secrets")) == [USE]
    assert selectors.collect(kopf.Resource(group="metrics.k8s.io", version="v1beta1", plural="pods")) == []


def test_no_object_has_an_operator_look_at_a_lane_of_a_namespace_that_it_does_not_look_after() -> None:
    cluster, lane = Key("Cluster", "shop", "bmq"), Key("Lane", "dev", "x")
    meta = {"namespace": "shop", "labels": {CLUSTER_LABEL: "bmq"}, "annotations": {OF_LANE: "x", OF_NAMESPACE: "dev"}}
    assert due_by_child(meta, ("shop",)) == [cluster]
    assert due_by_child(meta, ("shop", "dev")) == [cluster, lane]
    assert due_by_child(meta, ()) == [cluster, lane]
    assert due_by_child({**meta, "annotations": {OF_LANE: "x"}}, ("shop",)) == [cluster, Key("Lane", "shop", "x")]
    assert due_by_child({**meta, "annotations": {}}, ("shop",)) == [cluster]
