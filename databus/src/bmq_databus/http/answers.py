"""What is answered to a request that is answered at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bmq_databus.errors import DatabusError

JSON: Final = "application/json"
RETRY_AFTER_S: Final = 1
_json: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> dict[str, Any]:
        """Its status and headers, as an event of ASGI."""
        headers = {
            "content-type": self.content_type,
            "content-length": str(len(self.body)),
            **({"retry-after": str(RETRY_AFTER_S)} if self.status in (409, 503) else {}),
            **self.headers,
        }
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        return {"type": "http.response.start", "status": self.status, "headers": encoded}


def document(status: int, answer: Mapping[str, Any], **headers: str) -> Reply:
    """In JSON; names of headers with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=_json(answer), headers=named)


def refusal(status: int, why: DatabusError | str, **headers: str) -> Reply:
    """Nothing of the request was looked at."""
    return document(status, {"error": str(why)}, **headers)
