"""Writing to a sidecar from Python: `Databus` in threads, `AsyncDatabus` in an event loop (docs/databus.md)."""

from bmq_databus.client.errors import DatabusClientError, NotWritten, Refused, Unreachable
from bmq_databus.client.loop import AsyncDatabus, AsyncWriter
from bmq_databus.client.messages import Message, Result
from bmq_databus.client.threads import Databus, Writer

__all__ = [
    "AsyncDatabus",
    "AsyncWriter",
    "Databus",
    "DatabusClientError",
    "Message",
    "NotWritten",
    "Refused",
    "Result",
    "Unreachable",
    "Writer",
]
