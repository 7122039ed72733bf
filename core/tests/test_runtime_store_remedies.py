"""What to do about refused keys, clocks and certificates, by what S3, OpenSSL and rustls say."""

import pytest

from bmq.runtime.store_remedies import certificate_trouble, remedy_of_code

SERVER = "https://store:9000"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)",
            "has expired: renew it",
        ),
        ("error: InvalidCertificate(\n        Expired,\n    ),", "has expired: renew it"),
        ("error: InvalidCertificate(\n    ExpiredContext {\n        time: UnixTime(1),", "has expired: renew it"),
        (
            "certificate verify failed: certificate is not yet valid (_ssl.c:1006)",
            "is not valid yet: look at this machine's clock",
        ),
        ("InvalidCertificate(NotValidYetContext {", "is not valid yet: look at this machine's clock"),
        (
            "certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'. (_ssl.c:1006)",
            "is not for this address",
        ),
        ("InvalidCertificate(\n  NotValidForNameContext {", "is not for this address"),
        (
            "certificate verify failed: unable to get local issuer certificate (_ssl.c:1006)",
            "is not trusted: name its authority by ?ca_file=",
        ),
        (
            "certificate verify failed: self-signed certificate (_ssl.c:1006)",
            "is not trusted: name its authority by ?ca_file=",
        ),
        ("InvalidCertificate(\n  UnknownIssuer,", "is not trusted: name its authority by ?ca_file="),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_with_its_remedy(text: str, says: str) -> None:
    line = certificate_trouble(text, SERVER)
    assert line is not None
    assert line.startswith(f"the certificate of {SERVER} {says}")


def test_other_trouble_is_none_of_a_certificate() -> None:
    assert certificate_trouble("connection refused", SERVER) is None


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("ExpiredToken", "AWS_SESSION_TOKEN"),
        ("RequestTimeTooSkewed", "NTP"),
        ("AuthenticationFailed", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("ContainerNotFound", "make it first"),
    ],
)
def test_codes_that_an_operator_can_act_on_have_a_remedy(code: str, says: str) -> None:
    assert says in (remedy_of_code(code) or "")


def test_a_code_without_a_remedy_has_none() -> None:
    assert remedy_of_code("SlowDown") is None
