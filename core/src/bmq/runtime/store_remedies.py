"""What to do about what a store, or TLS, refuses: said in the same words at the start and while a node runs. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_OF_KEYS: Final = "the server refuses the keys: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
_OF_AZURE_KEYS: Final = (
    "the server refuses the credentials: check ?account=, AZURE_STORAGE_ACCOUNT_KEY, and the account's firewall"
)
_NO_BUCKET: Final = "make it first, or check the URL"
_OF_CODES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidTokenId", "ExpiredToken", "XAdminUserNotFound"),
        _OF_KEYS,
    ),
    **dict.fromkeys(
        ("AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch"), _OF_AZURE_KEYS
    ),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound"), _NO_BUCKET),
    "RequestTimeTooSkewed": "the clocks of this machine and of the store are too far apart: set this machine's "
    "clock (NTP)",
    "AccessDenied": "check the keys and their policy",
}
NO_TOKEN: Final = (
    "no credentials are to be had: set GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY, "
    "or give this machine an identity that may use it"
)
NO_TLS: Final = "the server does not speak TLS: write http://"
NO_XML_API: Final = "this emulator lacks the XML API, by which objects are created: see docs/stores.md"
_OPENSSL: Final = re.compile(r"certificate verify failed: (.*?)(?: \(_ssl|$)")
_RUSTLS: Final = re.compile(r"InvalidCertificate\(\s*([A-Za-z]+)")
_IS_EXPIRED: Final = re.compile(r"has expired|^Expired")
_IS_NOT_YET_VALID: Final = re.compile(r"not yet valid|^NotValidYet")
_IS_FOR_ANOTHER_NAME: Final = re.compile(r"mismatch|not valid for|^NotValidForName")


def remedy_of_code(code: str) -> str | None:
    """What to do about a store's error code; None where it says enough itself, or nobody knows."""
    return _OF_CODES.get(code)


def certificate_trouble(text: str, server: str) -> str | None:
    """One line about the certificate of `server` that OpenSSL or rustls did not take, with the remedy; None where
    `text` is about something else.
    """
    found = _OPENSSL.search(text) or _RUSTLS.search(text)
    if found is None:
        return None
    reason = found[1]
    if _IS_EXPIRED.search(reason):
        return f"the certificate of {server} has expired: renew it"
    if _IS_NOT_YET_VALID.search(reason):
        return f"the certificate of {server} is not valid yet: look at this machine's clock, and at the certificate"
    if _IS_FOR_ANOTHER_NAME.search(reason):
        return f"the certificate of {server} is not for this address: name the server as its certificate does"
    return f"the certificate of {server} is not trusted: name its authority by ?ca_file=…"
