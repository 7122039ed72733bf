"""Pools of brokers, in words and as a check: what is said to whoever pins a topic to one, or moves a partition out of
one. Pure.

A broker's registration says which pool it is in, a topic's configuration (`bmq.pool`) on which it belongs.
"""

from collections.abc import Collection, Mapping

from bmq.config.topic_config import POOL, pool_of
from bmq.errors import InvalidConfig
from bmq.metadata.image import Image, Topic
from bmq.values import NodeId, TopicId
from bmq_controller.machine.balance_model import SHARED_POOL
from bmq_controller.machine.placement import Incarnation, living_brokers

_NAMED_MAX = 10
"""How many brokers or pools a sentence names."""


def check_pool(image: Image, configs: Mapping[str, str], *, before: Mapping[str, str]) -> None:
    """Raises InvalidConfig where a topic is to be pinned to a pool of which no broker is there: a wrong name would
    leave it without owners.

    A pool that the topic is pinned to already (`before`) may be empty for the moment.
    """
    pool = pool_of(configs)
    if pool == SHARED_POOL or pool == pool_of(before):
        return
    known = sorted({node.pool for node in living_brokers(image)})
    if pool not in known:
        named = [name for name in known if name != SHARED_POOL]
        others = f"name one of {_listed(named)}" if named else "leave it empty"
        raise InvalidConfig(
            f"{POOL}={pool}: no broker of this pool is registered: start one with pool {pool}, or {others}"
        )


def may_be_inherited(image: Image, node_id: NodeId, heirs: Collection[str]) -> bool:
    """Whether a broker of one of the pools `heirs` could take over what this one owns: something of it, or nothing,
    which nobody misses.
    """
    if not heirs:
        return False
    if image.nodes[node_id].pool in heirs or image.owned_counts.get(node_id, 0) == 0:
        return True
    # It may still own what another pool's topics have not taken away from it yet.
    return any(
        pool_of(topic.configs) in heirs and any(meta.node_id == node_id for meta in topic.partitions)
        for topic in image.topics.values()
    )


class Heirless:
    """The silent brokers that may not be inherited. Asked again at each tick, and that is a look at every partition:
    known while no topic changes.
    """

    def __init__(self) -> None:
        self._found: dict[Incarnation, tuple[Mapping[TopicId, Topic], frozenset[str]]] = {}
        """From which topics and heirs it was found."""

    def among(self, image: Image, silent: Collection[Incarnation], heirs: frozenset[str]) -> set[Incarnation]:
        """Those of the silent brokers, by what `may_be_inherited` says of them. An incarnation keeps its pool."""
        self._found = {who: found for who in silent if (found := self._without_heir(image, who, heirs)) is not None}
        return set(self._found)

    def _without_heir(
        self, image: Image, who: Incarnation, heirs: frozenset[str]
    ) -> tuple[Mapping[TopicId, Topic], frozenset[str]] | None:
        found = self._found.get(who)
        if found is not None and found[0] is image.topics and found[1] == heirs:
            return found
        return None if may_be_inherited(image, who[0], heirs) else (image.topics, heirs)


def brokers_of(pool: str) -> str:
    """The members of a pool, for a sentence."""
    return "the brokers that are everybody's" if pool == SHARED_POOL else f"the brokers of {pool}"


def members_named(image: Image, pool: str) -> str:
    """What to do to name a broker of the pool, for a sentence."""
    ids = sorted(node.node_id for node in living_brokers(image) if node.pool == pool)
    return (
        f"name one of {_listed([str(node_id) for node_id in ids])}"
        if ids
        else f"none of {brokers_of(pool)} is there, start one"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")
