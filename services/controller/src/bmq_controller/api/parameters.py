"""What requests of several pages take, and the answers that they may get besides the usual ones: for the description of
the API.
"""

from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request

from bmq_controller.api.asgi import ADDRESS

IfMatch = Annotated[str | None, Header(description="The version that is to be changed; without it, whichever it is")]
ValidateOnly = Annotated[bool, Query(description="Look whether it would be possible, and change nothing")]

InLane = Annotated[str, Query(alias="lane", description="Only this lane's; empty: only the base's")]


async def _address_of(request: Request) -> str:
    return request.headers.get(ADDRESS, "")


Address = Annotated[str, Depends(_address_of)]
"""Who asks: "" for whom an older node handed on."""

Responses = dict[int | str, dict[str, Any]]
MISSING: Final[Responses] = {404: {"description": "There is no such thing"}}
CHANGED: Final[Responses] = {**MISSING, 412: {"description": "It is another version than If-Match names"}}
