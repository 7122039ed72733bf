"""The tokens of the admin API, from a file: one a line, so that one can be given out before another is withdrawn.

The file is read again while it is used, so a change counts without a restart. One that cannot be read, or holds no token, lets nobody in.
"""

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Final

import structlog

from bmq.errors import ConfigurationError

READ_AGAIN_S: Final = 5.0
LENGTH_MIN: Final = 16
FILE_BYTES_MAX: Final = 64 << 10

_log = structlog.get_logger("bmq.admin")


class TokenFile:
    """Compares what is presented with all tokens of a file, in constant time. Raises ConfigurationError where the file has none to begin with."""

    def __init__(self, path: Path, *, option: str) -> None:
        self._path = path
        self._digests = read_tokens(path, option=option)
        self._option = option
        self._read_s: float | None = None
        self._reading = asyncio.Lock()

    async def admits(self, presented: str) -> bool:
        """Whether it is one of them."""
        await self._read_again()
        given = _digest(presented)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, given)
        return found

    async def _read_again(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            if self._read_s is None:
                self._read_s = loop.time()
            if loop.time() - self._read_s < READ_AGAIN_S:
                return
            try:
                self._digests = await loop.run_in_executor(None, lambda: read_tokens(self._path, option=self._option))
            except ConfigurationError as error:
                self._digests = []
                _log.error("the admin API lets nobody in", error=str(error))
            self._read_s = loop.time()


def read_tokens(path: Path, *, option: str) -> list[bytes]:
    """The tokens' digests. Empty lines and those that begin with # are passed over. Raises ConfigurationError."""
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
        raise ConfigurationError(f"{option} {path}: it has {'no token' if not tokens else 'too many'}: write a token a line")
    if any(len(token) < LENGTH_MIN for token in tokens):
        raise ConfigurationError(
            f"{option} {path}: a token is too short to be safe: use at least {LENGTH_MIN} characters, such as openssl rand -hex 24"
        )
    return [_digest(token) for token in tokens]


def _digest(token: str) -> bytes:
    """Of equal length whatever the token's is: a comparison shall not tell even that."""
    return hashlib.sha256(token.encode()).digest()
