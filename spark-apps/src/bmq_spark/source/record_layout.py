"""Where the fields of many records lie: their varints read for all records at once, by numpy, into arrays of positions.
Pure; makes no objects.

A record's length says where the next one begins, so finding them is the one thing that goes record by record, or in
lockstep through many batches. What does not add up raises Misfit, which says nothing more:
`bmq.wire.batches.iterate_records` tells what is wrong with which record.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from bmq.errors import CorruptBatch
from bmq.wire.limits import RECORD_HEADERS_MAX
from bmq.wire.records import read_signed_varint

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_VARINT_BYTES_MAX: Final = 10
_LOCKSTEP_PAYS: Final = 100
"""A step through all batches costs as much as so many records one by one."""


class Misfit(Exception):
    """The bytes are not records as their batches' headers promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Where the fields of n records lie, in order. Positions are bytes of the buffer; a length of -1 is null."""

    timestamp_delta: Ints
    offset_delta: Ints
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    header_count: Ints
    header_start: Ints
    end: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFields:
    """Where all record headers lie, by record and place within it: positions and lengths (-1: null) of their keys and
    values.
    """

    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints


def find_records(
    data: bytes | bytearray, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> tuple[Ints, Ints]:
    """(where each record's bytes after its length begin, where they end) for sections that hold so many records each.
    Raises Misfit.
    """
    steps = max(counts, default=0)
    if sum(counts) > steps * _LOCKSTEP_PAYS:
        return _find_in_lockstep(
            np.frombuffer(data, np.uint8),
            np.array(starts, np.int64),
            np.array(ends, np.int64),
            np.array(counts, np.int64),
        )
    return _find_one_by_one(data, starts, ends, counts)


def read_fields(data: Bytes, begin: Ints, end: Ints) -> Fields:
    """The fields of records that lie from `begin` to `end`. Raises Misfit."""
    try:
        timestamp_delta, at = _varints(data, begin + 1)
        offset_delta, at = _varints(data, at)
        key_length, key_start = _varints(data, at)
        value_length, value_start = _varints(data, _behind(key_start, key_length, end))
        header_count, header_start = _varints(data, _behind(value_start, value_length, end))
    except IndexError:
        raise Misfit from None
    left = end - header_start
    if (left < 0).any() or (header_count < 0).any() or (header_count > np.minimum(left // 2, RECORD_HEADERS_MAX)).any():
        raise Misfit
    if (left[header_count == 0] != 0).any():
        raise Misfit
    return Fields(
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_length=key_length,
        value_start=value_start,
        value_length=value_length,
        header_count=header_count,
        header_start=header_start,
        end=end,
    )


def read_headers(data: Bytes, fields: Fields) -> HeaderFields:
    """The record headers of all records, those of the first record first. Raises Misfit."""
    records = np.flatnonzero(fields.header_count)
    counts = fields.header_count[records]
    first = np.cumsum(counts) - counts
    found = np.empty((4, int(counts.sum())), np.int64)
    at, end = fields.header_start[records], fields.end[records]
    try:
        for place in range(int(counts.max(initial=0))):
            going = counts > place
            if not going.all():
                if (at[~going] != end[~going]).any():
                    raise Misfit
                at, end, counts, first = at[going], end[going], counts[going], first[going]
            key_length, key_start = _varints(data, at)
            if (key_length < 0).any():
                raise Misfit
            value_length, value_start = _varints(data, _behind(key_start, key_length, end))
            at = _behind(value_start, value_length, end)
            found[:, first + place] = key_start, key_length, value_start, value_length
    except IndexError:
        raise Misfit from None
    if (at != end).any():
        raise Misfit
    return HeaderFields(key_start=found[0], key_length=found[1], value_start=found[2], value_length=found[3])


def _find_one_by_one(
    data: bytes | bytearray, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> tuple[Ints, Ints]:
    """Walks from length to length; the lengths are judged afterwards, all at once."""
    finish = array("q")
    finished = finish.append
    before = array("q")
    view = memoryview(data)
    try:
        for start, section_end, count in zip(starts, ends, counts, strict=True):
            if not count:
                continue
            before.append(start)
            before_next = len(finish)
            at = start
            for _ in range(count):
                byte = data[at]
                if byte < 0x80:
                    at += (byte >> 1) + 1
                elif (second := data[at + 1]) < 0x80:
                    at += ((byte & 0x7F | second << 7) >> 1) + 2
                else:
                    length, at = read_signed_varint(view, at)
                    at += length
                finished(at)
            if at != section_end:
                raise Misfit
            before.extend(finish[before_next:-1])
    except (IndexError, CorruptBatch):
        raise Misfit from None
    finish_at = np.frombuffer(finish, np.int64)
    lengths, begin = _varints(np.frombuffer(data, np.uint8), np.frombuffer(before, np.int64))
    if (lengths < 0).any() or (begin + lengths != finish_at).any():
        raise Misfit
    return begin, finish_at


def _find_in_lockstep(data: Bytes, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """One record of every batch at each step: the batches that have the most records come first, so that those still
    going are a slice.
    """
    order = np.argsort(-counts, kind="stable")
    at, section_end, wanted = starts[order], ends[order], counts[order]
    first = (np.cumsum(counts) - counts)[order]
    begin, finish = np.empty(int(counts.sum()), np.int64), np.empty(int(counts.sum()), np.int64)
    going = np.searchsorted(-wanted, -np.arange(int(wanted[0])), side="left")
    try:
        for step, active in enumerate(going.tolist()):
            length, body = _varints(data, at[:active])
            done = body + length
            if (length < 0).any() or (done > section_end[:active]).any():
                raise Misfit
            place = first[:active] + step
            begin[place] = body
            finish[place] = done
            at[:active] = done
    except IndexError:
        raise Misfit from None
    if (at != section_end).any():
        raise Misfit
    return begin, finish


def _behind(start: Ints, length: Ints, end: Ints) -> Ints:
    """The position after fields of these lengths (-1: null). Raises Misfit where they do not lie before `end`."""
    if (length < -1).any() or (length > end - start).any():
        raise Misfit
    return start + np.maximum(length, 0)


def _varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """(zigzag varints, the positions after them). Raises Misfit (more than ten bytes), IndexError (beyond the
    buffer).
    """
    byte = data[at]
    raw = byte.astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte >= 0x80)
    if more.size:
        raw[more] &= np.uint64(0x7F)
        for index in range(1, _VARINT_BYTES_MAX):
            byte = data[at[more] + index]
            raw[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            after[more] += 1
            more = more[byte >= 0x80]
            if not more.size:
                break
        else:
            raise Misfit
    # Two's complement: 0 - 1 is all ones in uint64.
    return ((raw >> np.uint64(1)) ^ (np.uint64(0) - (raw & np.uint64(1)))).view(np.int64), after
