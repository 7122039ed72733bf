"""What a writer is told instead of results."""

from bmq_databus.client.messages import Result


class DatabusClientError(Exception):
    """All of them: what, why and the remedy."""


class Refused(DatabusClientError):
    """The sidecar looked at nothing of the request: `status` as of HTTP."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{status}: {why}")
        self.status = status


class Unreachable(DatabusClientError):
    """No answer came in time, however often it was tried. Whether the sidecar has the messages is not known."""


class NotWritten(DatabusClientError):
    """One message was not taken, or not in time: `result` says which."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.status}: {result.error}")
        self.result = result
