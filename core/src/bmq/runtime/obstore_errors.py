"""What an error of obstore says about a request: applied, not applied, or nobody knows.

obstore gives a type for a few outcomes and a text for the rest; the text holds the HTTP status, the store's own error
code, and whether the connection was ever made. Whatever is not certain is an unknown outcome: saying *not applied* of
an object that is there would let its writer go on as if it were not.
"""

import re
from typing import Final

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from bmq.errors import Conflict, NotApplied, ObjectMissing, StoreError, StoreUnavailable, UnknownOutcome
from bmq.runtime.store_remedies import NO_TLS, NO_TOKEN, NO_XML_API, certificate_trouble, remedy_of_code

_STATUS: Final = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]{1,200})")
"""Its first line: Azure appends the request's id and its time."""
_TOKEN_REQUEST: Final = re.compile(r"Generic \w+ error: Error performing token request")
"""Google's and Azure's tokens are asked for before the request itself goes out."""
_NOT_CONNECTED: Final = re.compile(r"HttpError \{\s+kind: Connect,")
_NOT_ANSWERED: Final = re.compile(r"HttpError \{\s+kind: (?:Connect|Request|Timeout|Interrupted),")
_TRIES: Final = re.compile(
    r" in [0-9.]+(ns|µs|ms|s)(, after [0-9]+ retries, max_retries: [0-9]+, retry_timeout: \S+ )?(?= - )"
)
"""How long it took: another text each time for what is one trouble."""
_ANSWERED_WITHOUT_TLS: Final = "InvalidContentType"
_NOT_IMPLEMENTED: Final = 501
_REFUSED_CODES: Final = frozenset(("SlowDown", "TooManyRequests", "RequestLimitExceeded"))
"""5xx answers that turn a request away before looking at it. MinIO's SlowDownWrite is none of them: it means a missing
write quorum."""
_LOST_RACE_CODES: Final = frozenset(("ConditionalRequestConflict", "OperationAborted"))
"""S3's 409: another conditional request for the key was under way and this one was dropped; the key need not exist."""
_EXISTS_CODES: Final = frozenset(("", "BlobAlreadyExists"))
_BUCKET_CODES: Final = frozenset(("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"))


def create_error(where: str, error: Exception) -> StoreError:
    """Conflict, NotApplied or UnknownOutcome for a create's `error`; `where` names verb, key and store."""
    status, code = _status(error), _code(error)
    message = describe(where, error)
    if isinstance(error, AlreadyExistsError | PreconditionError):
        if status == 409 and code in _LOST_RACE_CODES:
            return NotApplied(message)
        if status == 409 and code not in _EXISTS_CODES:
            return UnknownOutcome(message)
        return Conflict(message)
    if _certainly_not_applied(str(error), status=status, code=code):
        return NotApplied(message)
    return UnknownOutcome(message)


def read_error(where: str, error: Exception) -> StoreError:
    """ObjectMissing or StoreUnavailable for the error of a get, head, list or delete."""
    if isinstance(error, FileNotFoundError) and _code(error) not in _BUCKET_CODES:
        return ObjectMissing(where)
    return StoreUnavailable(describe(where, error))


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed a moment later: the store is busy, is not reached, or cut the answer off."""
    if not isinstance(error, BaseError):
        return False
    text, status, code = str(error), _status(error), _code(error)
    if status is not None:
        is_busy = status in (408, 429) or (status >= 500 and status != _NOT_IMPLEMENTED)
        return is_busy or code in _REFUSED_CODES or code in _LOST_RACE_CODES
    if certificate_trouble(text, "the store") is not None or _ANSWERED_WITHOUT_TLS in text:
        return False
    return _NOT_ANSWERED.search(text) is not None


def is_beyond_the_end(error: Exception) -> bool:
    """Whether a range began at or after the object's end."""
    return _status(error) == 416 or "StartTooLarge" in str(error)


def describe(where: str, error: Exception) -> str:
    """One line: what was tried, what the store said, and what to do where that is known."""
    if isinstance(error, TimeoutError):
        return f"{where}: no answer in time"
    text = str(error)
    first = _TRIES.sub("", text.partition("\n")[0]).strip() or type(error).__name__
    if _TOKEN_REQUEST.match(text):
        return f"{where}: {first[:200]}: {NO_TOKEN}"
    status = _status(error)
    if status is not None:
        said, remedy = (
            _MESSAGE.search(text),
            NO_XML_API if "invalid uploadType" in first else remedy_of_code(_code(error)),
        )
        line = f"{where}: HTTP {status} {_code(error)}".rstrip() + f": {said[1] if said else first[:300]}"
        return line if remedy is None else f"{line.rstrip('.')}: {remedy}"
    if isinstance(error, BaseError) and (untrusted := certificate_trouble(text, "the store")) is not None:
        return f"{where}: {untrusted}"
    if isinstance(error, BaseError) and _NOT_CONNECTED.search(text):
        return f"{where}: no connection ({first[:200]})" + (f": {NO_TLS}" if _ANSWERED_WITHOUT_TLS in text else "")
    return f"{where}: {first[:300]}"


def _certainly_not_applied(text: str, *, status: int | None, code: str) -> bool:
    if _TOKEN_REQUEST.match(text):
        return True
    if status is None:
        return _NOT_CONNECTED.search(text) is not None or "BareRedirect" in text
    if code in _REFUSED_CODES:
        return True
    return 400 <= status < 500 and status not in (408, 409, 412)


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""
