"""What kopf is told."""

from bmq_operator.handlers import kopf_settings
from bmq_operator.runner import FINALIZER


def test_kopf_does_not_take_away_the_finalizer_that_the_operator_puts_on() -> None:
    assert kopf_settings(namespaced=True).persistence.finalizer != FINALIZER


def test_a_watch_that_is_silent_is_begun_anew_and_no_request_waits_for_ever() -> None:
    settings = kopf_settings(namespaced=True)
    assert 0 < settings.watching.inactivity_timeout <= 75
    assert settings.watching.connect_timeout
    assert settings.networking.request_timeout
