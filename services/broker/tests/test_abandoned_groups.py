"""Which groups are nobody's any more, by what an image says of lanes."""

from dataclasses import replace

from bmq.metadata.image import Image, Lane
from bmq.naming.lanes import stored_group
from bmq_broker.hosted import is_abandoned


def test_a_group_is_abandoned_once_the_image_knows_that_its_lane_was_there_and_is_gone() -> None:
    before = Image()
    there = replace(before, lanes={"dev": Lane(name="dev", number=1, created_ms=0)}, next_lane=2)
    gone = replace(there, lanes={})
    again = replace(there, lanes={"dev": Lane(name="dev", number=2, created_ms=0)}, next_lane=3)
    group = stored_group("dev", 1, "g")
    assert [is_abandoned(image, group) for image in (before, there, gone, again)] == [False, False, True, True]
    assert not is_abandoned(there, stored_group("dev", 2, "g")), "the image may be older than the lane"
    assert not is_abandoned(gone, "g"), "the base's groups are nobody's lane's"
