"""Channels of Databus as the controller decides on them."""

import pytest
from controller_committed import Committed

from bmq.errors import ChannelExists, ConfigsFull, InvalidRequest, UnknownChannel
from bmq.metadata.channels import changed_names, channel, channel_names, declared, revision
from bmq.metadata.codec import decode_snapshot, encode_snapshot
from bmq.metadata.derived import measure_configs
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import InvariantBroken, check_step
from bmq.metadata.records import AnyRecord
from bmq.values import Nonce
from bmq_controller.machine.channels import change_channel, create_channel, delete_channel
from bmq_controller.machine.limits import Limits


def with_channels(*names: str, spec: str = "{}") -> Committed:
    cluster = Committed()
    for name in names:
        cluster.commit(create_channel(cluster.image, 1_000, name, spec).records)
    return cluster


def test_each_change_has_a_number_of_its_own_which_outlives_the_channel() -> None:
    cluster = with_channels("orders", "bills")
    cluster.commit(change_channel(cluster.image, "orders", '{"enabled":false}').records)
    cluster.commit(delete_channel(cluster.image, "bills").records)
    assert (revision(cluster.image), list(channel_names(cluster.image))) == (4, ["orders"])
    cluster.commit(create_channel(cluster.image, 2_000, "bills", "{}").records)
    found = {name: channel(cluster.image, name) for name in channel_names(cluster.image)}
    assert {name: one and (one.spec, one.revision, one.created_ms) for name, one in found.items()} == {
        "orders": ('{"enabled":false}', 3, 1_000),
        "bills": ("{}", 5, 2_000),
    }


def test_what_changes_nothing_is_written_nowhere() -> None:
    cluster = with_channels("orders")
    assert change_channel(cluster.image, "orders", "{}").records == ()
    assert create_channel(cluster.image, 1, "bills", "{}", validate_only=True).records == ()
    assert change_channel(cluster.image, "orders", '{"a":1}', validate_only=True).records == ()


def test_what_a_channel_cannot_be_is_refused_with_the_limit_and_the_remedy() -> None:
    cluster = with_channels("orders")
    with pytest.raises(ChannelExists):
        create_channel(cluster.image, 1, "orders", "{}")
    for act in (lambda: change_channel(cluster.image, "x", "{}"), lambda: delete_channel(cluster.image, "x")):
        with pytest.raises(UnknownChannel):
            act()
    for name in ("", "..", "a/b", "A", "-a", "a" * 254):
        with pytest.raises(InvalidRequest, match="The channel name"):
            create_channel(cluster.image, 1, name, "{}")
    with pytest.raises(InvalidRequest, match="channels_max is 1"):
        create_channel(cluster.image, 1, "bills", "{}", limits=Limits(channels=1))
    with pytest.raises(InvalidRequest, match="spec has 14 bytes, and channel_bytes_max is 13"):
        create_channel(cluster.image, 1, "bills", '{"topic":"ä"}', limits=Limits(channel_bytes=13))
    with pytest.raises(ConfigsFull):
        create_channel(cluster.image, 1, "bills", "{}", limits=Limits(config_bytes=cluster.image.config_bytes))


def test_one_that_is_larger_than_is_allowed_by_now_may_become_smaller() -> None:
    cluster = with_channels("orders", spec='{"topic":"abcdef"}')
    small = Limits(channel_bytes=4)
    cluster.commit(change_channel(cluster.image, "orders", '{"topic":"abcde"}', limits=small).records)
    with pytest.raises(InvalidRequest, match="channel_bytes_max"):
        change_channel(cluster.image, "orders", '{"topic":"abcdef"}', limits=small)


def test_a_snapshot_has_them() -> None:
    cluster = with_channels("orders", spec='{"topic":"t"}')
    data = b"".join(encode_snapshot(cluster.image, entry_nonce=Nonce(bytes(16)), nonce=Nonce(bytes(16))))
    again, _ = decode_snapshot(data, what="a snapshot")
    assert (channel(again, "orders"), revision(again)) == (channel(cluster.image, "orders"), 1)
    assert changed_names(cluster.image, again) == frozenset()
    check_step(cluster.image, again)
    assert again.config_bytes == cluster.image.config_bytes == measure_configs({}, again.configs, {})


def test_an_image_tells_which_channels_are_others_than_in_one_before() -> None:
    cluster = with_channels("orders", "bills", "parts")
    before = cluster.image
    assert changed_names(before, before) == frozenset()
    cluster.commit(change_channel(cluster.image, "orders", '{"enabled":false}').records)
    cluster.commit(delete_channel(cluster.image, "bills").records)
    cluster.commit(create_channel(cluster.image, 1, "new", "{}").records)
    assert changed_names(before, cluster.image) == {"orders", "bills", "new"}


def test_a_change_without_a_number_above_the_last_one_is_no_successor() -> None:
    cluster = with_channels("orders", "bills")
    found = channel(cluster.image, "orders")
    assert found is not None
    with pytest.raises(InvariantBroken, match="channels are numbered in order"):
        check_step(cluster.image, _after(cluster.image, declared(found)[1:]))
    cluster.commit(change_channel(cluster.image, "orders", '{"enabled":false}').records)
    with pytest.raises(InvariantBroken, match="channels are numbered in order"):
        check_step(cluster.image, _after(cluster.image, declared(found)[:1]))


def _after(image: Image, records: tuple[AnyRecord, ...]) -> Image:
    return apply(image, image.position + 1, records)
