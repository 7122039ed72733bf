"""The first frame of each side: who speaks, to whom, for which cluster, in which version, and who knows the cluster's
secret. Pure.

A node of another cluster or of a copy of this one, a listener that belongs to another node now (an address was given
away), a version that one side does not speak, or another secret is refused with one line that says what to do.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from bmq.errors import WireError
from bmq.internal.framing.apis import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Purpose
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.secret import REMEDY, Challenge, ClusterSecret
from bmq.values import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this node is. `secret` None: it proves nothing and asks for no proof."""

    cluster_id: str
    node_id: NodeId
    secret: ClusterSecret | None = None
    copy: str = ""
    """Over which copy of the cluster's store it runs (Image.copy)."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The client's. `to_node_id` is whom it believes to talk to; `nonce` is empty where it has no secret."""

    version_min: int
    version_max: int
    cluster_id: str
    node_id: int
    to_node_id: int
    purpose: int
    nonce: bytes = b""
    copy: str = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The server's: the version that is spoken from here on. `proof` is empty where it has no secret."""

    version: int
    cluster_id: str
    node_id: int
    proof: bytes = b""
    copy: str = ""


HELLO: Final = Packed[Hello](Hello)
WELCOME: Final = Packed[Welcome](Welcome)
BYTES: Final = Packed[bytes](bytes)
"""The header of CHALLENGE, the server's nonce, and of PROOF, the client's answer."""


def hello(me: Identity, to_node_id: NodeId, purpose: Purpose) -> Hello:
    """What a client of this bmq says."""
    nonce = me.secret.nonce() if me.secret is not None else b""
    return Hello(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION, me.cluster_id, me.node_id, to_node_id, purpose, nonce, me.copy)


def welcome(me: Identity, said: Hello) -> Welcome:
    """The answer to a hello. Raises WireError, to be told to the other side."""
    if said.cluster_id != me.cluster_id:
        raise WireError(
            f"node {said.node_id} belongs to cluster {said.cluster_id!r} and this is node {me.node_id} of cluster "
            f"{me.cluster_id!r}: give both the same store and --cluster-id, or each cluster addresses of its own"
        )
    if said.copy != me.copy:
        raise WireError(
            f"node {said.node_id} runs over {_which(said.copy)} and node {me.node_id} over {_which(me.copy)}: "
            "each of them is a cluster of its own, give both the same store, or each addresses of its own"
        )
    if said.to_node_id != me.node_id:
        raise WireError(
            f"node {said.node_id} looks for node {said.to_node_id} at this address, which is node {me.node_id}'s now"
        )
    version = min(said.version_max, PROTOCOL_VERSION)
    if version < max(said.version_min, PROTOCOL_VERSION_MIN):
        raise WireError(
            f"node {said.node_id} speaks versions {said.version_min} to {said.version_max} of the internal "
            f"protocol, node {me.node_id} {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}: upgrade the older one"
        )
    if said.purpose not in set(Purpose):
        raise WireError(
            f"node {said.node_id} opened a connection for purpose {said.purpose}, which this bmq does not know"
        )
    if me.secret is not None and not said.nonce:
        raise WireError(f"node {said.node_id} has no cluster secret and node {me.node_id} asks for one: {REMEDY}")
    return Welcome(version, me.cluster_id, me.node_id, copy=me.copy)


def check_proof(said: Hello, challenge: Challenge, proof: bytes) -> None:
    """The server's look at the client's answer to its challenge. Raises WireError."""
    if not challenge.is_client(proof):
        raise WireError(f"node {said.node_id} has another cluster secret: {REMEDY}")


def check_welcome(me: Identity, to_node_id: NodeId, answer: Welcome, challenge: Challenge | None = None) -> None:
    """The client's look at the answer. Raises WireError."""
    if me.secret is not None and (challenge is None or not challenge.is_server(answer.proof)):
        raise WireError(f"node {answer.node_id} did not prove that it knows the cluster's secret: {REMEDY}")
    if answer.cluster_id != me.cluster_id or answer.node_id != to_node_id:
        raise WireError(
            f"node {answer.node_id} of cluster {answer.cluster_id!r} answered where node {to_node_id} of cluster "
            f"{me.cluster_id!r} was looked for"
        )
    if answer.copy != me.copy:
        raise WireError(
            f"node {answer.node_id} answered from {_which(answer.copy)}, and node {me.node_id} runs over "
            f"{_which(me.copy)}"
        )
    if not PROTOCOL_VERSION_MIN <= answer.version <= PROTOCOL_VERSION:
        raise WireError(
            f"node {answer.node_id} wants version {answer.version} of the internal protocol, which was not offered"
        )


def _which(copy: str) -> str:
    return f"copy {copy} of this cluster's store" if copy else "the store that this cluster began with"
