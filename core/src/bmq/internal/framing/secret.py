"""The cluster's secret: each end of a connection proves that it knows it, and neither sends it. Pure: nonces come from
outside.

The client proves first (docs/formats/internal-protocol.md), so a stranger who connects gets nothing that it could guess
the secret from. What is proved is bound to the hello and to both nonces: a proof is of no use on any other connection,
or to the other end. It says who may speak, and hides nothing: what follows is not encrypted.

While a secret is replaced, some nodes have the old one already left behind and some not yet: a node proves by one, and
accepts several.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

KEY: Final = "cluster_secret"
"""What operators know it by."""
REMEDY: Final = f"give all nodes of the cluster the same {KEY} (BMQ_CLUSTER_SECRET)"

_CLIENT: Final = b"bmq internal client"
_SERVER: Final = b"bmq internal server"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecret:
    """`key` is what a client of this node proves by; `accepted` are further ones that may be proved to it. `nonce`
    gives 16 bytes that were never given before (Rng.nonce)."""

    key: bytes = field(repr=False)
    nonce: Callable[[], bytes]
    accepted: tuple[bytes, ...] = field(default=(), repr=False)

    def challenge(self, said: bytes, nonce: bytes) -> "Challenge":
        """What both ends of a connection have to prove once its client said this hello, nonce included; `nonce` is the
        server's.
        """
        return Challenge(self.key, said, nonce, accepted=self.accepted)


class Challenge:
    """What one connection's two ends have to prove to each other. The server proves by the secret by which the client
    did.
    """

    __slots__ = ("_accepted", "_key", "_said", "nonce")

    def __init__(self, key: bytes, said: bytes, nonce: bytes, *, accepted: tuple[bytes, ...] = ()) -> None:
        self._key = key
        self._accepted = accepted
        self._said = said
        self.nonce = nonce

    def client_proof(self) -> bytes:
        """32 bytes that only who knows the secret can make."""
        return self._proof(_CLIENT, self._key)

    def server_proof(self) -> bytes:
        """The same of the other end."""
        return self._proof(_SERVER, self._key)

    def is_client(self, proof: bytes) -> bool:
        """Whether the client made it, by any of the secrets that are accepted."""
        for key in (self._key, *self._accepted):
            if hmac.compare_digest(proof, self._proof(_CLIENT, key)):
                self._key = key
                return True
        return False

    def is_server(self, proof: bytes) -> bool:
        """Whether the server made it."""
        return hmac.compare_digest(proof, self.server_proof())

    def _proof(self, end: bytes, key: bytes) -> bytes:
        # Each part with its length before it: no two different conversations have the same text.
        text = b"".join(len(part).to_bytes(4, "big") + part for part in (end, self._said, self.nonce))
        return hmac.digest(key, text, "sha256")
