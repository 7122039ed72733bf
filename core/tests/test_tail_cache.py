"""What is kept of followed tails."""

import pytest
from internal_under_test import tp

from bmq.internal.calls.follow_calls import decode_news, encode_news
from bmq.internal.framing.frames import Frame
from bmq.internal.tails.tail_cache import CachedTail, TailCache
from bmq.roles.owner import TailAnswer
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq.wire.records import Record, build_batch


def batch_at(offset: int, size_bytes: int) -> bytes:
    return build_batch([Record(0, 1_000, None, bytes(size_bytes))], base_offset=offset)


def answer_with(one: TopicPartition, *batches: bytes) -> TailAnswer:
    return TailAnswer(
        tp=one,
        leader_epoch=LeaderEpoch(1),
        high_watermark=Offset(1 << 40),
        batches=tuple(batches),
        size_bytes=sum(map(len, batches)),
    )


def test_the_cache_counts_what_it_holds_and_keeps_the_newest_answer_whole() -> None:
    cache = TailCache(1_000)
    one, other = CachedTail(tp(0), Offset(0)), CachedTail(tp(1), Offset(0))
    for offset in range(10):
        cache.add(
            [(one, answer_with(tp(0), batch_at(offset, 200))), (other, answer_with(tp(1), batch_at(offset, 100)))]
        )
        assert cache.held_bytes <= 1_000
    assert (one.end, other.end) == (10, 10)
    assert one.start == other.start == 8
    cache.add([(one, answer_with(tp(0), batch_at(10, 5_000)))])
    assert (one.start, one.end, other.start, other.end) == (10, 11, 10, 10)
    assert cache.held_bytes > 5_000


@pytest.mark.parametrize(("large_bytes", "is_copied"), [(1 << 20, True), (32 << 10, False)])
def test_a_small_batch_does_not_keep_a_large_frame_of_news_alive(large_bytes: int, is_copied: bool) -> None:
    """Its reader may hold it as long as a socket takes it, and counts its bytes alone."""
    given = [
        TailAnswer(tp=tp(number), batches=(bytes(size),), size_bytes=size)
        for number, size in enumerate((100, large_bytes))
    ]
    news = encode_news(list(enumerate(given)))
    attachments = memoryview(b"".join(news.attachments))
    frame = Frame(kind=0, api_key=0, correlation_id=0, header=memoryview(news.header), attachments=attachments)
    (_, small), (_, large) = decode_news(frame, tp)
    [batch] = small.batches
    assert (bytes(batch), batch.obj is not attachments.obj) == (bytes(100), is_copied)
    [batch] = large.batches
    assert batch.obj is attachments.obj
