"""Columns that follow a subject of a schema registry while a job runs: where records come of a schema that was not met
before, whether there is a newer version is asked, before they are committed.

So a stream has the columns that a run would have which begins where the batch does. It is asked once for the ids that a
batch brings, not for each record, nor again for what is known. Only where their records have fields that become no
column it is asked again after a while: an id is one of several subjects, or a registry's answer was an older one, and
the newest version gets the fields later.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from bmq_spark.batches.records import Typing
from bmq_spark.ending import say
from bmq_spark.errors import BmqError, ProtocFailed
from bmq_spark.jobs.decoders import typing_of
from bmq_spark.options import JobOptions
from bmq_spark.values import RegisteredDecoder

ASKED_MAX: Final = 100_000
"""Ids that are remembered; a registry with more is asked again."""

AGAIN_S: Final = 60.0
"""For so long nobody asks again for the sake of fields that were left out."""

Check = Callable[[Typing, pa.Schema], None]
"""Raises BmqError where a table with that schema cannot get the columns."""


class NewestVersion:
    """The subject's newest version, as a job with these options comes to know of it."""

    def __init__(
        self, options: JobOptions, check: Check | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._check = check
        self._clock_s = clock_s
        self._asked: set[int] = set()
        self._again_s = 0.0
        self._told = ""
        """The last warning, which is not repeated."""

    def after(self, typing: Typing, writers: Mapping[int, int], have: pa.Schema) -> Typing | None:
        """What records are to be read by now that there are some of these `writers` (ids, and how many records of
        each); None: as before. `have`: the table's schema.

        A version that the table cannot take, or by which records of the one before could not be read, is told, and not
        taken: a running job keeps its columns. Raises RegistryUnavailable, ProtocFailed.
        """
        met = self._asked.issuperset(writers)
        if met and (self._clock_s() < self._again_s or not left_out(typing, writers)):
            return None
        found = self._found(typing, have, needed=not met)
        self._again_s = self._clock_s() + AGAIN_S
        if len(self._asked) + len(writers) > ASKED_MAX:
            self._asked.clear()
        self._asked.update(writers)
        if isinstance(typing.value, RegisteredDecoder) and typing.value.version:
            self._asked.add(typing.value.version)
        return None if _changes_nothing(found, typing) or self._is_refused(found, typing) else found

    def _is_refused(self, found: Typing, typing: Typing) -> bool:
        """Whether records that were read so far would go to the dead letters: writers are not all new at once."""
        if not isinstance(typing.value, RegisteredDecoder) or not isinstance(found.value, RegisteredDecoder):
            return False
        why = typing.value.refused_by(found.value)
        if why:
            self._warn(
                "the columns stay as they are while this runs, for the subject's newest version would refuse records "
                f"of the version that they follow: {why}: register one that reads both (a default), or start again "
                "when no writer has the former any more"
            )
        return bool(why)

    def _found(self, typing: Typing, have: pa.Schema, *, needed: bool) -> Typing:
        """Raises RegistryUnavailable and ProtocFailed where an answer is `needed`: what was answered before goes on
        without.
        """
        from bmq_spark.values.registry import RegistryUnavailable

        try:
            found = typing_of(self._options, have)
            if self._check is not None:
                self._check(found, have)
        except (RegistryUnavailable, ProtocFailed):
            if needed:
                raise
            return typing
        except BmqError as error:
            self._warn(f"the columns stay as they are, and what does not fit goes to the dead letters: {error}")
            return typing
        return found

    def _warn(self, what: str) -> None:
        if what != self._told:
            say(f"warning: {what}")
        self._told = what


def left_out(typing: Typing, writers: Mapping[int, int]) -> int:
    """How many of the writers' records have fields that become no column. Raises RegistryUnavailable."""
    value = typing.value
    if not isinstance(value, RegisteredDecoder):
        return 0
    return sum(records for number, records in writers.items() if value.leaves_out(number))


def _changes_nothing(found: Typing, typing: Typing) -> bool:
    """Nor does one that brings nothing and would lose what is read so far."""
    if found is typing or not isinstance(typing.value, RegisteredDecoder):
        return True
    assert isinstance(found.value, RegisteredDecoder)
    return found.columns == typing.columns and (
        typing.value.reads_as(found.value) or typing.value.loses_by(found.value)
    )
