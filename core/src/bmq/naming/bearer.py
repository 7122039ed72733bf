"""The token that a request presents (RFC 6750, section 2.1), and the lesser one that can be made of it. Pure."""

import hashlib
import hmac
from typing import Final

_WATCHES: Final = b"bmq: watches channels"


def bearer_of(authorization: str) -> str:
    """The token of an `Authorization` header; empty where it has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def watching_token(token: str) -> str:
    """What lets its bearer watch channels, and do nothing else, wherever `token` lets its bearer do everything. Nobody
    learns that one by it, so sidecars beside applications may have it; it ends with that one.
    """
    return hmac.new(token.encode(), _WATCHES, hashlib.sha256).hexdigest()
