"""Writes docs/limits.md from the tables of limits themselves: `python -m bmq_node.configuration.limits_reference
>docs/limits.md`.
"""

import ast
import inspect
import sys
from types import ModuleType
from typing import Final

from bmq.config.limits import LIMITS
from bmq.internal import limits as internal_limits
from bmq.wire import limits as wire_limits
from bmq_controller.api import asgi, bodies, front
from bmq_node.configuration.server_config import ServerConfig, about
from bmq_node.configuration.values import KIB, size_text

_INTRODUCTION: Final = """\
# What one client may do

<!-- Written by `python -m bmq_node.configuration.limits_reference >docs/limits.md`: change the tables of limits, not this page. -->

One client must not be able to stop the others. So what a request may cost is bounded before work on it begins, in elements as well as in bytes, and
work that takes long is done in turns between which everybody else is served:

- What a request names several times is answered once, or refused once (INVALID_REQUEST) where that says two things, as Kafka does.
- A wide request (of more than `request_inline_bytes_max`) and a wide answer (of more than 1,000 elements) wait their turn; small ones never wait
  for them. Who waits does so by address, and within an address by connection: who opens two hundred connections has one turn, not two hundred.
- A proxy begins `turn_requests` requests, or `turn_bytes` of them, in one turn of the event loop, however many were sent at once; who has more goes
  on by turns of addresses.
- At most `produce_requests_max` Produce requests are under way at a time, whatever the store is like and also when their clients have gone; those of
  one address leave as many places free as they take.
- A Produce request of more than `produce_turn_partitions` partitions is begun in turns; what its connection sends meanwhile is begun behind it.
- Groups have part of each turn, 256 KiB of them or 1,000 elements, whoever asks: generations that are written, members that are told of theirs,
  descriptions, offsets that are deleted. So DeleteGroups of a group with more than 1,000 offsets, and OffsetDelete and LeaveGroup that name more than
  1,000, are no single step as Kafka's are: they are answered when all of it is durable, and what happens in between is seen
  ([decision 44](decisions/0044-groups-in-turns.md)).
- Whoever sends half a request, or does not take its answer, is cut off when others need the room.
  Half-sent requests of one address hold up no other one; a large request of the same address waits until one of them has been still for a second.
- An address whose requests, until they are answered, take three times what is free of `request_memory_bytes` is not read meanwhile; others are.
- The admin address begins `admin_turn_requests` requests in one turn of the loop, by turns of addresses, and works on 16 of each address; no
  request is parsed there that has many headers or a body in chunks.
- Of lines in a process's log that say the same but for numbers 50 come in ten seconds, of all 1,000; `left_out` of the next says how many did not.

These bound what work costs. They are no rights: there are no users and no ACLs, so who can connect may do what Kafka's protocol lets anybody do where
there is no authorizer, and that is a good deal: delete topics and records, change their configuration, move partitions, commit and delete any group's
offsets, hold up a group's next generation for a member's rebalance timeout (up to `group.max.session.timeout.ms`), and write under another producer's id, so that batches of
that producer count as sent before, or as those of one that was replaced. Let nobody reach the Kafka and admin addresses whom you would not let do that: bind them to
networks that are yours, and on Kubernetes have NetworkPolicies.

What a request of n bytes costs, whatever is in it:

- **Its answer**: 64 n + 64 KiB. Lists of all that there is (topics, groups, offsets) are as long as what they list, and paged where the protocol
  has pages. An answer with records has as many as the request asks for, `fetch_bytes_max` at most. One with
  configurations has up to 12 KiB for each resource that is named, 1 MiB of values that are longer than 64 characters, half of
  `answer_memory_bytes` in all, and POLICY_VIOLATION for resources that have more of them. A fetch
  session with errors in more than 200 partitions ends with the answer that tells them, as those are told each time.
- **Memory while it is worked on**: 8 n + 1 MiB, and 1 KiB for each element of its arrays (3 KiB for a partition in a Fetch): the four bytes that name
  a partition become an object, and one more in the answer. So 40 MiB at most for `request_elements_max`, 60 MiB for `fetch_partitions_max`.
- **Memory of all requests together**: 100 MiB for elements (`wide_request_elements`), as much again for those of narrow requests and for Produce
  requests that are begun in turns, 50 MiB for answers that name more than 200 elements and no more than 1,000 (as many as `wide_answer_elements`), 300 MiB for fetched partitions (`fetch_partitions_held`) and some 70 MiB for those of requests that name few,
  beside the bytes that
  `request_memory_bytes`, `answer_memory_bytes` and `fetch_memory_bytes` bound. One list of all topics or groups may have more elements than
  these: two of those, of two addresses, may be put together at a time. Set them lower where memory is small.
- **What others wait**: not above twice their own 99th percentile for longer than 100 ms.

`tests/abuse` walks every API and every path of the admin address from their schemas, and asks each for as much as it takes.

## Limits that can be set

All of them at once are the key `limits` of [bmq server](server-configuration.md): in its file a mapping, as a flag `--limits NAME=VALUE`,
repeatable; `bmq up` has `--limit NAME=VALUE`. Give them to all nodes. A value out of range is refused at the start.

| limit | default | from, to | meaning | beyond it |
| --- | --- | --- | --- | --- |
"""
_MEMORY: Final = (
    "connections_max",
    "connection_idle_ms_max",
    "request_memory_bytes",
    "fetch_memory_bytes",
    "fetch_bytes_max",
    "buffer_max_bytes",
    "tail_limit_bytes",
)


def limits_reference() -> str:
    """The page."""
    rows = [
        f"| `{one.name}` | {_shown(one.name, one.metadata['default'])} | "
        f"{_shown(one.name, one.metadata['minimum'])} to {_shown(one.name, one.metadata['maximum'])} | "
        f"{one.metadata['doc']} | {one.metadata['beyond']} |"
        for one in LIMITS
    ]
    keys = [f"| `{key}` | {ServerConfig.model_fields[key].description} {_remedy(key)} |" for key in _MEMORY]
    return "\n".join(
        [
            _INTRODUCTION + "\n".join(rows),
            "",
            "## Keys of the configuration that bound memory and connections",
            "",
            "| key | meaning |",
            "| --- | --- |",
            *keys,
            "",
            "## Bounds of the protocol",
            "",
            "They are not set: no client of Kafka's comes near them.",
            "",
            *_constants(wire_limits),
            "",
            "## Bounds between nodes",
            "",
            *_constants(internal_limits),
            "",
            "## Bounds of the admin address",
            "",
            *_constants(asgi),
            *_constants(bodies)[2:],
            *_constants(front)[2:],
            "",
        ]
    )


def _shown(name: str, value: int) -> str:
    return size_text(value) if "bytes" in name and value >= KIB else f"{value:,}"


def _remedy(key: str) -> str:
    remedy = str(about(key, "remedy"))
    return f"{remedy[0].upper()}{remedy[1:]}."


def _constants(module: ModuleType) -> list[str]:
    """Each constant with its value and what the module says of it."""
    rows = ["| bound | value | meaning |", "| --- | --- | --- |"]
    body = ast.parse(inspect.getsource(module)).body
    for statement, follows in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if module in (asgi, bodies, front) and (
            name.startswith("_") or not isinstance(getattr(module, name), int | float)
        ):
            continue  # these have more than bounds
        text = ""
        if isinstance(follows, ast.Expr) and isinstance(follows.value, ast.Constant):
            text = " ".join(str(follows.value.value).split())
        value = getattr(module, name)
        rows.append(f"| `{name}` | {_shown(name.lower(), value) if isinstance(value, int) else value} | {text} |")
    return rows


if __name__ == "__main__":
    sys.stdout.write(limits_reference())
