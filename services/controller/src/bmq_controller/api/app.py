"""The pages of the API, put together: an ASGI application behind `front`, which has looked at who asks and where the
request belongs.

One module for each noun; each answers from the image and the leading controller, and knows nothing of how the request
came here.
"""

from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from bmq.errors import BmqError
from bmq_controller.api import (
    balance,
    channels,
    clock,
    cluster,
    configs,
    groups,
    lanes,
    node,
    nodes,
    placement,
    routes,
    topics,
)
from bmq_controller.api.models import Problem
from bmq_controller.api.page import DOCS_PAGE
from bmq_controller.api.problems import CONTENT_TYPE, Refusal, Refused, refusal, refusal_of, subject_of
from bmq_controller.api.query import misread
from bmq_controller.api.sources import ApiSources

DESCRIPTION = (
    "The admin REST API of a bmq cluster. Any node takes any request; what the leading controller has to answer is "
    "handed on to it, and where there is none the answer is 503 (code NoLeader). Problems are "
    "application/problem+json with what, why and remedy. Things have a version, which is their ETag: with If-Match "
    "a change is made to that version or not at all (412). Lists come in pages: limit, and continue for the next "
    "one."
)
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, words in (
        (400, "The request cannot be used"),
        (401, "No token, or a wrong one"),
        (503, "Not now: try again"),
    )
}


def build_api(sources: ApiSources) -> FastAPI:
    """The application. Its state is the sources' alone."""
    bearer = HTTPBearer(auto_error=False, description="One of the nodes' tokens, where they have any")
    app = FastAPI(
        title="bmq",
        description=DESCRIPTION,
        version="1",
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
        dependencies=[Depends(bearer), Depends(_known_parameters)],
        redirect_slashes=False,
    )
    app.exception_handler(BmqError)(_failed)
    app.exception_handler(Refused)(_refused)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_no_such_page)
    for part in (cluster, clock, topics, configs, groups, lanes, routes, channels, nodes, placement, balance, node):
        part.add_to(app, sources)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> str:
        return DOCS_PAGE

    _describe_problems(app)
    return app


async def _known_parameters(request: Request) -> None:
    """Refuses what the page does not know, before anything is done."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    if (
        route.include_in_schema
        and (found := misread(request.url.query, [field.alias for field in route.dependant.query_params])) is not None
    ):
        raise Refused("InvalidRequest", found.why, found.remedy)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, BmqError)
    return _answer(refusal_of(error, _subject(request)))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _answer(error.about(_subject(request)))


async def _invalid(request: Request, error: Exception) -> Response:
    """Names the first of the fields that cannot be used."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    why = f"{where}: {str(first['msg'])[0].lower()}{str(first['msg'])[1:]}"
    if where == "body" and "json" not in request.headers.get("content-type", ""):
        why = "its body is not sent as application/json"
    return _answer(
        refusal(
            "InvalidRequest",
            what=_subject(request),
            why=why,
            remedy="/docs shows what the request may be",
        )
    )


async def _no_such_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what, remedy = f"{request.method} {request.url.path}", "/docs shows what there is"
    match error.status_code:
        case 404:
            why, code = "there is no such page", "NotFound"
        case 405:
            why, code = f"{request.method} means nothing here", "MethodNotAllowed"
        case _:
            why, code, remedy = "its body cannot be read", "InvalidRequest", "/docs shows what the request may be"
    return _answer(refusal(code, what=what, why=why, remedy=remedy))


def _answer(refused: Refusal) -> Response:
    reply = refused.reply()
    return Response(reply.body, status_code=reply.status, headers=dict(reply.headers))


def _subject(request: Request) -> str:
    return subject_of(request.method, request.url.path)


def _describe_problems(app: FastAPI) -> None:
    """Adds the shape of problems to the OpenAPI document, where nothing returns one."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        document = describe()
        document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)  # what cannot be used is a 400 here
        return document

    app.openapi = described  # type: ignore[method-assign]
