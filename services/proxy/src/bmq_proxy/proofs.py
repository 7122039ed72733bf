"""Proves that produced batches can be read, before their owners get them: one that no reader can open would stop all of them for good.

How much is proved says the topic (`bmq.validation`). Small batches are proved at once; what takes longer, or decompresses to an
unknown size, goes to a thread while later batches of the same connection and partition wait behind it (bmq_proxy.appends).
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidConfig, InvalidTimestamp
from bmq.metadata.image import Image
from bmq.metadata.topic_configs import CLUSTER_WIDE, TopicConfigs
from bmq.opening import Opener
from bmq.ports import Clock
from bmq.roles.controller import Metadata
from bmq.topic_config import LOG_APPEND_TIME, TopicConfig
from bmq.values import TopicPartition
from bmq.wire.batches import BatchHeader, check_crc, count_records, patched, split, validate_records
from bmq.wire.compression import Codec
from bmq.wire.limits import BATCH_RECORDS_MAX
from bmq_proxy import metrics

INLINE_RECORDS_MAX: Final = 1_000
"""Walking their lengths takes some tenths of a ms: less than handing them to a thread and back is worth."""
INLINE_COMPRESSED_BYTES_MAX: Final = 4 << 10
INLINE_OPENED_BYTES_MAX: Final = 64 << 10
"""What is decompressed at once: a batch that turns out to be larger is opened in a thread."""

Proof = Buffer | asyncio.Future[Buffer]
"""The batch to send on, which may be a corrected copy, or a future of it that raises as `Proofs.begin`."""


class Proofs:
    """The proofs of one proxy."""

    def __init__(
        self,
        metadata: Metadata,
        cluster_configs: Mapping[str, str],
        *,
        clock: Clock,
        inline_records_max: int = INLINE_RECORDS_MAX,
    ) -> None:
        """`cluster_configs` are those of the command line or file. `inline_records_max` 0: everything goes to a thread."""
        self._metadata = metadata
        self._clock = clock
        self._configs = TopicConfigs(cluster_configs)
        self._opener = Opener()
        self._inline_records_max = inline_records_max
        self._under_way: set[asyncio.Task[Buffer]] = set()
        self._unsubscribe: Callable[[], None] = metadata.subscribe(self._image_changed)

    def begin(self, tp: TopicPartition, records: Buffer) -> Proof:
        """Proves what the topic asks for. What the owner refuses by the header alone is left to it.

        Raises CorruptBatch (its checksum does not hold), InvalidBatch (it does, and no reader could open the batch), BatchTooLarge
        (decompressed), InvalidTimestamp, UnsupportedCompression.
        """
        config = self._config(tp)
        if config is None or config.validation == "header":
            return records
        headers = split(records)
        if len(headers) != 1 or _is_left_to_the_owner(headers[0], config):
            return records
        header = headers[0]
        prove = partial(_proved, config, self._clock.now_ms)
        if header.record_count <= self._inline_records_max:
            if header.codec is Codec.NONE:
                return prove(records, header, decompressed_bytes_max=header.size_bytes)
            if header.size_bytes <= INLINE_COMPRESSED_BYTES_MAX:
                try:
                    return prove(records, header, decompressed_bytes_max=INLINE_OPENED_BYTES_MAX)
                except BatchTooLarge:
                    pass  # for this place
        task = asyncio.get_running_loop().create_task(self._opener.look(prove, records, header), name=f"prove a batch for {tp}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def close(self) -> None:
        """Ends what is being proved."""
        unsubscribe, self._unsubscribe = self._unsubscribe, _nothing
        unsubscribe()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _config(self, tp: TopicPartition) -> TopicConfig | None:
        """None: the topic is gone, or a newer version has set what this one cannot read; its owner decides."""
        image = self._metadata.image
        if tp.topic_id not in image.topics:
            return None
        try:
            return self._configs.of(image, tp.topic_id)
        except InvalidConfig:
            return None

    def _image_changed(self, old: Image, new: Image) -> None:
        defaults_changed = old.configs.get(CLUSTER_WIDE) != new.configs.get(CLUSTER_WIDE)
        if old.topics is not new.topics or defaults_changed:
            self._configs.image_changed(old, new, defaults_changed=defaults_changed)


def _nothing() -> None:
    """There is nothing to unsubscribe from any more."""


def _is_left_to_the_owner(header: BatchHeader, config: TopicConfig) -> bool:
    """Whether it is refused anyway, so that opening it would be work for nothing."""
    return not 0 < header.record_count <= BATCH_RECORDS_MAX or header.size_bytes > config.max_message_bytes or header.is_control


def _proved(config: TopicConfig, now_ms: Callable[[], int], batch: Buffer, header: BatchHeader, /, *, decompressed_bytes_max: int) -> Buffer:
    """The batch, or a copy with the largest timestamp that its records have. Blocking. Raises as `Proofs.begin`."""
    try:
        if config.validation == "lengths":
            count_records(batch, header, decompressed_bytes_max=decompressed_bytes_max)
            return batch
        summary = validate_records(batch, header, decompressed_bytes_max=decompressed_bytes_max)
    except CorruptBatch as error:
        check_crc(batch, header)
        metrics.UNREADABLE_BATCHES.inc()
        raise InvalidBatch(f"no reader could open this batch, so it is not taken: {error}") from error
    if config.timestamp_type == LOG_APPEND_TIME or header.is_log_append_time:
        return batch
    if 0 <= summary.min_timestamp_ms < now_ms() - config.timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"a record's timestamp {summary.min_timestamp_ms} lies further behind the clock than the "
            f"{config.timestamp_before_max_ms} ms that message.timestamp.before.max.ms allows"
        )
    if summary.max_timestamp_ms == header.max_timestamp_ms:
        return batch
    check_crc(batch, header)  # the copy's checksum must not vouch for what was damaged on its way
    return patched(
        batch,
        header,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        max_timestamp_ms=summary.max_timestamp_ms,
    )
