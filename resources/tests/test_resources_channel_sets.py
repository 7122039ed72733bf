"""What channels of one sidecar keep to together."""

from dataclasses import dataclass
from typing import Any

import pytest

from bmq_resources.channel_sets import MANNERS_MAX, BadChannels, channels_in, why_lost


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


@dataclass(frozen=True)
class Links:
    """A channel of which nothing counts but where its dead letters go; who asks counts."""

    to: str
    asked: list[str]
    manners: tuple[str, ...] = ()

    @property
    def dead_letter(self) -> str:
        self.asked.append(self.to)
        return self.to


def linked(asked: list[str], **to: str) -> dict[str, Links]:
    return {name: Links(one, asked) for name, one in to.items()}


def test_dead_letters_that_lead_nowhere_are_told_of_each_channel_on_their_way() -> None:
    found = why_lost(linked([], a="b", b="c", c="b", d="e", e="x", f="g", g="", h="h", i="a"))
    circle = "channel b: its dead letters go in a circle (b → c → b): leave deadLetter out of one"
    missing = "channel e: its deadLetter x is no channel here: write one, or leave it out"
    alone = "channel h: its dead letters go in a circle (h → h): leave deadLetter out of one"
    assert found == {"a": circle, "b": circle, "c": circle, "i": circle, "d": missing, "e": missing, "h": alone}


@pytest.mark.parametrize("closes", [True, False])
def test_however_many_channels_hang_together_each_is_looked_at_once_and_few_are_told(closes: bool) -> None:
    count, asked = 5_000, list[str]()
    ends = "c0000" if closes else "nowhere"
    ring = {f"c{n:04}": f"c{n + 1:04}" for n in range(count - 1)} | {f"c{count - 1:04}": ends}
    found = why_lost(linked(asked, **ring))
    assert len(asked) == len(found) == count
    [why] = set(found.values())
    assert len(why) < 300
    if closes:
        assert "(c0000 → c0001 →" in why and "→ c0009 → 4990 more → c0000)" in why


def test_clusters_count_as_manners_and_channels_that_say_the_same_share_one() -> None:
    targets = [{"topic": "t", "bootstrapServers": f"{n}:9092"} for n in range(4)]
    both = [channel(f"c{n}", targets=targets) for n in range(5)]
    assert len(channels_in([*both, channel("d")])) == 6
    more = [channel(f"e{n}", partitioner=one) for n, one in enumerate(("random", "murmur2", "consistent", "fnv1a"))]
    with pytest.raises(BadChannels, match="9 manners"):
        channels_in([*both, channel("d"), *more])
