"""What a bucket store says when the server refuses, fails, answers nonsense or not at all: never *not applied* unless
it is certain.
"""

import asyncio
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from runtime_minio import free_port
from tests.waiting import until_async

from bmq.errors import (
    BmqError,
    ConfigurationError,
    Conflict,
    NotApplied,
    ObjectMissing,
    StoreUnavailable,
    UnknownOutcome,
)
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.obstore_errors import may_pass
from bmq.runtime.obstore_store import ObstoreStore, StoreTimeouts
from bmq.runtime.open_store import open_store
from bmq.runtime.store_url import parse_store_url

Answer = Callable[[asyncio.StreamWriter], None]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c29tZXRoaW5n")


def status(number: int, code: str = "", message: str = "said the server") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (number, len(body)) + body)
        writer.close()

    return write


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def half_an_answer(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200")
    writer.close()


def silence(writer: asyncio.StreamWriter) -> None:
    """Keeps the connection open and says nothing."""


def nonsense(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\x01\x02 not HTTP at all\r\n\r\n")
    writer.close()


URLS = {
    "S3": "s3://bucket/prefix?endpoint=http://127.0.0.1:{port}",
    "GCS": "gs://bucket/prefix?anonymous=true&endpoint=http://127.0.0.1:{port}",
    "Azure": "az://bucket/prefix?account=someone&endpoint=http://127.0.0.1:{port}",
}
ONLY_IF_ABSENT = {
    "S3": (b"PUT /bucket/prefix/wal/1 HTTP/1.1\r\n", b"if-none-match: *\r\n"),
    "GCS": (b"PUT /bucket/prefix%2Fwal%2F1 HTTP/1.1\r\n", b"x-goog-if-generation-match: 0\r\n"),
    "Azure": (b"PUT /bucket/prefix/wal/1 HTTP/1.1\r\n", b"if-none-match: *\r\n"),
}


async def with_server(
    answer: Answer,
    steps: Callable[[ObstoreStore], object],
    requests: list[bytes],
    *,
    url: str = URLS["S3"],
    before: Callable[[int], None] = lambda _: None,
) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:  # its time was over before it was sent
            requests.append(error.partial)
            return
        requests.append(head)
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.partition(b":")[2]))
        answer(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    before(port)
    ms = 300 if answer is silence else 10_000  # an answer that comes may be late on a busy machine
    timeouts = StoreTimeouts(create_ms=ms, get_ms=ms, list_page_ms=ms, delete_ms=ms, head_ms=ms)
    store = open_store(url.format(port=port), timeouts=timeouts)
    assert isinstance(store, ObstoreStore)
    try:
        await steps(store)  # type: ignore[misc]
    finally:
        for writer in writers:
            writer.close()
        server.close()


CREATES: list[tuple[Answer, type[BmqError]]] = [
    (status(400, "RequestTimeout"), NotApplied),
    (status(401), NotApplied),
    (status(403, "SignatureDoesNotMatch"), NotApplied),
    (status(404, "NoSuchBucket"), NotApplied),
    (status(429), NotApplied),
    (status(503, "SlowDown"), NotApplied),
    (status(409, "ConditionalRequestConflict"), NotApplied),
    (status(301, "PermanentRedirect"), NotApplied),
    (status(412, "PreconditionFailed"), Conflict),
    (status(409, "BlobAlreadyExists"), Conflict),
    (status(409, "SomethingElse"), UnknownOutcome),
    (status(408), UnknownOutcome),
    (status(500, "InternalError"), UnknownOutcome),
    (status(503, "SlowDownWrite"), UnknownOutcome),
    (status(503), UnknownOutcome),
    (status(504), UnknownOutcome),
    (status(200), UnknownOutcome),  # without an ETag: not an object store's answer
    (close, UnknownOutcome),
    (reset, UnknownOutcome),
    (half_an_answer, UnknownOutcome),
    (nonsense, UnknownOutcome),
    (silence, UnknownOutcome),
]


@pytest.mark.parametrize("protocol", URLS)
@pytest.mark.parametrize(("answer", "error"), CREATES)
def test_a_create_is_sent_once_and_its_failure_is_told_apart(
    protocol: str, answer: Answer, error: type[BmqError]
) -> None:
    requests: list[bytes] = []

    async def steps(store: ObstoreStore) -> None:
        with pytest.raises(error) as raised:
            await store.create("wal/1", [b"one", b"two"])
        assert type(raised.value) is error
        assert str(raised.value).startswith(f"create wal/1 in {URLS[protocol].partition('?')[0]}: ")
        assert "\n" not in str(raised.value)
        await until_async(lambda: requests, "the request")  # on a busy machine it is read after its time is over

    asyncio.run(with_server(answer, steps, requests, url=URLS[protocol]))
    assert len(requests) == 1
    target, condition = ONLY_IF_ABSENT[protocol]
    assert target in requests[0]
    assert condition in requests[0].lower()


@pytest.mark.parametrize("protocol", URLS)
@pytest.mark.parametrize(
    "answer", [status(403, "AccessDenied"), status(500), status(404, "NoSuchBucket"), close, silence, nonsense]
)
def test_the_other_verbs_are_unavailable_after_a_few_tries(protocol: str, answer: Answer) -> None:
    requests: list[bytes] = []

    async def steps(store: ObstoreStore) -> None:
        for attempt in (
            store.get("a/b"),
            store.get("a/b", start=1, length=5),
            store.delete("a/b"),
            anext(store.list("a/")),
        ):
            with pytest.raises(StoreUnavailable) as raised:
                await attempt
            assert "\n" not in str(raised.value)

    asyncio.run(with_server(answer, steps, requests, url=URLS[protocol]))
    assert 4 <= len(requests) <= 12


@pytest.mark.parametrize(("protocol", "code"), [("S3", "NoSuchKey"), ("GCS", "NoSuchKey"), ("Azure", "BlobNotFound")])
def test_a_missing_object_is_no_missing_bucket(protocol: str, code: str) -> None:
    async def steps(store: ObstoreStore) -> None:
        with pytest.raises(ObjectMissing):
            await store.get("a/b")
        with pytest.raises(ObjectMissing):
            await store.head("a/b")
        # whose deletes go out in a batch, which has an answer for each; the contract's suite has that
        if protocol != "Azure":
            await store.delete("a/b")

    asyncio.run(with_server(status(404, code), steps, [], url=URLS[protocol]))


MISSING_BUCKETS = [("S3", "NoSuchBucket"), ("GCS", "NoSuchBucket"), ("Azure", "ContainerNotFound")]


@pytest.mark.parametrize(("protocol", "code"), MISSING_BUCKETS)
def test_a_missing_bucket_is_told_in_one_line_with_the_remedy(protocol: str, code: str) -> None:
    async def steps(store: ObstoreStore) -> None:
        with pytest.raises(NotApplied, match=f"HTTP 404 {code}: it is not there: make it first") as raised:
            await store.create("a", [b"x"])
        assert "\n" not in str(raised.value)
        with pytest.raises(StoreUnavailable, match="make it first"):
            await store.get("a")

    message = "it is not there\nRequestId:1\nTime:2"  # as Azure says it
    asyncio.run(with_server(status(404, code, message), steps, [], url=URLS[protocol]))


def test_an_emulator_without_the_xml_api_is_told_from_a_store_that_refuses() -> None:
    def answer(writer: asyncio.StreamWriter) -> None:
        body = b'{"error":{"code":400,"message":"invalid uploadType","errors":[{"reason":"invalid"}]}}'
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        writer.close()

    async def steps(store: ObstoreStore) -> None:
        with pytest.raises(NotApplied, match="this emulator lacks the XML API"):
            await store.create("a", [b"x"])

    asyncio.run(with_server(answer, steps, [], url=URLS["GCS"]))


def test_without_a_token_nothing_was_sent_so_nothing_was_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's metadata service fails in a way that of a store would be an unknown outcome."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    requests: list[bytes] = []

    async def steps(store: ObstoreStore) -> None:
        with pytest.raises(NotApplied, match="no credentials are to be had"):
            await store.create("a", [b"x"])

    def before(port: int) -> None:
        monkeypatch.setenv("AZURE_MSI_ENDPOINT", f"http://127.0.0.1:{port}/token")

    url = f"az://bucket?account=someone&endpoint=https://127.0.0.1:{free_port()}"
    asyncio.run(with_server(status(500), steps, requests, url=url, before=before))
    assert [request.split()[:1] for request in requests] == [[b"GET"]]
    assert b"/token?" in requests[0]


def test_a_server_that_does_not_speak_tls_is_named() -> None:
    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        store = open_store(
            f"gs://bucket?anonymous=true&endpoint=https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        )
        with pytest.raises(NotApplied, match="does not speak TLS: write http://"):
            await store.create("a", [b"x"])
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://no-such-host.invalid:9000"])
def test_a_server_that_was_never_reached_applied_nothing(endpoint: str) -> None:
    store = open_store(f"s3://bucket?endpoint={endpoint}", timeouts=StoreTimeouts(get_ms=300))

    async def main() -> None:
        with pytest.raises(NotApplied, match="no connection"):
            await store.create("a", [b"x"])
        with pytest.raises(StoreUnavailable, match=r"no connection|no answer in time"):
            await store.get("a")

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [None, close, reset, half_an_answer, nonsense], ids=lambda one: one.__name__ if one else "nobody there"
)
def test_what_is_said_of_one_trouble_is_the_same_each_time(answer: Answer | None) -> None:
    """Conditions and logs have it: a text that tells how long it took would be news with each request."""

    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: (answer or close)(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if answer is None:
            server.close()
            await server.wait_closed()
        store = open_store(f"s3://bucket?endpoint=http://127.0.0.1:{port}")
        said = set()
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as error:
                await store.head("a")
            said.add(str(error.value))
        (only,) = said
        assert "head a in s3://bucket" in only and "HEAD http://127.0.0.1" in only
        assert not any(words in only for words in ("after", "max_retries", "retry_timeout"))
        server.close()

    asyncio.run(main())


def test_without_keys_an_endpoint_is_refused_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigurationError, match="no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        open_store("s3://bucket?endpoint=http://127.0.0.1:1")


def test_a_server_that_is_still_starting_is_waited_for() -> None:
    """As MinIO answers until it is ready; here to whoever asks whether the bucket exists."""
    answers = iter((503, 503, 200))

    class Starting(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(next(answers))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Starting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert not ensure_bucket(
                parse_store_url(f"s3://bucket?endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1")
            )
        finally:
            server.shutdown()
            thread.join()
    assert next(answers, None) is None


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (status(503, "SlowDown"), True),
        (status(500, "InternalError"), True),
        (status(429), True),
        (status(409, "OperationAborted"), True),
        (close, True),
        (half_an_answer, True),
        (status(501, "NotImplemented"), False),
        (status(403, "AccessDenied"), False),
        (status(404, "NoSuchBucket"), False),
        (status(400, "InvalidArgument"), False),
    ],
)
def test_only_what_a_store_may_say_otherwise_a_moment_later_may_pass(answer: Answer, passes: bool) -> None:
    async def read(store: ObstoreStore) -> None:
        with pytest.raises((StoreUnavailable, ObjectMissing)) as error:
            await store.get("wal/1")
        assert isinstance(error.value.__cause__, Exception) and may_pass(error.value.__cause__) is passes

    asyncio.run(with_server(answer, read, []))


def test_a_store_that_is_not_there_may_come() -> None:
    store = open_store(URLS["S3"].format(port=free_port()))
    with pytest.raises(StoreUnavailable) as error:
        asyncio.run(store.get("wal/1"))
    assert isinstance(error.value.__cause__, Exception) and may_pass(error.value.__cause__)
    store.close()
