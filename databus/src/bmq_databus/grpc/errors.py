"""What goes wrong with a call."""

from bmq_databus.errors import DatabusError


class BadRequest(DatabusError):
    """A call's request is none."""


class Unauthenticated(DatabusError):
    """It presents no token that is known."""


class TooMuchMetadata(DatabusError):
    """A call has more of it than it may."""


class TooSlow(DatabusError):
    """A request did not come in time."""


class StreamOver(DatabusError):
    """A stream of which nothing comes."""


class ClientGone(DatabusError):
    """The client left, or takes no answer."""


class NoSuchService(DatabusError):
    """Nothing of that name is served."""
