"""How buckets, accounts, regions and endpoints may be written in a store's URL. Pure.

Client libraries put them into the URLs that they ask, and show the host found there who they are. So only what every
parser of URLs reads alike is taken: a backslash, an @ or a # would have one of them ask another host than the one that
was looked at.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}|\$(root|web|logs)")
"""GCS takes names of 222 characters with underscores, old ones of S3 have capitals, and Azure has $root."""
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
"""Azure's own rule; it is the first part of a host's name."""
_REGION: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
"""S3's is a part of the names of the store's host, and of the host that gives keys for an identity."""
_ENDPOINT: Final = re.compile(
    r"https?://(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OddName:
    """What is wrong with a part of a store's URL, and what to write."""

    part: str
    value: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.part} {self.value!r} cannot be used: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlParts:
    """A URL as it is written."""

    scheme: str
    bucket: str
    path: str
    options: Mapping[str, str]


def parts_of(url: str) -> UrlParts:
    """Takes a URL apart; of two options of one name the last counts. Raises ValueError."""
    split = urlsplit(url)
    return UrlParts(
        scheme=split.scheme,
        bucket=split.netloc,
        path=split.path,
        options=dict(parse_qsl(split.query, keep_blank_values=True)),
    )


def host_of(endpoint: str) -> str:
    """The host of an endpoint that is not odd; empty: it is."""
    found = _ENDPOINT.fullmatch(endpoint)
    return "" if found is None else found["host"].lower()


def odd_name(kind: str, *, bucket: str, endpoint: str, account: str, region: str) -> OddName | None:
    """The first of these that could lead elsewhere; None: none could. Empty ones are not given."""
    return next(_odd_names(kind, bucket=bucket, endpoint=endpoint, account=account, region=region), None)


def _odd_names(kind: str, *, bucket: str, endpoint: str, account: str, region: str) -> Iterator[OddName]:
    if bucket and _BUCKET.fullmatch(bucket) is None:
        yield OddName(part="bucket", value=bucket, remedy="use letters, digits, - _ and . alone, as its store does")
    if endpoint and _ENDPOINT.fullmatch(endpoint) is None:
        remedy = "write http://HOST:PORT or https://HOST:PORT, with letters, digits, - _ and . in HOST"
        yield OddName(part="endpoint", value=endpoint, remedy=remedy)
    if kind == "az" and account and _ACCOUNT.fullmatch(account) is None:
        remedy = "write the storage account's name: 3 to 24 lower-case letters and digits"
        yield OddName(part="account", value=account, remedy=remedy)
    if kind == "s3" and region and _REGION.fullmatch(region) is None:
        yield OddName(part="region", value=region, remedy="write a region's name: letters, digits, - and _ alone")
