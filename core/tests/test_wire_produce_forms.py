"""A Produce request is taken for one of a form where it reads as that, whatever else it may be; and is answered in the
same words.
"""

from unittest.mock import patch
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import WireError
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.frames import encode_request_frame, encode_response_frame, parse_request_header
from bmq.wire.produce import (
    TOPIC_IDS_FROM,
    TRANSACTIONS_FROM,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceTopic,
    encode_produce_request,
    encode_produce_response,
    parse_produce,
)
from bmq.wire.produce_forms import FORM_BYTES_MAX, Forms, ProduceForm

API = SERVED[ApiKey.PRODUCE]
versions = st.integers(0, API.version_max)
words = st.text(max_size=5) | st.sampled_from(["a" * 150, "ü" * 75])
sizes = st.sampled_from([0, 1, 2, 126, 127, 128, 129, 300, 16_382, 16_383, 16_384])


@st.composite
def requests(draw: st.DrawFn, version: int) -> ProduceRequest:
    def topic() -> ProduceTopic:
        name, topic_id = (None, UUID(int=draw(st.integers(1, 3)))) if version >= TOPIC_IDS_FROM else (draw(words), None)
        count = draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
        partitions = [(draw(st.integers(-1, 2)), memoryview(bytes([at]) * draw(sizes))) for at in range(count)]
        return ProduceTopic(name, topic_id, partitions)

    transaction = draw(st.sampled_from([None, None, "t"])) if version >= TRANSACTIONS_FROM else None
    topics = [topic() for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2])))]
    return ProduceRequest(transaction, draw(st.integers(-1, 1)), draw(st.integers(0, 2)), topics)


def framed(version: int, request: ProduceRequest, *, correlation_id: int, client_id: str | None) -> memoryview:
    body = encode_produce_request(version, request)
    frame = encode_request_frame(
        api_key=ApiKey.PRODUCE, api_version=version, correlation_id=correlation_id, client_id=client_id, body=body
    )
    return memoryview(frame)[4:]


def plain(request: ProduceRequest) -> object:
    """To be compared: views of one content are one."""
    topics = [
        (topic.name, topic.topic_id, [(index, bytes(records or b"")) for index, records in topic.partitions])
        for topic in request.topics
    ]
    return request[:3], topics


def check(form: ProduceForm, frame: memoryview) -> bool:
    """Whether it is one of the form, which then reads as it does otherwise."""
    found = form.batch_of(frame)
    if found is None:
        return False
    correlation_id, records = found
    header = parse_request_header(frame)
    assert (header.api_key, header.api_version) == (ApiKey.PRODUCE, form.version)
    assert (header.correlation_id, header.client_id) == (correlation_id, form.client_id)
    assert plain(form.request_for(records)) == plain(parse_produce(form.version, frame[header.body_position :]))
    return True


@given(st.data(), versions, st.none() | words, st.integers(-(2**31), 2**31 - 1))
def test_a_form_is_that_of_what_it_was_taken_from_and_of_what_differs_in_its_batch(
    data: st.DataObject, version: int, client_id: str | None, correlation_id: int
) -> None:
    request = data.draw(requests(version))
    frame = framed(version, request, correlation_id=correlation_id, client_id=client_id)
    taken = Forms(8).of(frame, parse_request_header(frame))
    has_one = len(request.topics) == 1 and len(request.topics[0].partitions) == 1
    if taken is None:
        records = request.topics[0].partitions[0][1] if has_one else None
        assert client_id is None or not records or len(frame) - len(records) > FORM_BYTES_MAX
        return
    assert has_one
    form, read = taken
    assert plain(read) == plain(request)
    assert check(form, frame)
    ((index, _),) = request.topics[0].partitions
    records = memoryview(bytes(data.draw(sizes.filter(bool))))
    topics = [request.topics[0]._replace(partitions=[(index, records)])]
    assert check(form, framed(version, request._replace(topics=topics), correlation_id=5, client_id=client_id))
    other = framed(version, data.draw(requests(version)), correlation_id=7, client_id=data.draw(st.none() | words))
    check(form, other)


@given(st.data(), versions, words)
def test_whatever_is_changed_of_a_request_it_is_none_of_the_form_or_reads_alike(
    data: st.DataObject, version: int, client_id: str
) -> None:
    name, topic_id = (None, UUID(int=1)) if version >= TOPIC_IDS_FROM else ("orders", None)
    topics = [ProduceTopic(name, topic_id, [(0, memoryview(bytes(data.draw(sizes.filter(bool)))))])]
    request = ProduceRequest(None, -1, 30_000, topics)
    frame = framed(version, request, correlation_id=1, client_id=client_id)
    taken = Forms(8).of(frame, parse_request_header(frame))
    assert taken is not None
    changed = bytearray(frame)
    places = [*range(min(len(changed), 80)), *range(max(0, len(changed) - 5), len(changed))]
    changed[data.draw(st.sampled_from(places))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 4]))
    view = memoryview(bytes(changed[: len(changed) - cut]) + bytes(data.draw(st.sampled_from([0, 0, 0, 1, 3]))))
    try:
        is_of_form = taken[0].batch_of(view) is not None
        again = Forms(8).of(view, parse_request_header(view))
    except WireError:
        assert taken[0].batch_of(view) is None
        return
    if is_of_form:
        assert check(taken[0], view)
    if again is not None:
        assert check(again[0], view)


@given(
    versions.filter(lambda version: version >= TRANSACTIONS_FROM),
    words,
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**63 - 1)), min_size=1, max_size=4),
    st.tuples(st.integers(-1, 2**62), st.integers(0, 2**62), st.integers(0, 1_000)),
)
def test_those_that_were_taken_are_answered_as_any(
    version: int,
    word: str,
    index: int,
    taken: list[tuple[int, int]],
    told: tuple[int, int, int],
) -> None:
    append_time_ms, log_start, throttle_ms = told
    name, topic_id = (None, UUID(int=1 + log_start)) if version >= TOPIC_IDS_FROM else (word, None)
    topics = [ProduceTopic(name, topic_id, [(index, memoryview(b"records"))])]
    frame = framed(version, ProduceRequest(None, -1, 30_000, topics), correlation_id=1, client_id="client")
    found = Forms(8).of(frame, parse_request_header(frame))
    assert found is not None
    for times in (1, 2):  # what is kept of the first time is right for others
        got = found[0].answers(
            [correlation_id for correlation_id, _ in taken],
            [base_offset for _, base_offset in taken],
            log_append_time_ms=append_time_ms // times,
            log_start=log_start // times,
            throttle_ms=throttle_ms // times,
        )
        expected = []
        for correlation_id, base_offset in taken:
            one = ProducedPartition(index, 0, base_offset, append_time_ms // times, log_start // times)
            produced = [ProducedTopic(name, topic_id, [one])]
            body = encode_produce_response(version, produced, throttle_ms=throttle_ms // times)
            expected += encode_response_frame(API.response_header_version(version), correlation_id, (body,))
        assert got == b"".join(expected)


def test_what_is_no_plain_request_is_not_read_when_it_comes() -> None:
    """It is read in its turn, which it has to wait for."""
    topics = [ProduceTopic("orders", None, [(0, memoryview(b"records"))])]
    request = ProduceRequest(None, -1, 30_000, topics)
    frame = framed(9, request, correlation_id=1, client_id="client")
    tagged = bytes(frame[:-1]) + b"\x02\x05\x00\x06\x00"
    read: list[int] = []

    def parse(*arguments: object, **options: object) -> ProduceRequest:
        read.append(1)
        return parse_produce(*arguments, **options)  # type: ignore[arg-type]

    with patch("bmq.wire.produce_forms.parse_produce", parse):
        for given in (memoryview(tagged), framed(9, request, correlation_id=1, client_id="c" * FORM_BYTES_MAX)):
            header = parse_request_header(given)
            assert plain(parse_produce(9, given[header.body_position :])) == plain(request)
            assert Forms(8).of(given, header) is None
        assert not read
        assert Forms(8).of(frame, parse_request_header(frame)) is not None
    assert read


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 6))
def test_forms_are_shared_and_few_are_kept(partitions: list[int], most: int) -> None:
    forms = Forms(most)
    newest: list[int] = []
    known: dict[int, ProduceForm] = {}
    for number, partition in enumerate(partitions):
        topics = [ProduceTopic("orders", None, [(partition, memoryview(b"records"))])]
        frame = framed(9, ProduceRequest(None, -1, 30_000, topics), correlation_id=number, client_id="client")
        found = forms.of(frame, parse_request_header(frame))
        assert found is not None
        assert (found[0] is known.get(partition)) == (partition in newest[-most:])
        known[partition] = found[0]
        newest = [*(one for one in newest if one != partition), partition]
        assert len(forms) <= most
        assert check(found[0], frame)
