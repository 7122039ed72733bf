"""What can go wrong with what is asked of a cluster, in one line each. No text has a token in it. Pure."""


class AdminError(Exception):
    """Something that was asked of a cluster and not had."""


class AdminUnreachable(AdminError):
    """Nobody answers, or not as bmq does. What was asked for may have been done."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class TimedOut(AdminUnreachable):
    """No answer in time."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} does not answer in time")
        self.url = url


class NotReached(AdminUnreachable):
    """No connection, or one that ended before the answer did. `no_http`: what answered was something other than HTTP.
    `cause`: what the system says of it, where it says something.
    """

    def __init__(self, url: str, said: str, *, no_http: bool = False, cause: OSError | None = None) -> None:
        super().__init__(f"{url} is not reached: {said}")
        self.url, self.said, self.no_http, self.cause = url, said, no_http, cause


class NotBmq(AdminUnreachable):
    """An answer that bmq never gives. `status` where it has one that is no success, with its `reason`."""

    def __init__(self, url: str, said: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(
            f"{url} answers {status}, and not as bmq does" if status else f"{url} does not answer as bmq does: {said}"
        )
        self.url, self.said, self.status, self.reason = url, said, status, reason


class AdminProblem(AdminError):
    """The cluster's refusal, as it says it."""

    _PASSING = frozenset((429, 502, 503, 504))

    def __init__(self, *, status: int, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}. {remedy}")
        self.status, self.code, self.what, self.why, self.remedy = status, code, what, why, remedy

    @property
    def passes(self) -> bool:
        """Whether it is likely to be better in a moment: nobody leads just now, or a node does not answer."""
        return self.status in self._PASSING

    @property
    def missing(self) -> bool:
        """Whether it does not exist."""
        return self.status == 404
