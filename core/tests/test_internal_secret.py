"""The cluster's secret: nodes that know it talk, others are refused in one line that says what to do, and nobody can
read it off the wire.
"""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest
from internal_calls import append, ask, control, every_loop, frames_until_the_end, raw
from internal_under_test import CLUSTER, SERVER, Runner, calling, serving
from structlog.testing import capture_logs
from tests.waiting import until_async

from bmq.errors import WireError
from bmq.internal import Identity, NotSent, Purpose
from bmq.internal.framing.failures import decode_failure
from bmq.internal.framing.frames import Frame, FrameReader, Kind, encode_frame
from bmq.internal.framing.hello import BYTES, HELLO, WELCOME, Welcome, check_welcome, hello
from bmq.internal.framing.secret import ClusterSecret
from bmq.values import NodeId

REMEDY = r"give all nodes of the cluster the same cluster_secret \(BMQ_CLUSTER_SECRET\)"


def counting() -> Callable[[], bytes]:
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def node(node_id: int, key: bytes | None, *accepted: bytes) -> Identity:
    secret = ClusterSecret(key=key, nonce=counting(), accepted=accepted) if key is not None else None
    return Identity(cluster_id=CLUSTER, node_id=NodeId(node_id), secret=secret)


async def double(value: int) -> int:
    return 2 * value


@every_loop
def test_nodes_that_know_the_same_secret_talk(run: Runner) -> None:
    async def main() -> None:
        me, them = node(1, b"correct horse battery"), node(7, b"correct horse battery")
        async with (
            serving(control(double), me=them) as (_, host, port),
            calling(host, port, Purpose.CONTROL, me=me) as client,
        ):
            assert await asyncio.gather(*(ask(client, value) for value in range(5))) == [0, 2, 4, 6, 8]

    run(main())


@every_loop
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [((b"old",), (b"old", b"new")), ((b"old", b"new"), (b"new", b"old")), ((b"new", b"old"), (b"new",))],
    ids=["the first has both", "the first proves by the new one", "the first has left the old one"],
)
def test_nodes_talk_both_ways_at_each_step_of_replacing_the_secret(
    run: Runner, mine: tuple[bytes, ...], theirs: tuple[bytes, ...]
) -> None:
    async def main() -> None:
        for one, other in ((mine, theirs), (theirs, mine)):
            me, them = node(1, *one), node(7, *other)
            async with (
                serving(control(double), me=them) as (_, host, port),
                calling(host, port, Purpose.CONTROL, me=me) as client,
            ):
                assert await ask(client, 4) == 8

    run(main())


@every_loop
def test_an_accepted_secret_is_proved_back_by_no_other(run: Runner) -> None:
    async def main() -> None:
        me, them = node(1, b"new"), node(7, b"old", b"newer")
        async with (
            serving(control(double), me=them) as (_, host, port),
            calling(host, port, Purpose.CONTROL, me=me) as client,
        ):
            with pytest.raises(NotSent):
                await ask(client, 4)

    run(main())


@every_loop
@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        (b"wrong", b"right", f"node 1 has another cluster secret: {REMEDY}"),
        (None, b"right", f"node 1 has no cluster secret and node 7 asks for one: {REMEDY}"),
        (b"right", None, f"node 7 did not prove that it knows the cluster's secret: {REMEDY}"),
    ],
    ids=["another", "none here", "none there"],
)
def test_another_secret_or_none_on_one_side_is_refused_with_the_remedy(
    run: Runner, mine: bytes | None, theirs: bytes | None, said: str
) -> None:
    async def main() -> None:
        served = []

        async def serve(value: int) -> int:
            served.append(value)
            return value

        with capture_logs() as logs:
            async with (
                serving(control(serve), me=node(7, theirs)) as (server, host, port),
                calling(host, port, Purpose.CONTROL, me=node(1, mine)) as client,
            ):
                with pytest.raises(NotSent, match=said) as refused:
                    await ask(client, 1)
                assert "\n" not in str(refused.value)
                await until_async(lambda: not server.connections, "all connections to end")
        assert served == []
        assert any("cluster_secret" in line["reason"] for line in logs)

    run(main())


async def answer_to(host: str, port: int, *sent: bytes) -> list[Frame]:
    reader, writer = await raw(host, port)
    writer.writelines(sent)
    frames = await frames_until_the_end(reader)
    writer.close()
    return frames


def refusal(frames: list[Frame]) -> str:
    assert frames[-1].kind == Kind.ERROR
    return decode_failure(frames[-1].header).text


@every_loop
def test_a_proof_of_another_connection_is_of_no_use(run: Runner) -> None:
    async def main() -> None:
        them = node(7, b"right")
        me = node(1, b"right")
        said = HELLO.encode(hello(me, SERVER.node_id, Purpose.CONTROL))
        async with serving(control(double), me=them) as (server, host, port):
            reader, writer = await raw(host, port)
            writer.write(encode_frame(Kind.HELLO, header=said)[0])
            frames: list[Frame] = []
            splitter = FrameReader()
            while not frames:
                frames = splitter.feed(await reader.read(1000))
            assert me.secret is not None
            proof = me.secret.challenge(said, BYTES.decode(frames[0].header)).client_proof()
            proof_frame = encode_frame(Kind.PROOF, header=BYTES.encode(proof))[0]
            writer.write(proof_frame)
            while len(frames) < 2:
                frames += splitter.feed(await reader.read(1000))
            assert frames[1].kind == Kind.HELLO
            writer.close()
            replayed = await answer_to(host, port, encode_frame(Kind.HELLO, header=said)[0], proof_frame)
            assert "node 1 has another cluster secret" in refusal(replayed)
            unchallenged = await answer_to(host, port, proof_frame)
            assert "before the hello" in refusal(unchallenged)
            twice = await answer_to(host, port, *[encode_frame(Kind.HELLO, header=said)[0]] * 2)
            assert "before the hello" in refusal(twice)
            await until_async(lambda: not server.connections, "all connections to end")

    run(main())


def test_a_server_cannot_prove_with_the_clients_own_proof() -> None:
    secret = ClusterSecret(key=b"right", nonce=counting())
    challenge = secret.challenge(b"hello", b"nonce")
    me = Identity(cluster_id=CLUSTER, node_id=NodeId(1), secret=secret)
    check_welcome(me, NodeId(7), Welcome(1, CLUSTER, 7, challenge.server_proof()), challenge)
    with pytest.raises(WireError, match="did not prove"):
        check_welcome(me, NodeId(7), Welcome(1, CLUSTER, 7, challenge.client_proof()), challenge)
    with pytest.raises(WireError, match="did not prove"):
        check_welcome(me, NodeId(7), Welcome(1, CLUSTER, 7, challenge.server_proof()))


def test_the_secret_is_in_nothing_that_is_sent_or_printed() -> None:
    secret = ClusterSecret(key=b"correct horse", nonce=counting())
    me = Identity(cluster_id=CLUSTER, node_id=NodeId(1), secret=secret)
    said = HELLO.encode(hello(me, NodeId(7), Purpose.TAIL))
    challenge = secret.challenge(said, secret.nonce())
    welcomed = WELCOME.encode(Welcome(1, CLUSTER, 7, challenge.server_proof()))
    for sent in (said, challenge.client_proof(), welcomed, repr(me).encode()):
        assert b"correct horse" not in sent


@every_loop
def test_produce_waits_for_the_proof_too(run: Runner) -> None:
    async def main() -> None:
        async with (
            serving({}, me=node(7, b"right")) as (_, host, port),
            calling(host, port, Purpose.PRODUCE, me=node(1, b"wrong")) as client,
        ):
            with pytest.raises(NotSent):
                await append(client, 1, size_bytes=100)

    run(main())
