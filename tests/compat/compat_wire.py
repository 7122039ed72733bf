"""Looks at the stored batches themselves, which no client shows: a Fetch request of version 4, written by hand."""

import socket
import struct
from collections.abc import Iterator

from compat_contract import CODECS


def stored_codecs(servers: str, topic: str, partition: int, start: int) -> set[str]:
    """The codecs of a partition's batches from an offset on."""
    return {CODECS[attributes & 7] for attributes in _attributes(_fetch(servers, topic, partition, start))}


def _fetch(servers: str, topic: str, partition: int, start: int) -> bytes:
    host, port = servers.split(":")
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 0, 1, 50_000_000, 0, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iiqi", 1, partition, start, 50_000_000)
    client_id = b"compat"
    header = struct.pack(">hhih", 1, 4, 1, len(client_id)) + client_id
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    at = 4 + 4 + 4 + 2 + len(name) + 4 + 4  # correlation, throttle, topics, name, partitions, index
    (error,) = struct.unpack_from(">h", answer, at)
    assert error == 0, f"Fetch of {topic}-{partition} from {start} answered error {error}"
    at += 2 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + 16 * max(aborted, 0)
    (length,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + length]


def _attributes(batches: bytes) -> Iterator[int]:
    at = 0
    while at + 61 <= len(batches):
        (length,) = struct.unpack_from(">i", batches, at + 8)
        yield struct.unpack_from(">h", batches, at + 21)[0]
        at += 12 + length
