"""The id of a request to the admin API: what the client sent as X-Request-Id, else one that is made. Pure.

It is in the answer's header, in the answer where that is a problem, in every line that is logged while the request is
worked on, and it goes with a request that is handed on: so what the node that was asked and the one that answered say
of it can be found together.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from bmq.roles.admin import AdminReply
from bmq_controller.api.problems import CONTENT_TYPE

HEADER: Final = "x-request-id"
LENGTH_MAX: Final = 128
_USABLE: Final = re.compile(rf"[A-Za-z0-9._:/+=@-]{{1,{LENGTH_MAX}}}", re.ASCII)
"""What can stand in a line of a log and in a header without harm."""


def request_id_of(headers: Mapping[str, str], new_id: Callable[[], str]) -> str:
    """The client's own where it can be used."""
    given = headers.get(HEADER, "")
    return given if _USABLE.fullmatch(given) is not None else new_id()


def with_request_id(reply: AdminReply, request_id: str) -> AdminReply:
    """The answer that says which request it answers."""
    headers = {**reply.headers, HEADER: request_id}
    if headers.get("content-type") != CONTENT_TYPE:
        return replace(reply, headers=headers)
    problem = {**json.loads(reply.body), "request_id": request_id}
    body = json.dumps(problem, ensure_ascii=False).encode()
    if "content-length" in headers:
        headers["content-length"] = str(len(body))
    return replace(reply, headers=headers, body=body)
