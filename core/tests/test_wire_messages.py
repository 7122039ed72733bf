"""Messages agree with kio in every API, version and direction; what is malformed raises WireError and nothing else."""

import dataclasses
import datetime
import io
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import EntityField, EntityTupleField, PrimitiveTupleField, classify_field
from kio.static.constants import EntityType

import bmq.wire.schemas
from bmq.errors import WireError
from bmq.wire.limits import STRUCT_TAGS_MAX
from bmq.wire.messages import Message, decode_request, decode_response, encode_request, encode_response, message_fields
from bmq.wire.schema_additions import ADDITIONS
from bmq.wire.schema_generation import generate
from bmq.wire.schemas import api_keys, api_schema

DIRECTIONS = ((True, EntityType.request), (False, EntityType.response))
CASES = [
    (key, version)
    for key in api_keys()
    for version in range(api_schema(key).versions[0], api_schema(key).versions[1] + 1)
    if key not in ADDITIONS or version != ADDITIONS[key].version
]
"""What kio knows too."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def kio_class(key: int, version: int, kind: EntityType) -> type[Any]:
    return resolve_name(schema_name_map[api_key_map[key]][version][kind])


def random_primitive(kafka_type: str, rng: random.Random, nullable: bool) -> tuple[Any, Any]:
    """(kio's value, ours)."""
    if nullable and kafka_type != "datetime_i64" and rng.random() < 0.3:
        return None, None
    match kafka_type:
        case "int8" | "int16" | "int32" | "int64":
            number = rng.choice([0, 1, -1, (1 << INTEGERS[kafka_type] - 1) - 1, -(1 << INTEGERS[kafka_type] - 1)])
            return number, number
        case "uint16":
            return 65535, 65535
        case "float64":
            return 1.5, 1.5
        case "bool":
            return True, True
        case "error_code":
            code = rng.choice(list(ErrorCode))
            return code, code.value
        case "timedelta_i32" | "timedelta_i64":
            ms = rng.choice([0, -1, 1, 2**31 - 1])
            return datetime.timedelta(milliseconds=ms), ms
        case "datetime_i64":
            ms = rng.choice([0, 1_700_000_000_123, *([-1] if nullable else [])])
            return (None if ms == -1 else EPOCH + datetime.timedelta(milliseconds=ms)), ms
        case "uuid":
            value = rng.choice([None, UUID(int=rng.getrandbits(128) | 1)])
            return value, value
        case "string":
            text = rng.choice(["", "x", "grüße", "y" * 126, "z" * 127, "w" * 300])
            return text, text
        case "bytes" | "records":
            data = rng.choice([b"", b"abc", bytes(127), bytes(200)])
            return data, data
    raise AssertionError(kafka_type)


def random_entity(cls: type[Any], rng: random.Random) -> tuple[Any, dict[str, Any]]:
    """A kio entity and the fields that our message must have."""
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        shape = classify_field(field)
        nullable = type(None) in getattr(field.type, "__args__", ())
        kafka_type = field.metadata.get("kafka_type", "")
        name = field.name + ("_ms" if kafka_type.startswith(("timedelta", "datetime")) else "")
        if field.metadata.get("tag") is not None and rng.random() < 0.4:
            theirs[field.name] = get_tagged_field_default(field)
            ours[name] = message_default(theirs[field.name])
        elif shape.is_array and nullable and rng.random() < 0.2:
            theirs[field.name] = ours[name] = None
        elif isinstance(shape, EntityTupleField):
            pairs = [random_entity(shape.type_, rng) for _ in range(rng.randrange(3))]
            theirs[field.name], ours[name] = tuple(a for a, _ in pairs), [b for _, b in pairs]
        elif isinstance(shape, PrimitiveTupleField):
            pairs = [random_primitive(kafka_type, rng, nullable=False) for _ in range(rng.choice([0, 1, 130]))]
            theirs[field.name], ours[name] = tuple(a for a, _ in pairs), [b for _, b in pairs]
        elif isinstance(shape, EntityField):
            theirs[field.name], ours[name] = (
                (None, None) if nullable and rng.random() < 0.3 else random_entity(shape.type_, rng)
            )
        else:
            # kio writes no null into a tagged field.
            theirs[field.name], ours[name] = random_primitive(kafka_type, rng, nullable and "tag" not in field.metadata)
        if (
            "tag" in field.metadata
            and isinstance(shape, EntityField)
            and theirs[field.name] == get_tagged_field_default(field)
        ):
            ours[name] = None
    return cls(**theirs), ours


def message_default(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return None
    return [] if value == () else value


def only(message: Any, fields: Any) -> Any:
    """The message's fields that the other one names, as plain structures."""
    if isinstance(message, Message):
        return {name: only(getattr(message, name), fields[name]) for name in fields}
    if isinstance(message, list):
        return [only(one, other) for one, other in zip(message, fields, strict=True)]
    return message


def random_bodies(
    key: int, version: int, is_request: bool, kind: EntityType, count: int
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    cls = kio_class(key, version, kind)
    for index in range(count):
        theirs, ours = random_entity(cls, random.Random(f"{key}/{version}/{is_request}/{index}"))
        out = io.BytesIO()
        entity_writer(cls)(out, theirs)
        yield out.getvalue(), ours


@pytest.mark.parametrize("key", api_keys(), ids=lambda key: f"{key}-{api_schema(key).name}")
def test_every_version_reads_and_writes_what_kio_does(key: int) -> None:
    for version in (version for one, version in CASES if one == key):
        for is_request, kind in DIRECTIONS:
            decode, encode = (decode_request, encode_request) if is_request else (decode_response, encode_response)
            for body, ours in random_bodies(key, version, is_request, kind, 6):
                message = decode(key, version, memoryview(body))
                assert only(message, ours) == ours, (key, version, is_request)
                assert encode(key, version, ours) == body, (key, version, is_request)
                assert encode(key, version, message) == body


@pytest.mark.parametrize("key", api_keys(), ids=lambda key: f"{key}-{api_schema(key).name}")
def test_an_empty_message_gets_kios_defaults_where_there_are_any(key: int) -> None:
    for version in (version for one, version in CASES if one == key):
        for is_request, kind in DIRECTIONS:
            encode = encode_request if is_request else encode_response
            entity, size = entity_reader(kio_class(key, version, kind))(body := encode(key, version, {}), 0)
            assert size == len(body)
            for field in dataclasses.fields(entity):
                if field.default is not dataclasses.MISSING:
                    assert getattr(entity, field.name) == field.default, (key, version, field.name)


ADDED = (
    (42, 3, True, "03026103626300", {"groups_names": ["a", "bc"]}),
    (
        *(42, 3, False, "000000070302610044185468652067726f7570206973206e6f7420656d7074792e000362630000000000"),
        {
            "throttle_time_ms": 7,
            "results": [
                {"group_id": "a", "error_code": 68, "error_message": "The group is not empty."},
                {"group_id": "bc", "error_code": 0, "error_message": None},
            ],
        },
    ),
    (
        *(18, 5, True, "056a61766106342e342e300363310000000300"),
        {"client_software_name": "java", "client_software_version": "4.4.0", "cluster_id": "c1", "node_id": 3},
    ),
    (
        *(18, 5, True, "056a61766106342e342e3000ffffffff00"),
        {"client_software_name": "java", "client_software_version": "4.4.0", "cluster_id": None, "node_id": -1},
    ),
    (
        *(18, 5, False, "008102001200000005000000000000"),
        {"error_code": 129, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 5}], "throttle_time_ms": 0},
    ),
)
"""(key, version, whether a request, what the classes of kafka-clients 4.4.0 write, the same as a message)."""


@pytest.mark.parametrize(("key", "version", "is_request", "written", "fields"), ADDED)
def test_versions_that_kio_lacks_are_what_kafkas_own_classes_write(
    key: int, version: int, is_request: bool, written: str, fields: dict[str, Any]
) -> None:
    decode, encode = (decode_request, encode_request) if is_request else (decode_response, encode_response)
    body = bytes.fromhex(written)
    assert encode(key, version, fields) == body
    assert only(decode(key, version, body), fields) == fields


def test_the_schemas_are_what_kio_says() -> None:
    resource = Path(bmq.wire.schemas.__file__).with_name("schemas.json")
    assert resource.read_bytes() == generate(), (
        "run: python -m bmq.wire.schema_generation core/src/bmq/wire/schemas.json"
    )


@given(st.sampled_from(CASES), st.booleans(), st.binary(max_size=200))
@settings(max_examples=400, deadline=None)
def test_random_bytes_are_a_message_or_a_wire_error(case: tuple[int, int], is_request: bool, body: bytes) -> None:
    try:
        (decode_request if is_request else decode_response)(*case, body)
    except WireError as error:
        assert "malformed" in str(error)


@given(st.sampled_from(CASES), st.sampled_from(DIRECTIONS), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_and_truncated_bodies_are_a_message_or_a_wire_error(
    case: tuple[int, int], direction: tuple[bool, EntityType], data: st.DataObject
) -> None:
    is_request, kind = direction
    decode = decode_request if is_request else decode_response
    ((body, _),) = random_bodies(*case, is_request, kind, 1)
    mutated = bytearray(body[: data.draw(st.integers(0, len(body)))])
    for _ in range(data.draw(st.integers(0, 3)) if mutated else 0):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        decode(*case, mutated)
    except WireError:
        return


def test_fields_that_the_version_lacks_are_there_with_defaults() -> None:
    old = decode_request(
        11, 0, encode_request(11, 0, {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer"})
    )
    assert (old.group_id, old.session_timeout_ms, old.rebalance_timeout_ms, old.group_instance_id) == (
        "g",
        10_000,
        -1,
        None,
    )
    commit = {"group_id": "g", "topics": [{"topic_id": UUID(int=5), "partitions": [{"committed_metadata": None}]}]}
    new = decode_request(8, 10, encode_request(8, 10, commit))
    assert (new.topics[0].name, new.topics[0].topic_id, new.retention_time_ms) == (None, UUID(int=5), -1)
    assert decode_request(10, 0, encode_request(10, 0, {"key": "g"})).coordinator_keys == []


def test_lists_of_absent_fields_are_not_shared() -> None:
    body = encode_request(10, 0, {"key": "g"})
    decode_request(10, 0, body).coordinator_keys.append("x")
    assert decode_request(10, 0, body).coordinator_keys == []


def test_unknown_tagged_fields_are_skipped() -> None:
    body = encode_request(12, 4, {"group_id": "g", "generation_id": 3, "member_id": "m"})
    assert body[-1] == 0
    tagged = body[:-1] + b"\x02\x05\x03abc\x85\x01\x00"
    assert decode_request(12, 4, tagged) == decode_request(12, 4, body)


def test_more_unknown_tagged_fields_than_any_client_has_are_refused_before_one_is_read() -> None:
    body = encode_request(12, 4, {"group_id": "g", "generation_id": 3, "member_id": "m"})
    most = b"".join(bytes((tag, 0)) for tag in range(3, 3 + STRUCT_TAGS_MAX))
    assert decode_request(12, 4, body[:-1] + bytes((STRUCT_TAGS_MAX,)) + most) == decode_request(12, 4, body)
    with pytest.raises(WireError, match="65 tagged fields end one struct; at most 64"):
        decode_request(12, 4, body[:-1] + bytes((STRUCT_TAGS_MAX + 1,)) + b"\0" * 130)


def test_unknown_tagged_fields_of_all_structs_count_together_beside_one_in_each() -> None:
    def body(topics: int, tags: int) -> bytes:
        one = bytes(16) + b"\x02a" + bytes((tags,)) + b"".join(bytes((tag, 0)) for tag in range(tags))
        return bytes((0x80 | ((topics + 1) & 0x7F), (topics + 1) >> 7)) + one * topics + b"\0\0\0"

    assert len(decode_request(3, 12, body(1_500, 1)).topics) == 1_500
    assert len(decode_request(3, 12, body(51, 6)).topics) == 51
    with pytest.raises(WireError, match="more than 256 unknown tagged fields"):
        decode_request(3, 12, body(52, 6))


@pytest.mark.parametrize(
    "tags",
    [b"\xff\xff\xff\xff\x0f", b"\x01\x00", b"\x01\x00\x05ab", b"\x02\x05\x00\x05\x00", b"\xff\xff\xff\xff\xff\x0f"],
)
def test_tagged_fields_that_do_not_fit_are_refused(tags: bytes) -> None:
    body = encode_request(12, 4, {"group_id": "g", "generation_id": 3, "member_id": "m"})
    with pytest.raises(WireError):
        decode_request(12, 4, body[:-1] + tags)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 3, -2])
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_allocated(count: int) -> None:
    with pytest.raises(WireError):
        decode_request(3, 1, struct.pack(">i", count) + b"\x00\x01")


def test_a_text_that_no_answer_could_repeat_is_refused() -> None:
    """FindCoordinator 4: a compact text may have any length, one of an older version two bytes for it."""
    longest = encode_request(10, 4, {"coordinator_keys": ["g" * 32_767]})
    assert decode_request(10, 4, longest).coordinator_keys == ["g" * 32_767]
    longer = longest.replace(b"\x80\x80\x02", b"\x81\x80\x02").replace(b"g" * 32_767, b"g" * 32_768)
    with pytest.raises(WireError, match="32768 bytes: a text may have 32767"):
        decode_request(10, 4, longer)


def test_more_elements_than_the_budget_are_refused() -> None:
    body = encode_request(3, 1, {"topics": [{"name": ""} for _ in range(1001)]})
    assert len(decode_request(3, 1, body).topics) == 1001
    with pytest.raises(WireError, match="more array elements"):
        decode_request(3, 1, body, elements_max=1000)


def test_a_name_that_no_version_has_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="no version has"):
        encode_response(12, 0, {"error_kode": 1})
    assert encode_response(12, 0, {"error_code": ErrorCode.not_coordinator, "throttle_time_ms": 7}) == b"\x00\x10"


def test_null_is_written_empty_where_only_newer_versions_know_null() -> None:
    fields = {"error_code": 0, "protocol_name": None, "leader": "", "member_id": ""}
    assert decode_response(11, 5, encode_response(11, 5, fields)).protocol_name == ""
    assert decode_response(11, 7, encode_response(11, 7, fields)).protocol_name is None
    with pytest.raises(AssertionError, match="leader is None"):
        encode_response(11, 5, {"leader": None})


def test_versions_and_apis_that_do_not_exist_are_wire_errors() -> None:
    for key, version in ((12, 5), (12, -1), (999, 0)):
        with pytest.raises(WireError):
            decode_request(key, version, b"")


def test_the_fields_can_be_listed_for_people() -> None:
    assert "session_timeout_ms: int32  (versions 0 to 9)" in message_fields(11, is_request=True)


@pytest.mark.parametrize(("version", "length"), [(5, 40_000), (2, 40_000), (5, 1_999), (5, 2_000)])
def test_a_sentence_that_quotes_a_long_name_is_cut(version: int, length: int) -> None:
    said = "é" * (length // 2) + "x" * (length % 2)
    topics = [{"name": "a", "topic_id": None, "error_code": 17, "error_message": said, "configs": ()}]
    read = decode_response(19, version, encode_response(19, version, {"topics": topics}))
    [topic] = read.topics
    assert topic.error_message == said if length <= 2_000 else topic.error_message == f"{'é' * 1_000}…"
