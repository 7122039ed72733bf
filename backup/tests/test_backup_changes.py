"""Which records a copy that was begun before them ends after."""

from typing import get_args

from bmq.metadata.records import AnyRecord
from bmq_backup.changes import BEGIN_ANEW, HARMLESS_OR_LOOKED_AT


def test_of_every_kind_of_record_it_is_said_what_a_copy_does_about_it() -> None:
    assert set(HARMLESS_OR_LOOKED_AT) | set(BEGIN_ANEW) == set(get_args(AnyRecord))
    assert not set(HARMLESS_OR_LOOKED_AT) & set(BEGIN_ANEW)
