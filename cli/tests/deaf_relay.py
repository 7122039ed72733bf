"""A relay before a started bmq that passes everything on but the requests of one API, which nobody ever answers."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_HOST = "127.0.0.1"


@contextlib.contextmanager
def deaf_to(api_key: int, address: str) -> Iterator[str]:
    """Gives the relay's address; clients that come by it are told no other one."""
    port = int(address.rpartition(":")[2])
    with socket.create_server((_HOST, 0)) as listening:
        own_port = listening.getsockname()[1]
        told, instead = (_HOST.encode() + struct.pack(">i", number) for number in (port, own_port))
        connections: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    server = socket.create_connection((_HOST, port))
                    connections.extend((client, server))
                    threading.Thread(target=_requests, args=(client, server, api_key)).start()
                    threading.Thread(target=_answers, args=(server, client, told, instead)).start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"{_HOST}:{own_port}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()


def _frames(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError), source.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            yield size + stream.read(int.from_bytes(size, "big"))


def _requests(client: socket.socket, server: socket.socket, deaf_to_key: int) -> None:
    for frame in _frames(client):
        if int.from_bytes(frame[4:6], "big") != deaf_to_key:
            server.sendall(frame)


def _answers(server: socket.socket, client: socket.socket, told: bytes, instead: bytes) -> None:
    with contextlib.suppress(OSError):
        for frame in _frames(server):
            client.sendall(frame.replace(told, instead))
