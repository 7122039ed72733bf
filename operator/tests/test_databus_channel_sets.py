"""ConfigMaps that name channels and a cluster: what is taken is taken by the sidecar, too; all else is told."""

from pathlib import Path

import pytest
from databus_of_a_test import CHANNELS, config_map

from bmq_databus.channels.files import channels_of
from bmq_operator.databus.channel_sets import (
    ASIDE_BYTES,
    CHANNELS_BYTES_MAX,
    SLACK_BYTES,
    BadChannelSet,
    ClusterName,
    channel_set_of,
)


def test_a_channel_set_says_where_its_cluster_is_and_how_much_its_channels_may_keep(tmp_path: Path) -> None:
    found = channel_set_of(config_map())
    assert (found.name, found.cluster, found.tokens_secret) == ("shop-channels", None, "")
    assert found.spool_bytes == (16 << 20) + ASIDE_BYTES + SLACK_BYTES, "of the one that accepts"
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
        ("# nothing\n", "has no Channel"),
        ("a: [", "is no YAML"),
        ("\x00", "is no YAML"),
        ("just text", "is no Channel"),
        ("{kind: Topic}", "document 1 is no Channel"),
        (f"{ONE}\n---\n{ONE}", "document 2: channel a stands there twice"),
        (f"{ONE}\n---\n{NAMED}", "document 2: channel a stands there twice"),
        (ONE.replace("metadata: {name: a}", "metadata: {name: a}, spec: {topic: 'a b'}"), "spec.topic"),
        (ONE.replace("{name: a}", "{name: a}, spec: {acknowledgement: soon}"), "spec.acknowledgement: 'soon'"),
        (LAUGHS, r"has an alias \(\*a\): write out"),
        ("[" * 100_000, "is nested too deep"),
        ("- a\n" * 30_000, "too many parts|is no Channel"),
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
        ({"controlPlane": "https://x"}, "'controlPlane' is no key of a channel set"),
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
