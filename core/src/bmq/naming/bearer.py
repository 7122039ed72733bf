"""The token that a request presents (RFC 6750, section 2.1). Pure."""


def bearer_of(authorization: str) -> str:
    """The token of an `Authorization` header; empty where it has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
