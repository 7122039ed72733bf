"""What the operator knows for a few seconds, shared by all resources. Values only; who needs one says how it is
read.
"""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bmq_operator.heirless import Heirless
from bmq_operator.intents import Intents
from bmq_operator.sharing import FRESH_S, Shared
from bmq_operator.silences import Silences
from bmq_operator.takers import Takers
from bmq_operator.waits import Waits

if TYPE_CHECKING:
    from bmq_resources.base import ObjectMeta

CLUSTERS_MAX = 1_000
TOPIC_TAKEN_S: Final = 4 * FRESH_S
"""Until the status of a Topic that took a topic, or of a Channel, is in every list."""
PLACE_TAKEN_S: Final = 60.0
"""Until the application that writes a table's place is in all that is read."""


@dataclass(slots=True)
class Known:
    """One for each operator."""

    clusters: "Shared[Any]" = field(default_factory=lambda: Shared(most=CLUSTERS_MAX))
    """Clusters by namespace and name, as bmq_operator.references sees them."""
    silences: Silences = field(default_factory=Silences)
    """Whose admin API does not answer."""
    heirless: Heirless = field(default_factory=Heirless)
    """Which brokers nobody could be drained to lately."""
    claims: "Shared[Any]" = field(default_factory=lambda: Shared(most=1))
    """Since when it is known which Topics stand for which topics, and that."""
    table_claims: "Shared[Any]" = field(default_factory=lambda: Shared(most=1))
    """Which Topics and ParquetSinks name which places of tables."""
    with_tables: "Shared[Set[str]]" = field(default_factory=lambda: Shared(most=CLUSTERS_MAX))
    """By namespace (empty: all): uids of resources of whose tables anything is there."""
    lane_claims: "Shared[Any]" = field(default_factory=lambda: Shared(most=1))
    """Which Lanes stand for which lanes."""
    channel_claims: "Shared[Any]" = field(default_factory=lambda: Shared(most=1))
    """Since when it is known which Channels stand for which channels, and that."""
    channels_taken: Takers[tuple[str, str, str]] = field(default_factory=lambda: Takers(kept_s=TOPIC_TAKEN_S))
    """Who took a channel of a Cluster lately."""
    taken: Takers[tuple[str, str, str]] = field(default_factory=lambda: Takers(kept_s=TOPIC_TAKEN_S))
    """Who took a topic of a Cluster lately."""
    places_taken: Takers[str] = field(default_factory=lambda: Takers(kept_s=PLACE_TAKEN_S))
    """Who began to write a table's place lately, by its digest."""
    slots: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """By Cluster: first node ids that were given to Lanes, by their uid, and may not be in their status yet."""
    stores_taken: "dict[tuple[str, ...], ObjectMeta]" = field(default_factory=dict)
    """Which Cluster began to run over a store, by its place: there may be nothing yet by which others could tell."""
    intents: Intents = field(default_factory=Intents)
    """What this operator surely did not make, by the intents of Topics, Lanes and Channels."""
    waits: Waits = field(default_factory=Waits)
    """For how long nodes of a lane wait for others of it, and those of a Cluster for it to be whole."""
    driverless: dict[str, int] = field(default_factory=dict)
    """By uid of an application that the Spark Operator is about to submit: since when there is no driver, in ms since
    1970."""
    lags: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    """By uid of a resource and table: when by the loop's clock it was asked how many records are not in it yet, and how
    many they were."""
    topics: dict[str, Any] = field(default_factory=dict)
    """Topics of clusters, by the URL of their admin API: see bmq_operator.topics.known."""
