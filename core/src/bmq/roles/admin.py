"""A request to the admin API as nodes hand it on: any node takes it, the one that it is for answers it. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """`path` is decoded; `headers` have lower-case names and are those that an answer can depend on.

    `trusted`: the node that took it knows who asks: by a token of its own, or because they share its machine.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    trusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminReply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
