import datetime
import io
import json
import pickle
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hurried import TRIES, hurried
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode
from value_registry import RegistryServer, met_anew, serving

from bmq_spark.errors import ConfigurationError
from bmq_spark.patience import AT_ONCE
from bmq_spark.values import Decoder, SchemaFile, decoder, unknown_ids
from bmq_spark.values import registry as registries
from bmq_spark.values.ddl import write_ddl
from bmq_spark.values.registered import RegisteredDecoder
from bmq_spark.values.registry import Registry, RegistryUnavailable, SchemaUnknown


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registries, "PATIENCE", hurried())
    with met_anew() as registry:
        yield registry


def framed(number: int, schema: Any, record: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), record)
    return b"\x00" + number.to_bytes(4, "big") + content.getvalue()


def record_of(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": [{"name": name, **kind} for name, kind in fields.items()]}


OLD = record_of(id={"type": "int"}, gone={"type": "string"})
NEW = record_of(
    id={"type": "long"},
    note={"type": "string", "default": "none"},
    name={"type": "string", "default": "?", "aliases": ["gone"]},
)


def test_records_of_older_writers_are_read_as_the_newest_schema_says(server: RegistryServer) -> None:
    old, new = server.register("orders-value", json.dumps(OLD)), server.register("orders-value", json.dumps(NEW))
    made = decoder("avro", registry=server.url, subject="orders-value")
    assert write_ddl(made.arrow_type) == "id bigint, note string, name string"
    values, reasons = decode(
        made, [framed(old, OLD, {"id": 1, "gone": "x"}), framed(new, NEW, {"id": 2, "note": "n", "name": "y"}), None]
    )
    assert reasons == [None] * 3
    assert values == [{"id": 1, "note": "none", "name": "x"}, {"id": 2, "note": "n", "name": "y"}, None]


def test_times_of_two_units_are_not_taken_for_one_another(server: RegistryServer) -> None:
    """Nor are the logical types beside them."""
    logical = {
        "price": ("bytes", {"precision": 5, "scale": 2}, "decimal"),
        "key": ("string", {}, "uuid"),
        "day": ("int", {}, "date"),
    }
    others = {
        name: {"type": {"type": kind, "logicalType": meaning, **more}}
        for name, (kind, more, meaning) in logical.items()
    }
    stored = {name: {"type": kind} for name, (kind, _, _) in logical.items()}
    old = server.register(
        "s", json.dumps(record_of(at={"type": {"type": "long", "logicalType": "timestamp-millis"}}, **others))
    )
    server.register(
        "s",
        json.dumps(record_of(at={"type": ["string", {"type": "long", "logicalType": "timestamp-micros"}]}, **others)),
    )
    value = framed(
        old,
        record_of(at={"type": "long"}, **stored),
        {"at": 1_700_000_000_123, "price": b"\x04\xd2", "key": "k", "day": 1},
    )
    (row,), reasons = decode(decoder("avro", registry=server.url, subject="s"), [value])
    assert reasons == [None]
    assert row["at"]["member_long"].timestamp() == 1_700_000_000.123
    assert (row["price"], row["key"], row["day"]) == (Decimal("12.34"), "k", datetime.date(1970, 1, 2))


def test_a_schema_is_asked_for_once_however_many_records_name_it(server: RegistryServer) -> None:
    number = server.register("orders-value", json.dumps(OLD))
    made = decoder("avro", registry=server.url, subject="orders-value")
    decode(made, [framed(number, OLD, {"id": each, "gone": ""}) for each in range(1000)])
    decode(made, [framed(number, OLD, {"id": 1, "gone": ""})])
    assert server.asked == ["/subjects/orders-value/versions/latest", f"/schemas/ids/{number}"]


def test_schemas_that_refer_to_others_are_read_with_them(server: RegistryServer) -> None:
    street = {"type": "record", "name": "shop.Street", "fields": [{"name": "name", "type": "string"}]}
    address = {
        "type": "record",
        "name": "shop.Address",
        "fields": [{"name": "street", "type": "shop.Street"}, {"name": "other", "type": ["null", "shop.Street"]}],
    }
    order = record_of(to={"type": "shop.Address"}, via={"type": "shop.Street"})
    server.register("street", json.dumps(street))
    server.register(
        "address", json.dumps(address), references=[{"name": "shop.Street", "subject": "street", "version": 1}]
    )
    number = server.register(
        "orders-value", json.dumps(order), references=[{"name": "shop.Address", "subject": "address", "version": 1}]
    )
    made = decoder("avro", registry=server.url, subject="orders-value")
    assert (
        write_ddl(made.arrow_type)
        == "to struct<street: struct<name: string>, other: struct<name: string>>, via struct<name: string>"
    )
    named: dict[str, Any] = {}
    fastavro.parse_schema(street, named)
    fastavro.parse_schema(address, named)
    content = io.BytesIO()
    record = {"to": {"street": {"name": "a"}, "other": None}, "via": {"name": "b"}}
    fastavro.schemaless_writer(content, fastavro.parse_schema(order, named), record)
    assert decode(made, [b"\x00" + number.to_bytes(4, "big") + content.getvalue()]) == ([record], [None])


def test_records_without_a_schema_that_is_known_get_a_reason(server: RegistryServer) -> None:
    number = server.register("orders-value", json.dumps(OLD))
    other = server.register("other", '{"type":"object"}', kind="JSON")
    unlike = server.register("unlike", json.dumps(record_of(id={"type": "string"}, gone={"type": "string"})))
    linked = server.register(
        "linked", json.dumps({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]})
    )
    made = decoder("avro", registry=server.url, subject="orders-value")
    good = framed(number, OLD, {"id": 1, "gone": ""})
    bad = [b"", b'{"id":1}', b"\x00\x00\x00\x03\xe7rest", good[:5], framed(other, OLD, {"id": 1, "gone": ""})]
    bad += [
        framed(unlike, record_of(id={"type": "string"}, gone={"type": "string"}), {"id": "1", "gone": ""}),
        b"\x00" + linked.to_bytes(4, "big") + b"\x02" * 100_000,
    ]
    values, reasons = decode(made, [good, *bad, good])
    assert values[0] == values[-1] == {"id": 1, "gone": ""}
    for reason, why in zip(
        reasons[1:-1],
        [
            "starts with nothing",
            "starts with 7b 22",
            "Schema 999 not found",
            "it ends within a value",
            "is JSON in the registry",
            "the writer's schema does not resolve: value.id: string is not int",
            "a record of it is within itself more than 100 times",
        ],
        strict=True,
    ):
        assert reason is not None and why in reason


READER = record_of(a={"type": "long"}, z={"type": "string"})
NO_COLUMNS: dict[str, tuple[Any, Any]] = {
    "a type within itself": (["null", "shop.Order"], {"a": 2, "t": {"a": 3, "t": None, "z": "x"}, "z": "y"}),
    "a list of it": ({"type": "array", "items": "shop.Order"}, [{"a": 2, "t": [], "z": "x"}] * 3),
    "a map of it": ({"type": "map", "values": ["null", "shop.Order"]}, {"k": {"a": 2, "t": {"l": None}, "z": "x"}}),
    "a record without fields": (["null", {"type": "record", "name": "E", "fields": []}], {}),
    "branches of one short name": (
        [{"type": "enum", "name": f"{space}.E", "symbols": ["A", "B"]} for space in ("x", "y")],
        "B",
    ),
    "a decimal of 60 digits": (
        {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2},
        Decimal("1" * 50),
    ),
    "a list of what takes no bytes": ({"type": "array", "items": "null"}, [None] * 3),
}


@pytest.mark.parametrize("of", NO_COLUMNS)
def test_a_writer_s_field_that_the_reader_does_not_have_need_not_be_a_column(server: RegistryServer, of: str) -> None:
    kind, value = NO_COLUMNS[of]
    writer = record_of(a={"type": "long"}, t={"type": kind}, z={"type": "string"})
    number = server.register("orders-value", json.dumps(writer))
    made = decoder("avro", schema=SchemaFile(name="r.avsc", content=json.dumps(READER).encode()), registry=server.url)
    good = framed(number, writer, {"a": 1, "t": value, "z": "end"})
    values, reasons = decode(made, [good, good[:-1], good + b"x"])
    assert values == [{"a": 1, "z": "end"}, None, None] and reasons[0] is None and all(reasons[1:])


def test_what_the_reader_takes_has_to_be_a_column_and_null_beside_it_is_none(server: RegistryServer) -> None:
    wide = ["null", {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}]
    narrow = ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}]
    writer, reader = record_of(d={"type": wide}), record_of(d={"type": narrow})
    number = server.register("orders-value", json.dumps(writer))
    made = decoder("avro", schema=SchemaFile(name="r.avsc", content=json.dumps(reader).encode()), registry=server.url)
    values, reasons = decode(made, [framed(number, writer, {"d": told}) for told in (None, Decimal("1.25"))])
    assert values == [{"d": None}, None]
    assert "value.d: decimal(60,2) has more than the 38 digits" in str(reasons[1])


LINKED = record_of(
    a={"type": "long"},
    left={"type": ["null", "shop.Order"]},
    more={"type": {"type": "array", "items": "shop.Order"}},
    z={"type": "string"},
)
linked = st.recursive(
    st.builds(lambda a, z: {"a": a, "left": None, "more": [], "z": z}, st.integers(-9, 9), st.text(max_size=3)),
    lambda inner: st.builds(
        lambda a, left, more: {"a": a, "left": left, "more": more, "z": "é"},
        st.integers(-(2**63), 2**63 - 1),
        st.none() | inner,
        st.lists(inner, max_size=3),
    ),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(linked, min_size=1, max_size=4))
def test_records_within_themselves_are_read_over_to_their_end(records: list[Any]) -> None:
    with serving() as server:
        number = server.register("orders-value", json.dumps(LINKED))
        deep = {**READER, "fields": [*READER["fields"], {"name": "left", "type": ["null", within(READER)]}]}
        made = decoder("avro", schema=SchemaFile(name="r.avsc", content=json.dumps(deep).encode()), registry=server.url)
        values, reasons = decode(made, [framed(number, LINKED, record) for record in records])
    assert reasons == [None] * len(records)
    assert values == [
        {"a": told["a"], "z": told["z"], "left": told["left"] and {"a": told["left"]["a"], "z": told["left"]["z"]}}
        for told in records
    ]


def within(record: Any) -> Any:
    """Of another name that resolves to it."""
    return record | {"name": "inner.Order"}


def test_records_within_themselves_are_read_over_so_deep_and_no_more_than_their_bytes_tell(
    server: RegistryServer,
) -> None:
    wide = [{"name": f"n{number}", "type": "null"} for number in range(900)]
    writer = record_of(a={"type": "long"}, t={"type": ["null", "shop.Order"]}, u={"type": ["null", "shop.Order"]})
    writer["fields"] += wide
    number = server.register("orders-value", json.dumps(writer))
    endless = {"type": "record", "name": "shop.Order", "fields": [{"name": "a", "type": "shop.Order"}]}
    never = server.register("never", json.dumps(endless))
    nothing = [{"type": "record", "name": "D0", "fields": []}]
    for level in range(1, 60):
        parts = [{"name": "a", "type": nothing[-1]}, {"name": "b", "type": f"D{level - 1}"}]
        nothing.append({"type": "record", "name": f"D{level}", "fields": parts})
    doubled = server.register("doubled", json.dumps(record_of(a={"type": "long"}, t={"type": nothing[-1]})))
    reader = record_of(a={"type": "long"})
    made = decoder("avro", schema=SchemaFile(name="r.avsc", content=json.dumps(reader).encode()), registry=server.url)
    head = b"\x00" + number.to_bytes(4, "big")
    deep = {depth: head + b"\x02\x02" * depth + b"\x02\x00\x00" + b"\x00" * depth for depth in (99, 110, 100_000)}
    values, reasons = decode(
        made,
        [
            *deep.values(),
            b"\x00" + never.to_bytes(4, "big") + b"\x02",
            b"\x00" + doubled.to_bytes(4, "big") + b"\x02",
            bushy(head),
        ],
    )
    assert values[0] == {"a": 1} and reasons[0] is None
    assert reasons[1] == reasons[2] == reasons[3] == "a record of it is within itself more than 100 times"
    assert "more than 20000 columns" in str(reasons[4])
    assert "values or more: 1000000 at most from so many bytes" in str(reasons[5])


def bushy(head: bytes) -> bytes:
    """A tree of 4,095 records, each of three bytes."""
    tree = b"\x02\x00\x00"
    for _ in range(11):
        tree = b"\x02" + (b"\x02" + tree) * 2
    return head + tree


def test_a_number_that_is_no_schema_s_id_is_its_record_s_fault_alone(server: RegistryServer) -> None:
    number = server.register("orders-value", json.dumps(OLD))
    server.odd = {21: 400, 22: 404, 23: 422}
    made = decoder("avro", registry=server.url, subject="orders-value")
    good = framed(number, OLD, {"id": 1, "gone": ""})
    odd = [b"\x00" + each.to_bytes(4, "big") + b"x" for each in (2**31 - 1, 2**31, 2**32 - 1, *server.odd)]
    values, reasons = decode(made, [good, *odd, good])
    assert values[0] == values[-1] == {"id": 1, "gone": ""}
    for reason, why in zip(
        reasons[1:-1],
        [
            "Schema 2147483647 not found",
            "schema id 2147483648: registries count to 2147483647",
            "schema id 4294967295: registries count to 2147483647",
            "/schemas/ids/21: HTTP 400 No id",
            "/schemas/ids/22: HTTP 404 No id",
            "/schemas/ids/23: HTTP 422 No id",
        ],
        strict=True,
    ):
        assert reason is not None and why in reason
    assert not [path for path in server.asked if path.endswith(("/2147483648", "/4294967295"))]


def test_a_registry_that_stumbles_is_asked_again(server: RegistryServer) -> None:
    server.register("orders-value", json.dumps(OLD))
    server.failures = [500, 503, 429] * 5
    assert Registry(server.url).latest("orders-value").kind == "AVRO"
    server.failures = [500] * 100
    with pytest.raises(
        RegistryUnavailable,
        match=rf"registry {server.url}/subjects/orders-value/versions/latest: no answer in 30 s \(HTTP 500\): "
        r"is it up",
    ):
        Registry(server.url).latest("orders-value")
    assert len(server.failures) == 100 - TRIES


def test_a_registry_that_was_silent_is_waited_for_again_only_once_it_has_answered(server: RegistryServer) -> None:
    """Tasks of one batch would wait as long for each of its ids."""
    server.register("orders-value", json.dumps(OLD))
    server.failures = [500] * (TRIES + 3)
    for _ in range(4):
        with pytest.raises(RegistryUnavailable, match="no answer in 30 s"):
            Registry(server.url).latest("orders-value")
    assert not server.failures
    for failures in ([], [500] * (TRIES - 1)):
        server.failures = failures
        assert Registry(server.url).latest("orders-value").kind == "AVRO"


PAGES = {
    "a page": (200, b"<html>Maintenance, back soon</html>"),
    "nothing there": (404, b"default backend - 404"),
    "no route": (404, b'{"message":"no Route matched with those values"}'),
    "no route, with a code": (404, b'{"message":"no Route matched with those values","error_code":"404"}'),
    "no such request": (400, b'{"message":"Bad Request","status":400}'),
    "a redirection": (302, b""),
    "cut off": (200, b'{"sch'),
    "another's JSON": (200, b'{"status":"starting"}'),
    "no list": (200, b"[]"),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_of_a_gateway_is_asked_past_where_the_registry_has_answered_before(
    server: RegistryServer, page: tuple[int, bytes]
) -> None:
    number = server.register("orders-value", json.dumps(OLD))
    server.pages = [page]
    with pytest.raises(RegistryUnavailable, match="is this the registry's address"):
        Registry(server.url).latest("orders-value")
    assert Registry(server.url).latest("orders-value").id == number
    for count in (1, 4):
        registries._by_id.cache_clear()
        server.pages = [page] * count
        assert Registry(server.url).schema(number).text == json.dumps(OLD)
        assert not server.pages
    # What it says itself is no page.
    with pytest.raises(SchemaUnknown):
        Registry(server.url).schema(number + 1)
    server.pages = [page] * 1000
    with pytest.raises(RegistryUnavailable, match=r"is this the registry's address\? It was: so for 30 s"):
        Registry(server.url).latest("orders-value")
    left = len(server.pages)
    with pytest.raises(RegistryUnavailable, match="It was"):
        Registry(server.url).latest("orders-value")
    assert len(server.pages) >= left - 2, "it is waited for once"


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_page_that_comes_by_turns_with_the_registry_s_answers_spoils_no_record(
    server: RegistryServer, status: int
) -> None:
    """Of a gateway's two replicas one has not got its route yet."""
    number = server.register("orders-value", json.dumps(OLD))
    made = decoder("avro", registry=server.url, subject="orders-value")
    second = server.register("orders-value", json.dumps(OLD | {"doc": "another"}))
    known, turns = server.answer, []

    def answer(path: str, authorization: str | None) -> tuple[int, Any]:
        turns.append(path)
        return (
            (status, {"message": "no Route matched with those values"})
            if len(turns) % 2
            else known(path, authorization)
        )

    server.answer = answer  # type: ignore[method-assign]
    records = [framed(each, OLD, {"id": 1, "gone": ""}) for each in (second, number)]
    assert decode(made, records)[1] == [None, None]


def test_a_schema_that_one_of_two_registries_does_not_know_yet_spoils_no_record(server: RegistryServer) -> None:
    server.register("orders-value", json.dumps(OLD))
    made = decoder("avro", registry=server.url, subject="orders-value")
    seconds = [server.register("orders-value", json.dumps(OLD | {"doc": f"another {each}"})) for each in range(3)]
    known = server.answer

    def answer(path: str, authorization: str | None) -> tuple[int, Any]:
        if path not in server.asked:
            server.asked.append(path)
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return known(path, authorization)

    server.answer = answer  # type: ignore[method-assign]
    records = [framed(each, OLD, {"id": 1, "gone": ""}) for each in seconds]
    assert decode(made, records)[1] == [None] * 3


def test_an_answer_that_comes_byte_by_byte_is_none(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "PATIENCE", AT_ONCE)
    monkeypatch.setattr(registries, "TIMEOUT_S", 0.5)
    number = server.register("orders-value", json.dumps(OLD))
    server.byte_s = 0.1
    began_s = time.monotonic()
    with pytest.raises(RegistryUnavailable, match=r"ReadTimeout no whole answer in 0\.5 s"):
        Registry(server.url).schema(number)
    assert time.monotonic() - began_s < 5
    server.byte_s = 0
    assert Registry(server.url).schema(number).id == number


def test_a_registry_that_is_not_there_is_named() -> None:
    with serving() as server:
        url = server.url
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(RegistryUnavailable, match=rf"{url}/schemas/ids/1: no answer in 30 s \(ConnectError"),
    ):
        patch.setattr(registries, "PATIENCE", hurried())
        registries._line.cache_clear()
        Registry(url).schema(1)


def test_a_registry_out_of_reach_is_no_record_s_fault(server: RegistryServer) -> None:
    number = server.register("orders-value", json.dumps(OLD))
    made = decoder("avro", registry=server.url, subject="orders-value")
    server.failures = [503] * TRIES
    value = framed(number, OLD, {"id": 1, "gone": ""})
    with pytest.raises(RegistryUnavailable):
        decode(made, [value])
    assert decode(made, [value])[1] == [None], "what failed is not remembered"


def test_credentials_come_from_the_environment(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.register("orders-value", json.dumps(OLD))
    server.credentials = "reader:secret"
    with pytest.raises(RegistryUnavailable, match=r"refuses these credentials .HTTP 401.: set SCHEMA_REGISTRY_USER"):
        Registry(server.url).latest("orders-value")
    registries._line.cache_clear()
    monkeypatch.setenv("SCHEMA_REGISTRY_USER", "reader")
    monkeypatch.setenv("SCHEMA_REGISTRY_PASSWORD", "secret")
    assert Registry(server.url).latest("orders-value").text == json.dumps(OLD)


def test_one_schema_that_these_credentials_may_not_read_is_named_and_spoils_no_record(server: RegistryServer) -> None:
    """As Kafka Connect does: the task fails, and goes on where it was once it may read the subject."""
    number = server.register("orders-value", json.dumps(OLD))
    hidden = server.register("hidden", json.dumps(OLD))
    made = decoder("avro", registry=server.url, subject="orders-value")
    records = [framed(each, OLD, {"id": 1, "gone": ""}) for each in (number, hidden)]
    server.odd = {hidden: 403}
    with pytest.raises(
        RegistryUnavailable,
        match=rf"/schemas/ids/{hidden}: answers these credentials, and refuses them this schema .HTTP 403.: permit "
        rf"SCHEMA_REGISTRY_USER to read the subject that has it \(/schemas/ids/{hidden}/subjects names it",
    ):
        decode(made, records)
    server.odd = {}
    assert decode(made, records)[1] == [None, None]


def test_what_is_wrong_with_a_registry_or_a_subject_is_said(server: RegistryServer) -> None:
    with pytest.raises(SchemaUnknown, match=r"Subject 'orders-value' not found.: register the schema there"):
        decoder("avro", registry=server.url, subject="orders-value")
    with pytest.raises(
        RegistryUnavailable, match="HTTP 404 and not a registry's answer: is this the registry's address"
    ):
        Registry(server.url + "/nowhere").latest("orders-value")
    with pytest.raises(RegistryUnavailable, match="is this the registry's address"):
        Registry(server.url + "/nowhere").schema(1)
    server.register("orders-value", '{"type":"object"}', kind="JSON")
    with pytest.raises(ConfigurationError, match="subject orders-value is JSON: choose that format"):
        decoder("avro", registry=server.url, subject="orders-value")
    for url, says in (
        ("localhost:8081", "write http://HOST:PORT"),
        ("http://user:pw@localhost:8081", "credentials in a URL end up in logs"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            decoder("avro", registry=url, subject="orders-value")
    with pytest.raises(ConfigurationError, match="format string does not use one"):
        decoder("string", registry=server.url)


def test_a_schema_that_is_beyond_what_is_read_is_its_records_fault_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as server:
        number = server.register("orders-value", json.dumps(OLD))
        long = server.register("long", json.dumps(OLD | {"doc": "x" * 5000}))
        referring = server.register(
            "many",
            json.dumps(OLD),
            references=[{"name": f"n{i}", "subject": "orders-value", "version": 1} for i in range(4)],
        )
        doubled = [{"type": "record", "name": "D0", "fields": [{"name": "x", "type": "int"}]}]
        for level in range(1, 40):
            within = [{"name": "a", "type": doubled[-1]}, {"name": "b", "type": f"D{level - 1}"}]
            doubled.append({"type": "record", "name": f"D{level}", "fields": within})
        wide = server.register("wide", json.dumps(doubled[-1]))
        monkeypatch.setattr(registries, "MAX_SCHEMA_BYTES", 5000)
        monkeypatch.setattr(registries, "REFERENCES", 3)
        made = decoder("avro", registry=server.url, subject="orders-value")
        good = framed(number, OLD, {"id": 1, "gone": ""})
        of = [framed(other, OLD, {"id": 1, "gone": ""}) for other in (long, referring)]
        values, reasons = decode(made, [good, *of, good])
        assert values[0] == values[-1] == {"id": 1, "gone": ""} and values[1:3] == [None, None]
        assert "bytes: 5000 at most are read" in str(reasons[1]) and "refers to more than 3 others" in str(reasons[2])
        monkeypatch.setattr(registries, "MAX_SCHEMA_BYTES", 8 << 20)
        values, reasons = decode(made, [good, framed(wide, OLD, {"id": 1, "gone": ""})])
        assert values == [{"id": 1, "gone": ""}, None] and "more than 20000 columns" in str(reasons[1])


def unknown(first: int, count: int, step: int = 1) -> list[bytes]:
    """Values that look like the wire format, each of another id."""
    return [b"\x00" + (first + step * index).to_bytes(4, "big") + b"garbage" for index in range(count)]


def sent(made: Decoder) -> Callable[[], Decoder]:
    """What the tasks of one batch get of a decoder: each its own."""
    shipped = pickle.dumps(made)
    return lambda: pickle.loads(shipped)  # type: ignore[no-any-return]


def asked_ids(server: RegistryServer) -> list[int]:
    """The ids that were asked for, without the questions for the highest."""
    paths = (path.removeprefix("/schemas/ids/") for path in server.asked if path.startswith("/schemas/ids/"))
    return [int(path) for path in paths if "?" not in path]


def numbered(server: RegistryServer, number: int, subject: str = "orders-value") -> bytes:
    """A good value of a schema that is registered with that id."""
    server.by_id[number] = server.by_id.pop(server.register(subject, json.dumps(OLD)))
    server.subjects[subject][-1]["id"] = number
    return framed(number, OLD, {"id": number, "gone": ""})


GOOD = {"id": 1, "gone": ""}


def test_values_that_are_not_in_the_wire_format_do_not_each_ask_the_registry(server: RegistryServer) -> None:
    good = framed(server.register("orders-value", json.dumps(OLD)), OLD, GOOD)
    task = sent(decoder("avro", registry=server.url, subject="orders-value"))
    values, reasons = decode(task(), [good, *unknown(2, 3000), *unknown(10_000_000, 1000, 7919), good])
    assert len(asked_ids(server)) <= 2 * unknown_ids.FEW + 1
    assert values[0] == values[-1] == GOOD and all(reasons[1:-1])
    assert "schema id 3001: the registry was not asked: the highest that it has given is 1" in str(reasons[3000])
    server.asked.clear()
    decode(task(), [good, *unknown(2, 3000), *unknown(10_000_000, 1000, 7919), good])
    assert not server.asked, "another task of the batch knows what the first one found out"


def test_what_a_registry_gains_is_read_by_the_batches_that_come_then(server: RegistryServer) -> None:
    good = framed(server.register("orders-value", json.dumps(OLD)), OLD, GOOD)
    made = decoder("avro", registry=server.url, subject="orders-value")
    decode(sent(made)(), [good, *unknown(2, 100)])
    later = [numbered(server, number) for number in (2, 3, 57, 300)]
    values, reasons = decode(sent(made)(), [*unknown(1000, 100), *later, good])
    assert reasons[100:] == [None] * 5 and [value["id"] for value in values[100:]] == [2, 3, 57, 300, 1]


@pytest.mark.parametrize("known", [True, False])
def test_a_record_behind_unknown_ids_is_read_however_large_its_own_id_is(server: RegistryServer, known: bool) -> None:
    """With a schema that was given no id is known beforehand."""
    server.register("orders-value", json.dumps(OLD))
    large = numbered(server, 2_000_000_000, "other")
    made = decoder(
        "avro",
        registry=server.url,
        subject="orders-value" if known else None,
        schema=None if known else SchemaFile(name="s.avsc", content=json.dumps(OLD).encode()),
    )
    values, reasons = decode(sent(made)(), [*unknown(2, 1500), large])
    assert all(reasons[:-1]) and (values[-1], reasons[-1]) == ({"id": 2_000_000_000, "gone": ""}, None)


def test_a_batch_asks_for_no_more_than_so_many_unknown_ids(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the highest a registry may have gaps: ids that were taken over from another one, or deleted for good."""
    monkeypatch.setattr(unknown_ids, "MOST", 50)
    good = framed(server.register("orders-value", json.dumps(OLD)), OLD, GOOD)
    met = numbered(server, 2_000_000_000)
    task = sent(decoder("avro", registry=server.url, subject="orders-value"))
    for _ in range(3):
        values, reasons = decode(task(), [good, *unknown(2, 200), good, met])
        assert values[0] == values[-2] == GOOD and not reasons[-1]
        assert "the registry was not asked: there are 50 ids in this batch that it does not know" in str(reasons[200])
    assert len(asked_ids(server)) == 50 + 2 + unknown_ids.FEW


def test_a_registry_that_does_not_tell_its_highest_id_is_asked_for_ids_near_those_it_has(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_ids, "NEARER_THAN", 30)
    server.tells_highest = False
    good = framed(server.register("orders-value", json.dumps(OLD)), OLD, GOOD)
    near = numbered(server, 900_000)
    made = decoder("avro", registry=server.url, subject="orders-value")
    values, reasons = decode(sent(made)(), [good, *unknown(10_000_000, 100, 7919), near, good])
    assert len(asked_ids(server)) == 30 + 2 + unknown_ids.FEW and all(reasons[1:-2])
    assert values[0] == values[-1] == GOOD and values[-2] == {"id": 900_000, "gone": ""}
    assert "the registry was not asked: it did not know 30 others, and none above" in str(reasons[-3])


EVERY_KIND = {
    "text": {"type": ["null", "string"], "default": None},
    "at": {"type": {"type": "long", "logicalType": "timestamp-millis"}},
    "price": {"type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    "state": {"type": {"type": "enum", "name": "shop.State", "symbols": ["OPEN", "SHUT"]}},
    "either": {"type": ["null", "string", "long"]},
    "part": {"type": {"type": "record", "name": "shop.Part", "fields": [{"name": "count", "type": "int"}]}},
    "again": {"type": {"type": "array", "items": "shop.Part"}},
    "pairs": {"type": {"type": "map", "values": "shop.State"}},
}
HELD: dict[str, Any] = {
    "text": "x", "at": datetime.datetime(2026, 1, 1, microsecond=1000, tzinfo=datetime.UTC), "price": Decimal("1.25"), "state": "SHUT",
    "either": 7, "part": {"count": 1}, "again": [{"count": 2}], "pairs": {"k": "OPEN"},
}  # fmt: skip
AS_COLUMNS = HELD | {"either": {"member_string": None, "member_long": 7}, "pairs": [("k", "OPEN")]}


def test_a_field_that_is_a_column_is_read_whoever_wrote_it_though_the_newest_version_has_it_no_more(
    server: RegistryServer,
) -> None:
    """At the top, within records, lists and maps, whatever type it has."""

    def order(**fields: Any) -> dict[str, Any]:
        inner = {
            "type": "record",
            "name": "shop.In",
            "fields": [{"name": "id", "type": "int"}, *record_of(**fields)["fields"]],
        }
        rows = {"type": {"type": "array", "items": {"type": "map", "values": ["null", "shop.In"]}}}
        return record_of(id={"type": "long"}, within={"type": ["null", inner]}, rows=rows)

    full, less = order(**EVERY_KIND), order()
    one = server.register("orders-value", json.dumps(full))
    columns = decoder("avro", registry=server.url, subject="orders-value").arrow_type
    two = server.register("orders-value", json.dumps(less))
    made = decoder("avro", registry=server.url, subject="orders-value", columns=columns)
    assert made.arrow_type == columns
    inner = {"id": 3, **HELD}
    old = {"id": 1, "within": inner, "rows": [{"a": inner, "b": None}]}
    new = {"id": 2, "within": {"id": 4}, "rows": [{"a": {"id": 5}}]}
    values, reasons = decode(made, [framed(one, full, old), framed(two, less, new), framed(one, full, old)])
    assert reasons == [None] * 3
    read, nothing = {"id": 3, **AS_COLUMNS}, dict.fromkeys(AS_COLUMNS)
    expected = {"id": 1, "within": read, "rows": [[("a", read), ("b", None)]]}
    assert values == [
        expected,
        {"id": 2, "within": {"id": 4, **nothing}, "rows": [[("a", {"id": 5, **nothing})]]},
        expected,
    ]
    assert isinstance(made, RegisteredDecoder) and not made.leaves_out(one)


def test_a_writer_s_field_that_the_column_of_its_name_does_not_hold_is_left_out(server: RegistryServer) -> None:
    first = record_of(
        id={"type": "int"}, _bmq_passed_over0={"type": "string"}, more={"type": "string"}, Note={"type": "string"}
    )
    one = server.register("s", json.dumps(first))
    server.register("s", json.dumps(record_of(id={"type": "int"}, note={"type": "int", "default": 1})))
    kept = pa.struct([("id", pa.int32()), ("more", pa.int64()), ("Note", pa.string())])
    made = decoder("avro", registry=server.url, subject="s", columns=kept)
    record = {"id": 1, "_bmq_passed_over0": "a", "more": "b", "Note": "c"}
    assert decode(made, [framed(one, first, record)]) == ([{"id": 1, "note": 1, "more": None}], [None])
    assert isinstance(made, RegisteredDecoder) and made.leaves_out(one)


def test_an_alias_s_field_is_the_column_of_its_new_name_alone(server: RegistryServer) -> None:
    old = server.register("s", json.dumps(OLD))
    columns = decoder("avro", registry=server.url, subject="s").arrow_type
    server.register("s", json.dumps(NEW))
    made = decoder("avro", registry=server.url, subject="s", columns=columns)
    (row,), reasons = decode(made, [framed(old, OLD, {"id": 1, "gone": "x"})])
    assert reasons == [None] and row == {"id": 1, "note": "none", "name": "x", "gone": None}
    assert isinstance(made, RegisteredDecoder) and not made.leaves_out(old)


def test_a_kept_field_changes_neither_a_union_s_branch_nor_what_types_are_called(server: RegistryServer) -> None:
    """A branch by its own name comes before one that has the name as an alias."""
    paid: dict[str, Any] = {"type": "record", "name": "shop.Paid", "fields": [{"name": "x", "type": "int"}]}
    other = paid | {"name": "shop.PaidTwo", "aliases": ["shop.Paid"]}
    rest = {"u": {"type": ["null", other, paid]}, "s": {"type": {"type": "enum", "name": "shop.S", "symbols": ["A"]}}}
    old = record_of(id={"type": "int"}, note={"type": "string"}, **rest)
    new = record_of(id={"type": "int"}, **rest)
    one = server.register("s", json.dumps(old))
    columns = decoder("avro", registry=server.url, subject="s").arrow_type
    server.register("s", json.dumps(new))
    made = decoder("avro", registry=server.url, subject="s", columns=columns)
    record = {"id": 1, "note": "n", "u": ("shop.Paid", {"x": 5}), "s": "A"}
    (row,), reasons = decode(made, [framed(one, old, record)])
    assert reasons == [None] and row["note"] == "n"
    assert row["u"] == {"member_paidtwo": None, "member_paid": {"x": 5}}
    wider = old | {
        "fields": [*old["fields"][:3], {"name": "s", "type": {"type": "enum", "name": "shop.S", "symbols": ["A", "B"]}}]
    }
    two = server.register("t", json.dumps(wider))
    _, (why,) = decode(made, [framed(two, wider, record | {"s": "B"})])
    assert why == "the writer's schema does not resolve: value.s: enum shop.S has no symbol B"


@pytest.mark.parametrize(
    ("count", "says"), [(5, None), (9, "parts, each as often as it is read"), (12, "more than 20000 columns")]
)
def test_types_that_all_refer_to_each_other_are_read_over_or_refused_and_not_spelled_out(
    server: RegistryServer, count: int, says: str | None
) -> None:
    """In a field that the table has as something else. Every way among them would be 12! parts."""

    def each(number: int) -> dict[str, Any]:
        others = [f"T{other}" if other != number + 1 else each(other) for other in range(1, count + 1)]
        fields = [{"name": f"f{place}", "type": ["null", other]} for place, other in enumerate(others)]
        return {"type": "record", "name": f"T{number}", "fields": fields}

    schema = record_of(id={"type": "int"}, x={"type": each(1)})
    number = server.register("t", json.dumps(schema))
    server.register("s", json.dumps(record_of(id={"type": "int"})))
    kept = pa.struct([("id", pa.int32()), ("x", pa.string())])
    made = decoder("avro", registry=server.url, subject="s", columns=kept)
    (row,), (why,) = decode(made, [b"\x00" + number.to_bytes(4, "big") + b"\x0e" + b"\x00" * count])
    if says is None:
        assert (row, why) == ({"id": 7, "x": None}, None)
    else:
        assert row is None and says in (why or "")


def test_a_branch_of_the_same_short_name_comes_before_an_alias(server: RegistryServer) -> None:
    def kind(name: str, **more: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}], **more}

    old = record_of(u={"type": ["null", kind("shop.Paid")]})
    one = server.register("t", json.dumps(old))
    server.register(
        "s", json.dumps(record_of(u={"type": ["null", kind("shop.New", aliases=["Paid"]), kind("sold.Paid")]}))
    )
    made = decoder("avro", registry=server.url, subject="s")
    values, _ = decode(made, [framed(one, old, {"u": {"x": 5}})])
    assert values == [{"u": {"member_new": None, "member_paid": {"x": 5}}}]


def test_writers_are_told_of_records_whose_schema_the_registry_has_and_is_not_the_newest(
    server: RegistryServer,
) -> None:
    old, new = server.register("s", json.dumps(OLD)), server.register("s", json.dumps(NEW))
    made = decoder("avro", registry=server.url, subject="s")
    assert isinstance(made, RegisteredDecoder)
    values = [
        framed(old, OLD, {"id": 1, "gone": "x"}), None, framed(new, NEW, {"id": 1, "note": "", "name": ""}),
        framed(77, OLD, {"id": 1, "gone": "x"}), b"", b"\x00", b"\x01" + framed(old, OLD, {"id": 1, "gone": "x"})[1:],
        framed(old, OLD, {"id": 1, "gone": "x"})[:5],
    ]  # fmt: skip
    array = pa.array(values, pa.binary())
    made.decode(array)
    assert made.writers(array).to_pylist() == [old, None, None, None, None, None, None, old]
    asked = len(server.asked)
    made.decode(array)
    assert made.writers(array.slice(1, 3)).to_pylist() == [None] * 3 and len(server.asked) == asked
    by_file = decoder("avro", schema=SchemaFile(name="x", content=json.dumps(OLD).encode()), registry=server.url)
    assert isinstance(by_file, RegisteredDecoder) and by_file.version is None
