"""The storage protocols hold in every interleaving of a small bound, and each rule is needed: without it something is
lost.

Larger bounds, by hand: `python -c "import stream_model as m; print(m.check(m.Bounds(sealers=1, in_flight=3, last=4)))"`
(3 M states, minutes).
"""

from dataclasses import replace
from typing import Any

import flatlog_model
import listing_model
import pytest
import stream_model
import takeover_model
from listing_model import Listing

STREAM_BOUNDS = [
    stream_model.Bounds(sealers=1, last=2),
    stream_model.Bounds(sealers=2, last=1),
    stream_model.Bounds(sealers=2, last=1, ahead=2, resends=0),
    stream_model.Bounds(sealers=1, last=2, asks=True),
]


@pytest.mark.parametrize("bounds", STREAM_BOUNDS, ids=str)
def test_no_interleaving_of_a_stream_loses_what_was_acknowledged(bounds: stream_model.Bounds) -> None:
    outcome = stream_model.check(bounds)
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.slow
def test_no_interleaving_of_a_longer_stream_with_two_sealers_loses_what_was_acknowledged() -> None:
    outcome = stream_model.check(stream_model.Bounds(sealers=2, last=2))
    assert outcome.wrong is None, str(outcome)


@pytest.mark.parametrize("name", stream_model.SIMPLER)
def test_a_stream_protocol_that_looks_simpler_loses_or_reads_a_hole(name: str) -> None:
    bounds = stream_model.Bounds(sealers=2, last=2, ahead=2 if name == "adopt a seal above a hole" else 1)
    if "look-at-all" in stream_model.SIMPLER[name]:
        bounds = stream_model.Bounds(sealers=1, last=2, asks=True)
    outcome = stream_model.check(bounds, without=stream_model.SIMPLER[name])
    assert outcome.wrong is not None, f"to {name} is enough?"
    assert len(outcome.trace) <= 14


def test_every_rule_of_a_stream_is_missing_from_a_simpler_protocol() -> None:
    assert {rule for rules in stream_model.SIMPLER.values() for rule in rules} == set(stream_model.RULES)


def test_no_interleaving_of_a_flat_log_drops_an_acknowledged_entry() -> None:
    outcome = flatlog_model.check(flatlog_model.Bounds(lost=0))
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.slow
def test_no_interleaving_of_a_flat_log_with_losses_drops_an_acknowledged_entry() -> None:
    outcome = flatlog_model.check(flatlog_model.Bounds(lost=1))
    assert outcome.wrong is None, str(outcome)


@pytest.mark.parametrize("rule", flatlog_model.RULES)
def test_each_rule_of_a_flat_log_is_needed(rule: str) -> None:
    assert flatlog_model.check(flatlog_model.Bounds(lost=0), without=rule).wrong is not None


ALONE = flatlog_model.Bounds(
    tries=(4, 1), lost=0, listing=flatlog_model.Listing.NAMES_FIRST, gives_up=False, copies=False, turns=1
)
"""A writer that goes through four entries while another makes a claim; nothing arrives twice."""


@pytest.mark.parametrize(
    "bounds",
    [
        ALONE,
        replace(ALONE, listing=flatlog_model.Listing.NAMES_AGAIN, turns=9),
        flatlog_model.Bounds(tries=(2, 2), lost=0, listing=flatlog_model.Listing.NAMES_AGAIN, gives_up=False),
        pytest.param(
            replace(ALONE, listing=flatlog_model.Listing.NAMES_AGAIN, turns=9, copies=True), marks=pytest.mark.slow
        ),
        pytest.param(flatlog_model.Bounds(lost=0, listing=flatlog_model.Listing.NAMES_FIRST), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_no_listing_that_takes_time_lets_a_claim_in_the_deleted_past_count(bounds: flatlog_model.Bounds) -> None:
    outcome = flatlog_model.check(bounds)
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 500


@pytest.mark.parametrize("rule", flatlog_model.RULES_OF_LISTINGS)
def test_each_rule_of_a_flat_log_about_listings_is_needed_where_names_come_first(rule: str) -> None:
    assert flatlog_model.check(ALONE, without=rule).wrong is not None


@pytest.mark.parametrize("more", [{"turns": 2}, pytest.param({"copies": True}, marks=pytest.mark.slow)], ids=str)
def test_where_names_come_first_two_turns_of_a_log_or_one_and_a_late_copy_deceive_who_claims(
    more: dict[str, Any],
) -> None:
    """What docs/stores.md names as left: whole turns of the log, each within one listing."""
    assert flatlog_model.check(replace(ALONE, **more)).wrong is not None


@pytest.mark.parametrize("bounds", [takeover_model.STREAMS, takeover_model.MANIFESTS])
def test_no_interleaving_of_a_take_over_loses_what_was_acknowledged(bounds: takeover_model.Bounds) -> None:
    outcome = takeover_model.check(bounds)
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", takeover_model.RULES)
def test_each_rule_of_a_take_over_is_needed(rule: str) -> None:
    assert any(
        takeover_model.check(bounds, without=rule).wrong is not None
        for bounds in (takeover_model.MANIFESTS, takeover_model.STREAMS)
    )


ONE_BY_ONE = (Listing.MOMENT, Listing.PAGES, Listing.NAMES_AGAIN)
"""Listings that are as good as keys read one by one, upwards: they never pass over a row that grows above while it is
deleted below."""


@pytest.mark.parametrize(
    "listing", [Listing.MOMENT, pytest.param(Listing.PAGES, marks=pytest.mark.slow), Listing.NAMES_AGAIN]
)
def test_no_listing_of_keys_read_upwards_ends_a_stream_below_what_is_acknowledged(listing: Listing) -> None:
    outcome = listing_model.check(listing_model.Bounds(listing=listing))
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("listing", ONE_BY_ONE)
@pytest.mark.parametrize("more", [{"copies": 1}, {"seals": 2}], ids=str)
def test_nor_with_more_that_arrives_late(listing: Listing, more: dict[str, int]) -> None:
    outcome = listing_model.check(listing_model.Bounds(listing=listing, **more))
    assert outcome.wrong is None, str(outcome)


def test_no_listing_of_names_first_and_sizes_later_ends_a_stream_below_what_is_acknowledged_where_it_shows_data() -> (
    None
):
    outcome = listing_model.check(listing_model.Bounds(listing=Listing.NAMES_FIRST, from_nothing=False))
    assert outcome.wrong is None, str(outcome)


@pytest.mark.slow
def test_nor_does_a_listing_in_any_order() -> None:
    outcome = listing_model.check(listing_model.Bounds(listing=Listing.ANY_ORDER, from_nothing=False))
    assert outcome.wrong is None, str(outcome)


@pytest.mark.slow
def test_where_names_come_first_who_deletes_twice_all_that_was_listed_is_taken_for_one_that_never_wrote() -> None:
    """What docs/stores.md names as left: two whole turns of the stream, each within one listing, and a seal that was
    under way since before.
    """
    outcome = listing_model.check(listing_model.Bounds(listing=Listing.NAMES_FIRST))
    assert outcome.wrong == "acknowledged 3, sealed at 0"
    assert len([step for step in outcome.trace if step == "look at the names"]) >= 3


@pytest.mark.parametrize("rule", listing_model.RULES)
def test_each_rule_of_a_look_is_needed_where_names_come_first(rule: str) -> None:
    outcome = listing_model.check(listing_model.Bounds(listing=Listing.NAMES_FIRST, from_nothing=False), without=rule)
    assert outcome.wrong is not None
