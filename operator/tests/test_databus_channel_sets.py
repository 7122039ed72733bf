"""ConfigMaps that name channels and a cluster: what is taken is taken by the sidecar, too; all else is told."""

from pathlib import Path
from typing import Any

import pytest
from databus_of_a_test import CHANNELS, config_map

from bmq_databus.channels.files import channels_of
from bmq_operator.databus.channel_sets import (
    CHANNELS_BYTES_MAX,
    BadChannelSet,
    ClusterName,
    channel_set_of,
)
from bmq_resources.channel_sets import disk_bytes


def test_a_channel_set_says_where_its_cluster_is_and_how_much_its_channels_may_keep(tmp_path: Path) -> None:
    found = channel_set_of(config_map())
    assert (found.name, found.cluster, found.tokens_secret) == ("shop-channels", None, "")
    assert found.spool_bytes == disk_bytes(16 << 20), "of the one that accepts"
    assert channel_set_of(config_map(cluster="bmq")).cluster == ClusterName(name="bmq")
    assert channel_set_of(config_map(cluster="queues/bmq")).cluster == ClusterName(name="bmq", namespace="queues")
    assert channel_set_of(config_map(tokensSecret="writers")).tokens_secret == "writers"
    file = tmp_path / "channels.yaml"
    file.write_text(CHANNELS)
    assert set(channels_of(file)) == {"orders", "clicks"}


LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
ONE = "{apiVersion: bmq.io/v1alpha1, kind: Channel, metadata: {name: a}}"
NAMED = ONE.replace("metadata: {name: a}", "metadata: {name: b}, spec: {channelName: a}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no channels.yaml"),
        ("# nothing\n", "there is no Channel"),
        ("a: [", "is no YAML"),
        ("\x00", "is no YAML"),
        ("just text", "document 1 has no kind"),
        ("{kind: Topic}", "document 1 is of kind 'Topic'"),
        (ONE.replace("{name: a}", "{name: a}, spec: {deadLetter: b}"), "its deadLetter b is no channel here"),
        (f"{ONE}\n---\n{ONE}", "document 2: channel a stands there twice"),
        (f"{ONE}\n---\n{NAMED}", "document 2: channel a stands there twice"),
        (ONE.replace("metadata: {name: a}", "metadata: {name: a}, spec: {topic: 'a b'}"), "spec.topic"),
        (ONE.replace("{name: a}", "{name: a}, spec: {acknowledgement: soon}"), "spec.acknowledgement: 'soon'"),
        (LAUGHS, r"has an alias \(\*a\): write out"),
        ("[" * 100_000, "is nested too deep"),
        ("- a\n" * 30_000, "too many parts|has no kind"),
        (ONE + "#" * CHANNELS_BYTES_MAX, "has more than 128 KiB"),
    ],
)
def test_channels_that_no_sidecar_would_start_with_are_told(text: str, says: str) -> None:
    with pytest.raises(BadChannelSet, match=says) as told:
        channel_set_of(config_map(**{"channels.yaml": text}))
    assert "ConfigMap shop-channels" in str(told.value) and len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"cluster": "bmq", "bootstrapServers": "a:1"}, "write either bootstrapServers or cluster"),
        ({"bootstrapServers": "a"}, "write HOST:PORT"),
        ({"bootstrapServers": "a:9092\n"}, "without blanks and new lines"),
        ({"cluster": "a/b/c"}, "NAMESPACE/NAME"),
        ({"cluster": "/b"}, "NAMESPACE/NAME"),
        ({"cluster": ""}, "NAMESPACE/NAME"),
        ({"tokensSecret": "../x"}, "no name of a Secret"),
        ({"registry": "https://x"}, "'registry' is no key of a channel set"),
    ],
)
def test_other_keys_that_cannot_be_used_are_told(data: dict[str, str], says: str) -> None:
    with pytest.raises(BadChannelSet, match=says):
        channel_set_of(config_map(**data))


def test_one_without_an_address_says_what_to_write() -> None:
    without = config_map()
    del without["data"]["bootstrapServers"]
    with pytest.raises(BadChannelSet, match="write either bootstrapServers or cluster"):
        channel_set_of(without)


def following(**data: str) -> dict[str, Any]:
    found = config_map(**data)
    kept = {name: value for name, value in found["data"].items() if name in data}
    return {**found, "data": kept}


def test_a_channel_set_may_follow_the_channels_of_a_cluster_which_is_then_where_they_are_written_to() -> None:
    plane = ClusterName(name="bmq", namespace="queues")
    found = channel_set_of(following(controlPlane="queues/bmq"))
    assert (found.control_plane, found.cluster, found.spool_bytes) == (plane, plane, 0)
    found = channel_set_of(following(controlPlane="queues/bmq", cluster="near"))
    assert (found.control_plane, found.cluster) == (plane, ClusterName(name="near"))
    found = channel_set_of(following(controlPlane="queues/bmq", bootstrapServers="kafka:9092"))
    assert (found.control_plane, found.cluster) == (plane, None)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"controlPlane": "a b"}, "controlPlane: 'a b': write the Cluster's name"),
        ({"controlPlane": "bmq", "channels.yaml": ONE}, "leave one out"),
        ({"controlPlane": "bmq", "cluster": "bmq", "bootstrapServers": "a:1"}, "write either"),
    ],
)
def test_what_cannot_be_followed_is_told(data: dict[str, str], says: str) -> None:
    with pytest.raises(BadChannelSet, match=says):
        channel_set_of(following(**data))
