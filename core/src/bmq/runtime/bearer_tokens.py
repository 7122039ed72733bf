"""The tokens of which an HTTP API asks for one: those that were configured, and those of a file, one a line, so that
one can be given out before another is withdrawn.

The file is read again while it is used, so a change counts without a restart. One that cannot be read, or holds no
token, lets nobody in.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from bmq.errors import ConfigurationError
from bmq.naming.bearer import watching_token

READ_AGAIN_S: Final = 5.0
LENGTH_MIN: Final = 16
FILE_BYTES_MAX: Final = 64 << 10

_log = structlog.get_logger(__name__)


class BearerTokens:
    """Compares what is presented with all of them, in constant time."""

    def __init__(self, file: Path | None, *, option: str, tokens: Sequence[str] = ()) -> None:
        """`option` names the file for people. Raises ConfigurationError where it has no token to begin with."""
        self._file = file
        self._option = option
        self._configured = [*tokens]
        self._digests = self._read()
        self._read_s: float | None = None
        self._reading = asyncio.Lock()

    async def admits(self, presented: str) -> bool:
        """Whether it is one of them."""
        await self._read_again()
        return _is_among(presented, self._digests.whole)

    async def admits_watch(self, presented: str) -> bool:
        """Whether it is one of them, or lets its bearer watch (`bmq.naming.bearer.watching_token`)."""
        await self._read_again()
        return _is_among(presented, (*self._digests.whole, *self._digests.watching))

    async def _read_again(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            if self._read_s is None:
                self._read_s = loop.time()
            if loop.time() - self._read_s < READ_AGAIN_S:
                return
            try:
                self._digests = await loop.run_in_executor(None, self._read)
            except ConfigurationError as error:
                self._digests = _digests(self._configured)
                _log.error("no token of the file is known any more", option=self._option, error=str(error))
            self._read_s = loop.time()

    def _read(self) -> "_Digests":
        listed = read_tokens(self._file, option=self._option) if self._file is not None else []
        return _digests([*self._configured, *listed])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digests:
    """What is compared, of all tokens and of those that can be made of them."""

    whole: tuple[bytes, ...]
    watching: tuple[bytes, ...]


def listed_tokens(path: Path, *, option: str) -> list[str]:
    """One or more, as they stand there. Empty lines and those that begin with # are passed over. Blocking. Raises
    ConfigurationError.
    """
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode()
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise ConfigurationError(f"{option} {path}: {why}: name a readable file with a token a line") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{option} {path}: it is not text: write a token a line") from None
    lines = [line.strip() for line in text.splitlines()]
    tokens = [line for line in lines if line and not line.startswith("#")]
    if not tokens or len(text) > FILE_BYTES_MAX:
        raise ConfigurationError(
            f"{option} {path}: it has {'no token' if not tokens else 'too many'}: write a token a line"
        )
    return tokens


def read_tokens(path: Path, *, option: str) -> list[str]:
    """Those listed there. Raises ConfigurationError, also where one is too short."""
    tokens = listed_tokens(path, option=option)
    if any(len(token) < LENGTH_MIN for token in tokens):
        raise ConfigurationError(
            f"{option} {path}: a token is too short to be safe: use at least {LENGTH_MIN} characters, such as "
            "openssl rand -hex 24"
        )
    return tokens


def _digests(tokens: Sequence[str]) -> _Digests:
    return _Digests(
        whole=tuple(map(_digest, tokens)), watching=tuple(_digest(watching_token(token)) for token in tokens)
    )


def _is_among(presented: str, digests: Sequence[bytes]) -> bool:
    given = _digest(presented)
    found = False
    for digest in digests:
        found |= hmac.compare_digest(digest, given)
    return found


def _digest(token: str) -> bytes:
    """The SHA-256 of a token, of equal length whatever the token's is: a comparison shall not tell even that."""
    return hashlib.sha256(token.encode()).digest()
