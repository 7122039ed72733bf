"""What a broker takes of the cluster's configuration."""

from typing import cast

import pytest

from bmq.config.cluster_config import CLUSTER_KEYS
from bmq.errors import InvalidConfig
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import ConfigsChanged
from bmq.roles.controller import Metadata
from bmq_broker.cluster_values import ClusterValues
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.settings import BrokerSettings

LOW, HIGH = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


class Heard:
    """Metadata, as far as it is looked at here."""

    def __init__(self) -> None:
        self.image, self._number = Image(), 0

    def change(self, changes: dict[str, str | None]) -> None:
        self._number += 1
        record = ConfigsChanged(kind="broker", name="", changes=changes)
        self.image = apply(self.image, self._number, [record])


@pytest.mark.parametrize(("static", "held"), [({}, (6_000, 1_800_000)), ({LOW: "100", HIGH: "900"}, (100, 900))])
def test_members_join_by_what_held_at_the_start_where_a_stored_maximum_is_below_its_minimum(
    static: dict[str, str], held: tuple[int, int]
) -> None:
    metadata = Heard()
    values = ClusterValues(cast(Metadata, metadata), static, settings=BrokerSettings(), groups=GroupSettings())
    metadata.change({LOW: "7000", HIGH: "1", "group.max.size": "3"})
    groups = values.groups
    assert (groups.session_timeout_ms_min, groups.session_timeout_ms_max, groups.group_size_max) == (*held, 3)
    metadata.change({HIGH: "7001"})
    groups = values.groups
    assert (groups.session_timeout_ms_min, groups.session_timeout_ms_max, groups.group_size_max) == (7000, 7001, 3)


def test_no_group_has_more_members_than_begin_a_generation_in_one_turn_whatever_is_set() -> None:
    with pytest.raises(InvalidConfig, match=r"group\.max\.size"):
        CLUSTER_KEYS["group.max.size"].parse("1000000")
    metadata = Heard()
    values = ClusterValues(cast(Metadata, metadata), {}, settings=BrokerSettings(), groups=GroupSettings())
    metadata.change({"group.max.size": "1000000"})  # stored by an earlier version
    assert values.groups.group_size_max == GroupSettings().group_size_max
    metadata.change({"group.max.size": "10000"})
    assert values.groups.group_size_max == 10_000
