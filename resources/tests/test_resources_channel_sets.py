"""What channels of one sidecar keep to together."""

from typing import Any

import pytest

from bmq_resources.channel_sets import MANNERS_MAX, BadChannels, channels_in


def channel(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "Channel", "metadata": {"name": name}, "spec": spec}


def test_channels_are_known_by_what_applications_call_them() -> None:
    found = channels_in([channel("a"), None, channel("b", channelName="c", topic="t")])
    assert {name: one.topic_name for name, one in found.items()} == {"a": "a", "c": "t"}


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([], "there is no Channel"),
        ([None], "there is no Channel"),
        (["a"], "document 1 has no kind"),
        ([channel("a"), {"kind": "Topic"}], "document 2 is of kind 'Topic'"),
        ([channel("a"), channel("b", channelName="a")], "document 2: channel a stands there twice"),
        ([channel("a", topc="b")], "document 1, spec.topc: 'b'"),
        ([channel("a", topic="a b")], "document 1, spec.topic: "),
        ([channel("a", targets=[{"topic": "b"}, {"topic": "b c"}])], "document 1, spec.targets[1].topic: "),
        ([channel("a", deadLetter="b")], "channel a: its deadLetter b is no channel here"),
        ([channel("a", deadLetter="b"), channel("b", deadLetter="a")], "go in a circle (a → b → a)"),
        ([channel(f"c{n}", batching={"lingerMs": n}) for n in range(MANNERS_MAX + 1)], "are sent in 9 manners"),
    ],
)
def test_what_no_sidecar_serves_is_told(documents: list[Any], says: str) -> None:
    with pytest.raises(BadChannels) as told:
        channels_in(documents)
    assert says in str(told.value)


def test_clusters_count_as_manners_and_channels_that_say_the_same_share_one() -> None:
    targets = [{"topic": "t", "bootstrapServers": f"{n}:9092"} for n in range(4)]
    both = [channel(f"c{n}", targets=targets) for n in range(5)]
    assert len(channels_in([*both, channel("d")])) == 6
    more = [channel(f"e{n}", partitioner=one) for n, one in enumerate(("random", "murmur2", "consistent", "fnv1a"))]
    with pytest.raises(BadChannels, match="9 manners"):
        channels_in([*both, channel("d"), *more])
