"""The secret between nodes and the admin API's token, and how both are replaced under running nodes. Pure.

A node proves by the first of its list and accepts all of it. So that any two nodes talk at every moment, each one's
first has to be in the other's list. From `old` alone to `new` alone that takes three rolls: old+new, new+old, new. Each
list is a Secret of its own that never changes, so a container that starts again has what its pod was made with; the
pods tell by the names which lists are in use.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bmq_operator.kube import Manifest

CLUSTER_SECRET: Final = "cluster-secret"
ADMIN_TOKEN: Final = "admin-token"
CLUSTER_SECRETS_ACCEPTED: Final = "cluster-secrets-accepted"
ADMIN_TOKENS_ACCEPTED: Final = "admin-tokens-accepted"
ADMIN_TOKEN_VARIABLE: Final = "BMQ_ADMIN_TOKEN"
"""The variable by which a node is given it, from a Secret."""
CHARS_MIN: Final = 16
CHARS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Keys:
    """What a node has: of each it presents the first and accepts all."""

    cluster: tuple[str, ...]
    admin: tuple[str, ...]

    def texts(self) -> dict[str, str]:
        """As a Secret has them."""
        more = {CLUSTER_SECRETS_ACCEPTED: self.cluster[1:], ADMIN_TOKENS_ACCEPTED: self.admin[1:]}
        return {CLUSTER_SECRET: self.cluster[0], ADMIN_TOKEN: self.admin[0]} | {
            key: "\n".join(one) for key, one in more.items() if one
        }


def next_list(wanted: str, running: Iterable[tuple[str, ...]], *, current: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The list that nodes are to have next, on the way to `wanted` alone. `running`: all lists that nodes have now, of
    which `current` is what they were to have last, and stays where nothing else is safe."""
    lists = list(dict.fromkeys(running))
    spoken = tuple(dict.fromkeys(one[0] for one in lists))
    common = [one for one in spoken if all(one in other for other in lists)]
    candidates = [(wanted,), (wanted, *spoken), *((one, wanted, *spoken) for one in common)]
    return next(
        (found for one in candidates if _talks(found := tuple(dict.fromkeys(one)), lists)), current or (wanted,)
    )


def talk(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether nodes with these lists let each other in."""
    return one[0] in other and other[0] in one


def why_unusable(name: str, key: str, value: str) -> str:
    """Why nodes would refuse it, with the remedy; empty: they do not. It is not shown."""
    unusable = not all("!" <= one <= "~" for one in value)
    if CHARS_MIN <= len(value) <= CHARS_MAX and not unusable:
        return ""
    what = f"has {len(value)} characters" + (
        ", some of which are white space, or none of printable ASCII" if unusable else ""
    )
    remedy = (
        f"write {CHARS_MIN} to {CHARS_MAX} of printable ASCII without white space, for example of openssl rand -hex 24"
    )
    return f"the key {key} of the Secret {name} {what}: {remedy}"


def keys_of(secret: Manifest) -> Keys | None:
    """What a Secret of nodes has; None: it is none."""
    texts = texts_of(secret)
    if not texts.get(CLUSTER_SECRET) or not texts.get(ADMIN_TOKEN):
        return None
    return Keys(
        (texts[CLUSTER_SECRET], *texts.get(CLUSTER_SECRETS_ACCEPTED, "").splitlines()),
        (texts[ADMIN_TOKEN], *texts.get(ADMIN_TOKENS_ACCEPTED, "").splitlines()),
    )


def texts_of(secret: Manifest | None) -> dict[str, str]:
    """The values of a Secret."""
    return {
        key: base64.b64decode(value).decode(errors="replace")
        for key, value in ((secret or {}).get("data") or {}).items()
    }


def reference(pod_spec: Manifest) -> tuple[str, str]:
    """The Secret from which a pod, or a template, takes its token of the admin API, and the key; empty: none is
    named.
    """
    for container in pod_spec.get("containers", ()):
        for one in container.get("env", ()):
            source = one.get("valueFrom", {}).get("secretKeyRef", {})
            if one["name"] == ADMIN_TOKEN_VARIABLE and source:
                return source["name"], source["key"]
    return "", ""


def named(keys: Keys, known: Mapping[str, Keys], prefix: str, *, taken: Iterable[str] = ()) -> str:
    """The Secret with these keys: one that there is, else the next number. `taken`: names that nodes know, whatever
    became of the Secrets: another one of such a name would pass for what they have."""
    found = next((name for name, one in known.items() if one == keys and name.startswith(prefix)), "")
    names = {*known, *taken}
    numbers = [
        int(name.removeprefix(prefix))
        for name in names
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
    ]
    return found or f"{prefix}{max(numbers, default=0) + 1}"


def _talks(one: tuple[str, ...], lists: Iterable[tuple[str, ...]]) -> bool:
    return all(talk(one, other) for other in lists)
