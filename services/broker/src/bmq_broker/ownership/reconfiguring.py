"""Gives open partitions what their topics' configurations come to where the cluster's defaults have changed: some in
each turn of the loop, for a broker may have a hundred thousand of them open.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from bmq.metadata.image import Image
from bmq.metadata.topic_configs import TopicConfigs
from bmq.values import TopicPartition
from bmq_broker.partitions.partition import Partition

AT_ONCE: Final = 100
"""A configuration that nobody has worked out yet takes some 20 µs."""


class Reconfiguring:
    """One broker incarnation's."""

    def __init__(
        self, configs: TopicConfigs, partitions: Mapping[TopicPartition, Partition], *, image: Callable[[], Image]
    ) -> None:
        """`partitions` are those that are open; `image` gives the newest one."""
        self._configs = configs
        self._partitions = partitions
        self._image = image
        self._left: Iterator[TopicPartition] = iter(())
        self._next: asyncio.Handle | None = None

    def begin(self) -> None:
        """The defaults have changed (again). What opens from now on has them already."""
        self.end()
        self._left = iter(list(self._partitions))
        self._go_on()

    def end(self) -> None:
        """Those that are left keep what they have."""
        if self._next is not None:
            self._next.cancel()
        self._next = None

    def _go_on(self) -> None:
        image = self._image()
        some = list(islice(self._left, AT_ONCE))
        for tp in some:
            partition = self._partitions.get(tp)
            if partition is not None and tp.topic_id in image.topics:
                partition.config = self._configs.after_a_change(image, tp.topic_id, partition.config)
        self._next = asyncio.get_running_loop().call_soon(self._go_on) if some else None
