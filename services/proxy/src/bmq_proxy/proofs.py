"""Proves that produced batches can be read, before their owners get them: one that no reader can open would stop all of
them for good.

How much is proved says the topic (`bmq.validation`). Small batches are proved at once, as many as one turn of the loop
has time for; what takes longer, or decompresses to an unknown size, goes to a thread while later batches of the same
connection and partition wait behind it (bmq_proxy.appends). A proof that is cancelled holds its batch no longer.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final

from typing_extensions import Buffer

from bmq.config.topic_config import MESSAGE_BYTES_MAX, TopicConfig
from bmq.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidConfig, InvalidTimestamp
from bmq.fairness.opening import ORDINARY_BYTES_MAX, Opener
from bmq.metadata.image import Image
from bmq.metadata.topic_configs import TopicConfigs
from bmq.ports import Clock
from bmq.roles.controller import Metadata
from bmq.roles.owner import Proved
from bmq.values import TopicPartition
from bmq.wire.batch_headers import CONTROL_BIT, TRANSACTIONAL_BIT
from bmq.wire.batches import BatchHeader, check_crc, count_records, only_header, patched, validate_records
from bmq.wire.compression import Codec
from bmq.wire.limits import BATCH_HEADERS_MAX, BATCH_RECORDS_MAX
from bmq_proxy import metrics

INLINE_RECORDS_MAX: Final = 1_000
"""Walking their lengths takes some tenths of a ms: less than handing them to a thread and back is worth."""
INLINE_COMPRESSED_BYTES_MAX: Final = 4 << 10
INLINE_OPENED_BYTES_MAX: Final = 64 << 10
"""What is decompressed at once: a batch that turns out to be larger is opened in a thread."""
INLINE_HEADERS_MAX: Final = 200
"""Headers of a batch that is proved at once."""
INLINE_TURN_RECORDS: Final = 10_000
"""A request may bring thousands of small batches: of so many records one turn of the loop proves them, some ms, and the
others go to a thread."""
BATCH_RECORDS: Final = 10
OPENED_RECORDS: Final = 300
LOOKED_AT_RECORDS: Final = 200
"""As so many records counts a batch in itself, one that is compressed besides, and one whose records are all looked
at."""
REFUSED_BITS: Final = CONTROL_BIT | TRANSACTIONAL_BIT
ORDINARY_HEADERS_MAX: Final = 25_000
"""A batch with more is as large a one as one that decompresses to much (bmq.fairness.opening)."""

Proof = Proved | asyncio.Future[Buffer]
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
        """`cluster_configs` are those of the command line or file. `inline_records_max` 0: everything goes to a
        thread.
        """
        self._metadata = metadata
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._clock = clock
        self._configs = TopicConfigs(cluster_configs)
        self.opener = Opener()
        """It opens what clients of this proxy write, for whoever has to."""
        self._inline_records_max = inline_records_max
        self._inline_left = INLINE_TURN_RECORDS
        """In this turn of the loop."""
        self._under_way: set[asyncio.Task[Buffer]] = set()
        self._unsubscribe: Callable[[], None] = metadata.subscribe(self._image_changed)

    def begin(self, tp: TopicPartition, records: Buffer, *, party: Hashable = None, origin: Hashable = None) -> Proof:
        """Proves what the topic asks for. What the owner refuses by the header alone is left to it.

        `party` is the client's address and `origin` its connection: each address has its turns, and in those each of
        its connections.

        Raises CorruptBatch (its checksum does not hold), InvalidBatch (it does, and no reader could open the batch),
        BatchTooLarge (decompressed), InvalidTimestamp, UnsupportedCompression.
        """
        config = self._config(tp)
        header = only_header(records)
        if header is None or (config is not None and _is_left_to_the_owner(header, config)):
            return Proved(records, None)
        if is_whole := header.producer_id >= 0:
            # The owner would refuse it as well, but in another process only when what its producer sent behind it is
            # there, too, and was taken.
            check_crc(records, header)
        if config is None or config.validation == "header":
            return Proved(records, header, is_whole)
        is_plain = header.codec is Codec.NONE
        is_small = is_plain or header.size_bytes <= INLINE_COMPRESSED_BYTES_MAX
        if is_small and header.record_count <= self._inline_records_max and self._inline_left > 0:
            if self._inline_left == INLINE_TURN_RECORDS:
                self._loop.call_soon(self._next_turn)
            self._inline_left -= _weight(header, config, is_plain=is_plain)
            try:
                bytes_max = header.size_bytes if is_plain else INLINE_OPENED_BYTES_MAX
                batch = _proved(
                    config,
                    self._clock.now_ms,
                    records,
                    header,
                    decompressed_bytes_max=bytes_max,
                    headers_max=INLINE_HEADERS_MAX,
                )
                return Proved(batch, header, is_whole) if batch is records else Proved(batch, only_header(batch))
            except BatchTooLarge:
                pass  # for this place
        prove = partial(_proved, config, self._clock.now_ms)
        task = self._loop.create_task(
            self.opener.look(prove, records, header, party=party, sender=origin), name=f"prove a batch for {tp}"
        )
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def max_message_bytes(self, tp: TopicPartition) -> int:
        """How large a batch of the topic may be, as this node knows it; no bound where it does not."""
        config = self._config(tp)
        return MESSAGE_BYTES_MAX if config is None else config.max_message_bytes

    async def close(self) -> None:
        """Ends what is being proved."""
        unsubscribe, self._unsubscribe = self._unsubscribe, _nothing
        unsubscribe()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _next_turn(self) -> None:
        self._inline_left = INLINE_TURN_RECORDS

    def _config(self, tp: TopicPartition) -> TopicConfig | None:
        """None: the topic is gone, or a newer version has set what this one cannot read; its owner decides."""
        if (known := self._configs.known(tp.topic_id)) is not None:
            return known
        image = self._metadata.image
        if tp.topic_id not in image.topics:
            return None
        try:
            return self._configs.of(image, tp.topic_id)
        except InvalidConfig:
            return None

    def _image_changed(self, old: Image, new: Image) -> None:
        self._configs.image_changed(old, new)


def _nothing() -> None:
    """There is nothing to unsubscribe from any more."""


def _is_left_to_the_owner(header: BatchHeader, config: TopicConfig) -> bool:
    """Whether it is refused anyway, so that opening it would be work for nothing."""
    return header.size_bytes > config.max_message_bytes or is_refused_anywhere(header)


def is_refused_anywhere(header: BatchHeader) -> bool:
    """Whether each owner refuses it, however its topic is configured."""
    return not 0 < header.record_count <= BATCH_RECORDS_MAX or bool(header.attributes & REFUSED_BITS)


def _weight(header: BatchHeader, config: TopicConfig, *, is_plain: bool) -> int:
    """As how many records the proof of a small batch counts."""
    opened = 0 if is_plain else OPENED_RECORDS
    return BATCH_RECORDS + header.record_count + opened + (LOOKED_AT_RECORDS if config.validation == "records" else 0)


def _proved(
    config: TopicConfig,
    now_ms: Callable[[], int],
    batch: Buffer,
    header: BatchHeader,
    /,
    *,
    decompressed_bytes_max: int,
    headers_max: int | None = None,
) -> Buffer:
    """The batch, or a copy with the largest timestamp that its records have. Blocking. Raises as `Proofs.begin`.

    `headers_max`: by default what goes with an ordinary batch, or with a large one, of which `decompressed_bytes_max`
    tells.
    """
    if headers_max is None:
        headers_max = ORDINARY_HEADERS_MAX if decompressed_bytes_max <= ORDINARY_BYTES_MAX else BATCH_HEADERS_MAX
    try:
        if config.validation == "lengths":
            count_records(batch, header, decompressed_bytes_max=decompressed_bytes_max)
            return batch
        summary = validate_records(
            batch, header, decompressed_bytes_max=decompressed_bytes_max, headers_max=headers_max
        )
    except CorruptBatch as error:
        check_crc(batch, header)
        metrics.UNREADABLE_BATCHES.inc()
        raise InvalidBatch(f"no reader could open this batch, so it is not taken: {error}") from error.with_traceback(
            None
        )  # which has what was opened
    if config.log_append_time or header.is_log_append_time:
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
