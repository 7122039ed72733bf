import asyncio
from random import Random
from typing import Any

import pytest

from bmq_sim.loop import VirtualLoop, on_virtual_time, run
from bmq_sim.network import Network, NetworkFaults
from bmq_sim.process import SimProcess

ROUGH = NetworkFaults(latency_s_min=0.001, latency_s_max=0.02, jitter_s=0.01, split_probability=0.5)


class Recorder(asyncio.Protocol):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""
        self.reads = 0
        self.ended = False
        self.lost: list[Exception | None] = []
        self.paused = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.reads += 1

    def eof_received(self) -> bool | None:
        self.ended = True
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


class Buffered(asyncio.BufferedProtocol):
    """Reads into seven bytes at a time."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.data = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]


def virtual_loop(faults: NetworkFaults | None = None, seed: int = 0) -> VirtualLoop:
    return VirtualLoop(network=Network(rng=Random(seed), faults=faults))


async def connected(server_protocol: Any = Recorder) -> tuple[Recorder, Any, asyncio.AbstractServer]:
    loop = asyncio.get_running_loop()
    accepted: list[Any] = []

    def accept() -> Any:
        accepted.append(server_protocol())
        return accepted[-1]

    server = await loop.create_server(accept, "server", 9092)
    _, client = await loop.create_connection(Recorder, "server", 9092)
    await asyncio.sleep(0.1)
    return client, accepted[0], server


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_however_they_are_cut(seed: int) -> None:
    async def main() -> None:
        client, server, _ = await connected()
        sent = b""
        rng = Random(seed)
        for _ in range(100):
            chunk = rng.randbytes(rng.randrange(1, 5000))
            sent += chunk
            client.transport.writelines([chunk[:3], chunk[3:]])
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.01)
        client.transport.close()
        await asyncio.sleep(10)
        assert server.data == sent
        assert server.reads > 30
        assert (server.ended, server.lost, client.lost) == (True, [None], [None])

    run(main(), loop=virtual_loop(ROUGH, seed))


def test_a_buffered_protocol_reads_into_its_own_buffer() -> None:
    async def main() -> bytes:
        client, server, _ = await connected(Buffered)
        client.transport.write(b"0123456789" * 10)
        await asyncio.sleep(1)
        data: bytes = server.data
        return data

    assert run(main()) == b"0123456789" * 10


def test_a_reader_that_stops_reading_stops_the_writer() -> None:
    async def main() -> None:
        client, server, _ = await connected()
        server.transport.pause_reading()
        sent = 0
        while not client.paused:
            client.transport.write(b"x" * 10_000)
            sent += 10_000
            await asyncio.sleep(0.01)
            assert sent < 1_000_000
        assert server.data == b""
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert not client.paused
        assert len(server.data) == sent
        assert client.transport.get_write_buffer_size() == 0

    run(main(), loop=virtual_loop(ROUGH))


@on_virtual_time
async def test_nobody_listening_refuses() -> None:
    with pytest.raises(ConnectionRefusedError):
        await asyncio.get_running_loop().create_connection(Recorder, "server", 1)


@on_virtual_time
async def test_a_port_has_one_listener_and_a_closed_one_frees_it() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Recorder, "server", 9092)
    with pytest.raises(OSError, match="address in use"):
        await loop.create_server(Recorder, "server", 9092)
    server.close()
    await server.wait_closed()
    async with await loop.create_server(Recorder, "server", 9092) as again:
        assert again.sockets[0].getsockname() == ("server", 9092)
    free = await loop.create_server(Recorder, "server", 0)
    assert free.sockets[0].getsockname()[1] > 0


def test_a_killed_process_resets_its_connections_and_frees_its_port() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        accepted: list[Recorder] = []

        def accept() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        async def serve() -> None:
            server = await loop.create_server(accept, "0.0.0.0", 9092)
            await server.serve_forever()

        process = SimProcess("broker", host="node-1")
        process.start(serve())
        await asyncio.sleep(0.1)
        _, client = await loop.create_connection(Recorder, "node-1", 9092)
        accepted[0].transport.write(b"last words")
        loop.kill(process)
        await asyncio.sleep(1)
        assert client.data == b"last words"
        assert [type(error) for error in client.lost] == [ConnectionResetError]
        assert accepted[0].lost == []
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "node-1", 9092)
        again = SimProcess("broker", host="node-1")
        again.start(serve())
        await asyncio.sleep(0.1)
        await loop.create_connection(Recorder, "node-1", 9092)

    run(main(), loop=virtual_loop(ROUGH))


def test_a_one_way_partition_holds_bytes_back_and_loses_none() -> None:
    async def main() -> None:
        client, server, _ = await connected()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network.block("localhost", "server")
        client.transport.write(b"question")
        server.transport.write(b"news")
        await asyncio.sleep(30)
        assert (server.data, client.data) == (b"", b"news")
        loop.network.heal()
        await asyncio.sleep(1)
        assert server.data == b"question"

    run(main(), loop=virtual_loop(ROUGH))


@on_virtual_time
async def test_a_connection_to_a_host_behind_a_partition_times_out() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.network.block_both_ways("localhost", "server")
    with pytest.raises(TimeoutError):
        await loop.create_connection(Recorder, "server", 9092)


def test_a_lost_connection_keeps_a_prefix_and_both_ends_learn_it() -> None:
    async def main(seed: int) -> int:
        client, server, _ = await connected()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for number in range(10):
            client.transport.write(bytes([number]) * 10)
            await asyncio.sleep(0.001)
        loop.network.lose_connections("server")
        await asyncio.sleep(1)
        sent = b"".join(bytes([number]) * 10 for number in range(10))
        assert sent.startswith(server.data)
        assert isinstance(client.lost[0], ConnectionResetError)
        assert isinstance(server.lost[0], ConnectionResetError)
        return len(server.data)

    assert len({run(main(seed), loop=virtual_loop(ROUGH, seed)) for seed in range(10)}) > 1


def test_streams_work_over_it() -> None:
    async def main() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []

        def factory() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(
                asyncio.StreamReader(loop=loop), lambda r, w: tasks.append(loop.create_task(echo(r, w)))
            )

        await loop.create_server(factory, "server", 7)
        reader, writer = await asyncio.open_connection("server", 7)
        writer.write(b"one\ntwo\n")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        await asyncio.gather(*tasks)
        return answer

    assert run(main(), loop=virtual_loop(ROUGH)) == b"ONE\nTWO\n"
