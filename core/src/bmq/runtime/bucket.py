"""Whether the bucket of an S3-compatible server is there, and making it where it is not. Data never goes through
here.
"""

import time
from typing import Final

import urllib3
from minio import Minio
from minio.credentials.providers import EnvAWSProvider
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import HTTPError, MaxRetryError

from bmq.errors import StoreUnusable
from bmq.runtime.store_credentials import static_keys_given
from bmq.runtime.store_remedies import certificate_trouble, remedy_of_code
from bmq.runtime.store_url import StoreKind, StoreUrl

_CONNECT_S: Final = 3.0
_READ_S: Final = 10.0
_READY_WITHIN_S: Final = 10.0
"""How long a server that is starting (MinIO beside bmq in one compose file) may say that it is not ready."""
_RETRY_S: Final = 0.25
_NOT_READY: Final = 503
_REGION_CODES: Final = frozenset(
    ("AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "IllegalLocationConstraintException")
)
_OF_A_HEAD: Final = frozenset(("AccessDenied", "BadRequest"))
"""What the client makes of an answer's bare status."""
_MADE_ALREADY_CODES: Final = frozenset(("BucketAlreadyOwnedByYou", "BucketAlreadyExists"))


def ensure_bucket(url: StoreUrl) -> bool:
    """Whether the bucket was missing and has been made. Blocking (up to about 20 s); acts on S3-compatible endpoints
    only.

    A bucket of AWS itself, GCS or Azure, or one reached by a role instead of keys, is a matter of accounts and
    policies: the self-test says whether it can be used. Raises ConfigurationError (no keys) or StoreUnusable, each one
    line with the remedy.
    """
    if url.kind is not StoreKind.S3 or url.endpoint is None or not static_keys_given(url):
        return False
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while True:
        try:
            return _ensure(url)
        except S3Error as error:
            raise StoreUnusable(f"store {url.text}: {_refused(url, error)}") from error
        except ServerError as error:
            if error.status_code != _NOT_READY or time.monotonic() > deadline_s:
                raise StoreUnusable(f"store {url.text}: {_not_reached(url, error)}") from error
        except (MinioException, HTTPError, ValueError) as error:
            raise StoreUnusable(f"store {url.text}: {_not_reached(url, error)}") from error
        time.sleep(_RETRY_S)


def _ensure(url: StoreUrl) -> bool:
    client = _client(url)
    if _exists(client, url.bucket):
        return False
    try:
        client.make_bucket(url.bucket)
    except S3Error as error:
        if error.code not in _MADE_ALREADY_CODES:  # another node made it meanwhile
            raise
        return False
    return True


def _exists(client: Minio, bucket: str) -> bool:
    try:
        return client.bucket_exists(bucket)
    except S3Error as error:
        if error.code not in _OF_A_HEAD:
            raise
    # The answer to a HEAD has no body, so all refusals look alike there; a listing says which it is.
    next(iter(client.list_objects(bucket)), None)
    return True


def _client(url: StoreUrl) -> Minio:
    assert url.endpoint is not None
    scheme, _, address = url.endpoint.partition("://")
    pool = urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
        retries=urllib3.Retry(total=0),
        ca_certs=str(url.ca_file) if url.ca_file else None,
    )
    return Minio(
        address.rstrip("/"), credentials=EnvAWSProvider(), secure=scheme == "https", region=url.region, http_client=pool
    )


def _refused(url: StoreUrl, error: S3Error) -> str:
    if error.code in _REGION_CODES or "region" in (error.message or ""):
        return f"wrong region {url.region!r} ({error.message}): set ?region=…"
    if error.code == "AccessDenied":
        return (
            f"access to bucket {url.bucket!r} is denied: check the keys and their policy, or another owns a "
            "bucket of this name"
        )
    remedy = remedy_of_code(error.code or "")
    return f"{error.code}: {remedy or error.message}"


def _not_reached(url: StoreUrl, error: Exception) -> str:
    text = str(error)
    reason = error.reason if isinstance(error, MaxRetryError) else error
    name = type(reason).__name__
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return f"{url.endpoint} does not speak TLS: write http://"
    if (untrusted := certificate_trouble(text, url.endpoint or "")) is not None:
        return untrusted
    if name == "NameResolutionError":
        return f"no such host in {url.endpoint}: check the endpoint"
    if isinstance(error, ServerError) and error.status_code == _NOT_READY:
        return (
            f"{url.endpoint} has not been ready for {_READY_WITHIN_S:.0f} s (HTTP {_NOT_READY}): look at the "
            "server's own log"
        )
    if isinstance(error, InvalidResponseError | ServerError):
        return (
            f"{url.endpoint} does not answer as an S3 server: check address and port; where it speaks TLS, "
            "write https://"
        )
    if isinstance(error, ValueError):
        return f"{text}: check the bucket's name and the endpoint"
    return f"{url.endpoint} is not reached ({name}): check address, port and network"
