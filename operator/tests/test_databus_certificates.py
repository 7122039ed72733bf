"""What is shown is trusted at every moment by who trusts what was told, through years of renewals; what is broken is
made anew.
"""

import base64
import datetime
import random
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq_operator.databus.certificates import CA_BUNDLE, CA_KEY, CHAIN, KEY, ends_ms, next_data

HOST = "bmq-databus.bmq-system.svc"
DAY_MS = 86_400_000
BEGIN_MS = 1_800_000_000_000
Data = dict[str, bytes]


def trusted(data: Data, told: bytes, *, now_ms: int) -> bool:
    """Whether who trusts `told` takes what is shown."""
    cas = x509.load_pem_x509_certificates(told)
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    verifier = PolicyBuilder().store(Store(cas)).time(now).build_server_verifier(x509.DNSName(HOST))
    try:
        verifier.verify(x509.load_pem_x509_certificate(data[CHAIN]), [])
    except VerificationError:
        return False
    return True


def made(found: Data | None = None, *, told: bytes = b"", now_ms: int = BEGIN_MS) -> Data:
    data = next_data(found or {}, host=HOST, told=told, now_ms=now_ms)
    assert data is not None
    return data


@settings(max_examples=15)
@given(seed=st.integers(0, 1_000_000))
def test_at_every_moment_of_years_what_is_shown_is_trusted(seed: int) -> None:
    draw = random.Random(seed)
    now_ms, data = BEGIN_MS, made()
    told, cas, shown, silent = data[CA_BUNDLE], set[bytes](), set[bytes](), 0
    while now_ms < BEGIN_MS + 12 * 365 * DAY_MS:
        now_ms += draw.randrange(25 * DAY_MS)
        for _ in range(2):  # every 30 s, in fact
            data = next_data(data, host=HOST, told=told, now_ms=now_ms) or data
            assert trusted(data, told, now_ms=now_ms), "before the API server is told anything"
        if draw.random() < 0.3 and silent < 2:  # it did not work this time: for 50 days at most
            silent += 1
        else:
            silent, told = 0, data[CA_BUNDLE]
            assert trusted(data, told, now_ms=now_ms)
        assert ends_ms(data) > now_ms
        cas.add(data[CA_KEY])
        shown.add(data[KEY])
        assert data[CA_BUNDLE].count(b"BEGIN") <= 4
    assert len(cas) >= 2 and len(shown) > 40, "nothing was renewed"


def test_what_is_right_stays_and_a_replica_whose_clock_differs_by_hours_leaves_it() -> None:
    data = made()
    for hours in (-20, 0, 20):
        assert next_data(data, host=HOST, told=b"", now_ms=BEGIN_MS + hours * DAY_MS // 24) is None
    again = made(data, told=data[CA_BUNDLE], now_ms=BEGIN_MS + 61 * DAY_MS)
    assert again[CA_BUNDLE] == data[CA_BUNDLE] and again[CHAIN] != data[CHAIN], "the CA stays"


BREAK: list[tuple[str, Callable[[Data], Data]]] = [
    ("nothing", lambda data: {}),
    ("no text", lambda data: {**data, CA_BUNDLE: b"\xff"}),
    ("another CA's key", lambda data: {**data, CA_KEY: made()[CA_KEY]}),
    ("another key", lambda data: {**data, KEY: made()[KEY]}),
    ("no certificate", lambda data: {name: data[name] for name in (CA_BUNDLE, CA_KEY)}),
    ("half a certificate", lambda data: {**data, CHAIN: data[CHAIN][:100]}),
    ("another CA's certificate", lambda data: {**data, CHAIN: (other := made())[CHAIN], KEY: other[KEY]}),
]


@pytest.mark.parametrize("broken", [one for _, one in BREAK], ids=[name for name, _ in BREAK])
def test_what_is_broken_is_made_anew(broken: Callable[[Data], Data]) -> None:
    data = made()
    again = next_data(broken(data), host=HOST, told=data[CA_BUNDLE], now_ms=BEGIN_MS)
    assert again is not None and trusted(again, again[CA_BUNDLE], now_ms=BEGIN_MS)


def test_a_certificate_of_another_service_and_one_that_has_ended_are_made_anew() -> None:
    data = made()
    other = next_data(data, host="other.bmq-system.svc", told=data[CA_BUNDLE], now_ms=BEGIN_MS)
    assert other is not None and not trusted(other, other[CA_BUNDLE], now_ms=BEGIN_MS)
    later_ms = BEGIN_MS + 3650 * DAY_MS
    late = made(data, told=data[CA_BUNDLE], now_ms=later_ms)
    assert trusted(late, late[CA_BUNDLE], now_ms=later_ms)


def test_keys_are_in_no_certificate_and_are_pem() -> None:
    data = made()
    for name in (CA_KEY, KEY):
        assert data[name].startswith(b"-----BEGIN PRIVATE KEY-----")
        body = b"".join(data[name].splitlines()[1:-1])
        assert base64.b64decode(body)
        assert body not in data[CA_BUNDLE] + data[CHAIN]
