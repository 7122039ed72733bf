"""A TCP proxy before a server (of HTTP, or a database) that, for a request which a test chooses, lets it through and cuts the connection
where the answer would come.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

Chosen = Callable[[bytes], bool]
"""Of what a client has sent since the last answer, headers and body as far as they came."""
_SOME = 1 << 16


class CuttingProxy:
    """`cut` is how many answers it has cut; `chosen` may be changed at any time. Without `passes` what is chosen does
    not even arrive.
    """

    def __init__(self, port: int, *, chosen: Chosen = lambda _: False, times: int = 1) -> None:
        self.chosen = chosen
        self.times = times
        self.passes = True
        self.cut = 0
        self._port = port
        self._lock = threading.Lock()
        self._clients: list[socket.socket] = []
        self.port = 0
        self.come()

    def stop(self) -> None:
        self._server.close()

    def go(self) -> None:
        """Nobody listens from now on, and connections end, as where a server is started anew."""
        with _ended(self._server, *self._clients):
            self._clients.clear()
        self._accepting.join()
        self._server.close()

    def come(self) -> None:
        """Listens, where it did before."""
        self._server = socket.create_server(("127.0.0.1", self.port))
        self.port = self._server.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            server = socket.create_connection(("127.0.0.1", self._port))
            asked = bytearray()
            threading.Thread(target=self._ask, args=(client, server, asked), daemon=True).start()
            threading.Thread(target=self._answer, args=(client, server, asked), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, asked: bytearray) -> None:
        with _ended(client, server):
            while some := client.recv(_SOME):
                asked += some
                if not self.passes and self._cuts(bytes(asked)):
                    return
                server.sendall(some)

    def _answer(self, client: socket.socket, server: socket.socket, asked: bytearray) -> None:
        with _ended(client, server):
            while some := server.recv(_SOME):
                if b" 100 " not in some[:20] and asked:
                    request = bytes(asked)
                    asked.clear()
                    if self._cuts(request):
                        return
                client.sendall(some)

    def _cuts(self, request: bytes) -> bool:
        with self._lock:
            cuts = self.cut < self.times and self.chosen(request)
            self.cut += cuts
            return cuts


@contextmanager
def before(uri: str) -> Iterator[CuttingProxy]:
    """One before the server there."""
    port = urlsplit(uri).port
    assert port is not None
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.stop()


class _ended:
    """Both ends are closed afterwards, whoever went first."""

    def __init__(self, *connections: socket.socket) -> None:
        self._connections = connections

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        return kind is not None and issubclass(kind, OSError)
