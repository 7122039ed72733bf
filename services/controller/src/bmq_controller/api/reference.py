"""Writes docs/admin-api.md from the API itself: `python -m bmq_controller.api.reference >docs/admin-api.md`."""

import sys
from typing import Any, Final

from bmq_controller.api.app import build_api
from bmq_controller.api.asgi import BODY_BYTES_MAX, PARAMETERS_MAX, TARGET_BYTES_MAX
from bmq_controller.api.front import FAILED_FROM, REQUESTS_AT_ONCE, REQUESTS_PER_ADDRESS, SLOW_S
from bmq_controller.api.paging import LIMIT_DEFAULT, LIMIT_MAX, PAGE_BYTES_MAX
from bmq_controller.api.request_ids import LENGTH_MAX

_METHODS: Final = ("get", "post", "put", "patch", "delete")

_INTRODUCTION: Final = f"""\
# The admin REST API

<!-- Written by `python -m bmq_controller.api.reference >docs/admin-api.md`: change the API, not this page. -->

Every node serves it at its admin address (`admin`, 127.0.0.1:9080 by default; with `bmq up --nodes` the ports from there on). Any node takes any
request: the leading controller answers, and other nodes hand a request on to it. `bmq apply`, `bmq lanes`, `bmq channels`, `bmq cluster` and `bmq debug` use
nothing else. What follows is also
at `/openapi.json` (OpenAPI 3.1) and, to try out, at `/docs` of each node.

    curl -s -H "Authorization: Bearer $BMQ_TOKEN" http://127.0.0.1:9080/v1/nodes

## Who may

`/livez`, `/readyz`, `/metrics`, `/docs`, `/openapi.json` and `/`, which lists them, are open. For the rest:

- With `admin_token` or `admin_token_file` a request has to present one of the tokens, `Authorization: Bearer TOKEN`; else it gets 401. The file has a
  token a line, of 16 characters or more, so that a new one can be given out before an old one is withdrawn. It is read again while the node
  runs; one that cannot be read has no tokens. Give all nodes the same: both the node that is asked and the one that answers compare, in
  constant time.
- `/v1/watch/channels` takes a lesser token, too, which opens nothing else: what `bmq channels token` makes of one of these
  (HMAC-SHA256 of the text `bmq: watches channels` with the token as its key, in hexadecimal digits).
- Without it everybody who reaches the address may look, and only who is on the node's own machine may change anything (403 for others).
- There is no TLS: put a proxy that has it before addresses that others reach.

## Leader

What only the leading controller knows or may do is answered by it, wherever it is. While there is none, after its death for some three seconds, the
answer is 503 with the code `NoLeader` and `Retry-After`. `/v1/cluster`, `/v1/self`, `/v1/watch/` and `/v1/debug/` are answered by the node that is asked, always.

A change is in the metadata log when it is answered. After 503 or 504, or without an answer, it may have been made: look, then decide.

## Versions

Topics, channels, the cluster's configuration, nodes and partitions have a `version`, a digest of their metadata; it is the `ETag` of their page. With
`If-Match: "VERSION"` a change is made to that version or not at all (412, code `VersionMismatch`). The condition is looked at in the very moment
in which the leader decides, so of two changes of one version one is made. Without `If-Match` a change is made to whatever there is.

A topic's version changes with its partitions' number and its configuration, not with who owns them; a partition's with its owner and its move; a
node's when it registers or is cordoned. Groups have none: one that has members cannot be deleted.

## Changes

`/v1/watch/channels` answers when something changes: with what changed since the `version` that is given as `after`, at once where there is some, and with nothing in it after `wait_seconds`. `complete` says that all channels are there: without `after`, or where
the node does not know any more what changed since, or where that is more than a MiB. Ask again with the `version` of the answer, and with a time that is not everybody's. A node that knows less than who asks waits, too: nobody goes back. Who waits counts for
`admin_watches_max` and `admin_watches_per_address` ([limits](limits.md)), and not among other connections.

## Pages

A list is `{{"items": […], "continue": "…"}}`. `limit` is {LIMIT_DEFAULT} unless given, {LIMIT_MAX} at most. A page has fewer
where its items have more than {PAGE_BYTES_MAX >> 10} KiB, and one at least. Where `continue` is not null there is more, however many there were: the same request with `continue=…` goes on after the last item. Items that come or go in between neither repeat nor hide others.

## Request ids

Every answer but those of `/`, `/livez`, `/readyz` and `/metrics` has a header `X-Request-Id`: the one of the request, where it has one of up to
{LENGTH_MAX} letters, digits and `._:/+=@-`, else one that was made. Problems have it as `request_id`, and so has every line that a node logs while it
works on the request, be it the one that was asked or the leader: that it failed (status {FAILED_FROM} and above), that it took {SLOW_S:g} s or more,
or what went wrong on the way.

## Problems

    HTTP/1.1 404 Not Found
    content-type: application/problem+json

    {{"type": "urn:bmq:problem:unknown-topic", "title": "Unknown topic", "status": 404, "code": "UnknownTopic",
     "what": "topic orders", "why": "there is no such topic", "remedy": "list the topics",
     "detail": "topic orders: there is no such topic. list the topics", "request_id": "4d0c7a…"}}

| status | when |
| --- | --- |
| 400 | the request cannot be used; `why` names the field, or the parameter that the page does not know or has twice |
| 401, 403 | no token, or not allowed |
| 404 | there is no such topic, partition, group or node |
| 409 | not as things are: the name is taken, the group has members, nobody could take a broker's partitions |
| 412 | it is another version than `If-Match` names |
| 411 | the body comes in chunks: send it with a Content-Length |
| 413 | the body has more than {BODY_BYTES_MAX >> 20} MiB |
| 414 | path and query have more than {TARGET_BYTES_MAX >> 10} KiB together, as they are sent, or the query has more than {PARAMETERS_MAX} parameters |
| 431 | the first lines have more headers or bytes than [limits](limits.md) has it |
| 503 | not now: nobody leads, no broker or store answers, {REQUESTS_AT_ONCE} requests are under way, or {REQUESTS_PER_ADDRESS} of one address; or as many wait for changes as may |
| 504 | no answer in time |
"""


def reference() -> str:
    """The page."""
    document = build_api(None).openapi()  # type: ignore[arg-type]  # describing itself it asks for nothing
    parts = [_INTRODUCTION]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                operation = operations[method]
                by_tag.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    for tag, rows in by_tag.items():
        parts.append(
            "\n".join([f"## {tag.capitalize()}", "", "| request | | answer |", "| --- | --- | --- |", *rows]) + "\n"
        )
    parts.append("## Types\n")
    parts.extend(
        _schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()) if _is_shown(name)
    )
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    words = _cell(operation.get("description", ""))
    queries = ", ".join(f"`{one['name']}`" for one in operation.get("parameters", ()) if one["in"] == "query")
    body = _type(_content(operation.get("requestBody")))
    takes = [f"Query: {queries}." if queries else "", f"Body: {body}." if body else ""]
    return f"| `{method.upper()} {path}` | {' '.join([words, *filter(None, takes)])} | {_answer(operation)} |"


def _answer(operation: dict[str, Any]) -> str:
    status, response = next((status, one) for status, one in operation["responses"].items() if status.startswith("2"))
    kind = _type(_content(response))
    return f"{status} {kind}".strip()


def _content(holder: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = ((holder or {}).get("content") or {}).get("application/json", {}).get("schema", {})
    return found


def _schema(name: str, schema: dict[str, Any]) -> str:
    rows = [
        f"| `{field}` | {_type(about)} | {_cell(about.get('description', ''))} |"
        for field, about in schema.get("properties", {}).items()
    ]
    return (
        "\n".join(
            [f"### {name}", "", _cell(schema.get("description", "")), "", "| field | | |", "| --- | --- | --- |", *rows]
        )
        + "\n"
    )


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return (
            f"page of [{_of_page(name)}](#{_of_page(name).lower()})"
            if name.startswith("Page_")
            else f"[{name}](#{name.lower()})"
        )
    if "anyOf" in schema:
        return " or ".join(filter(None, (_type(one) for one in schema["anyOf"])))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"map to {_type(schema['additionalProperties'])}"
        case None:
            return ""
        case kind:
            return str(kind)


def _of_page(name: str) -> str:
    return name.removeprefix("Page_").strip("_")


def _is_shown(name: str) -> bool:
    return not name.startswith(("Page_", "HTTPValidation", "ValidationError"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
