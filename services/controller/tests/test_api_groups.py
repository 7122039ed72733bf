"""How a group is written as a page. What is in it is in cli/tests/test_admin_api.py."""

import json

import pytest

from bmq_controller.api.coordinators import GroupOffset
from bmq_controller.api.groups import OFFSETS_AT_ONCE, encode_all, encode_group

TRICKY = '"offsets":[] \\"offsets\\":[], ä'


@pytest.mark.parametrize("count", [0, 1, OFFSETS_AT_ONCE, 2 * OFFSETS_AT_ONCE + 1])
def test_a_group_that_is_encoded_in_parts_reads_as_one_that_is_encoded_at_once(count: int) -> None:
    members = [{"member_id": TRICKY, "client_id": TRICKY, "client_host": "/127.0.0.1"}]
    found = {"group_state": "Stable", "protocol_type": TRICKY, "protocol_data": "range", "members": members}
    offsets = [GroupOffset(topic=TRICKY, partition=n, committed_offset=n, metadata=TRICKY, lag_records=n, lag_seconds=n / 3) for n in range(count)]
    in_parts = encode_group(TRICKY, found, offsets)
    assert in_parts == encode_all(TRICKY, found, offsets, shown=offsets)
    assert len(json.loads(in_parts)["offsets"]) == count
