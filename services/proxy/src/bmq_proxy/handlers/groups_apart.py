"""What is asked about many groups, some coordinators at a time: so much is said at once."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from bmq.errors import BmqError
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy


async def by_coordinators(
    proxy: Proxy, call: Call, asked: Sequence[str], *, at_once: int
) -> AsyncIterator[Sequence[str]]:
    """The groups of as many coordinators as are asked at once, then those of the next; all where nobody knows which
    those are: who asks them is told why.
    """
    topic = None
    if len(asked) > at_once:
        with contextlib.suppress(BmqError):
            topic = await proxy.coordinators.offsets_topic(call)
    if topic is None:
        yield asked
        return
    shares: dict[int, list[str]] = {}
    pace = proxy.bulk.pace(call)
    for group_id in asked:
        shares.setdefault(proxy.coordinators.partition_of(group_id, topic), []).append(group_id)
        await pace.step(1 + len(group_id) // 200)
    each = list(shares.values())
    for first in range(0, len(each), at_once):
        yield [group_id for share in each[first : first + at_once] for group_id in share]
