"""What is served at an address of its own to whoever watches a sidecar from elsewhere: its health and its metrics, and
nothing that writes or tells of channels.
"""

from contextlib import suppress

from bmq_databus.http.answers import refusal
from bmq_databus.http.app import OPEN, App
from bmq_databus.http.incoming import ClientGone, Incoming, Receive, Scope, Send
from bmq_databus.http.outgoing import Outgoing


class Watched:
    """ASGI, over an App that also listens where applications write."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. A body is not read, and ends the connection."""
        if scope["type"] != "http" or (scope["path"] in OPEN and scope["method"] == "GET"):
            await self._app(scope, receive, send)
            return
        answer = refusal(404, f"nothing but GET {', '.join(sorted(OPEN))} is served here", connection="close")
        outgoing = Outgoing(Incoming(scope, receive), send)
        with suppress(ClientGone):
            await outgoing.begin(answer.head())
            await outgoing.end(answer.body)
