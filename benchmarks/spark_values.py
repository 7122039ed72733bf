"""Rows per second of CPU (one core) by value format: `.cache/spark/bin/python benchmarks/spark_values.py`.

Records of about 100 B (5 fields) and 1 KiB (20 fields). Beside it the plain way to the same array: the format's own
library for each record, the dicts to pyarrow. The last column has one record in a hundred cut in half. CPU time, the
median of RUNS, so that a busy machine shows less.
"""

import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.json_format import MessageToDict, ParseDict

from bmq_spark.values import Decoder, SchemaFile, decoder, infer
from bmq_spark.values.ddl import write_ddl
from bmq_spark.values.protobuf_records import ProtobufDecoder

RUNS = 5
RECORDS = 20_000
TYPES = [
    ("id", "bigint", "long", "int64"),
    ("user", "string", "string", "string"),
    ("amount", "double", "double", "double"),
    ("ok", "boolean", "boolean", "bool"),
]
TYPES += [("note", "string", "string", "string")]


def fields(wide: bool) -> list[tuple[str, str, str, str]]:
    """(name, DDL, Avro, Protobuf)"""
    return TYPES + [(f"text{number}", "string", "string", "string") for number in range(15 if wide else 0)]


def documents(wide: bool) -> list[dict[str, Any]]:
    """The same content in every format."""
    return [
        {"id": number, "user": f"user-{number}", "amount": number * 0.25, "ok": number % 2 == 0, "note": "x" * 20}
        | {f"text{index}": f"{number:09d} " + "y" * 42 for index in range(15 if wide else 0)}
        for number in range(RECORDS)
    ]


def avro(wide: bool) -> tuple[list[bytes], Decoder, Callable[[bytes], Any]]:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, _, kind, _ in fields(wide)],
    }
    parsed = fastavro.parse_schema(schema)
    values = []
    for document in documents(wide):
        content = io.BytesIO()
        fastavro.schemaless_writer(content, parsed, document)
        values.append(content.getvalue())
    made = decoder("avro", schema=SchemaFile(name="r.avsc", content=json.dumps(schema).encode()))
    return values, made, lambda value: fastavro.schemaless_reader(io.BytesIO(value), parsed, None)


def protobuf(wide: bool) -> tuple[list[bytes], Decoder, Callable[[bytes], Any]]:
    lines = "".join(f"{kind} {name} = {number};" for number, (name, _, _, kind) in enumerate(fields(wide), 1))
    made = decoder(
        "protobuf", schema=SchemaFile(name="r.proto", content=f'syntax = "proto3"; message R {{ {lines} }}'.encode())
    )
    assert isinstance(made, ProtobufDecoder)
    message = made._class

    def twin(value: bytes) -> Any:
        told = MessageToDict(
            message.FromString(value), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return told | {"id": int(told["id"])}

    return [ParseDict(document, message()).SerializeToString() for document in documents(wide)], made, twin


def measured(decode: Callable[[], Any]) -> float:
    """Rows per second of CPU."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        decode()
        seconds.append(time.process_time() - start)
    return RECORDS / statistics.median(seconds)


def row(name: str, values: list[bytes], made: Decoder, twin: Callable[[bytes], Any]) -> None:
    array = pa.array(values, type=pa.binary())
    damaged = pa.array(
        [value if number % 100 else value[: len(value) // 2] for number, value in enumerate(values)], type=pa.binary()
    )
    decoded = made.decode(array)
    assert decoded.reasons.null_count == len(array)
    assert pa.array([twin(value) for value in values[1:50]], type=made.arrow_type) == decoded.values[1:50]
    beside = measured(lambda: pa.array([twin(value) for value in values], type=made.arrow_type))
    rate, bad = measured(lambda: made.decode(array)), measured(lambda: made.decode(damaged))
    size_bytes = sum(map(len, values)) / len(values)
    print(
        f"{name:16} {size_bytes:6.0f} B {rate:12,.0f} {rate * size_bytes / 2**20:8.0f} {beside:12,.0f} "
        f"{rate / beside:6.1f} {bad:12,.0f}",
        flush=True,
    )


def main() -> None:
    """The table."""
    pa.array([{"imports": "pandas"}])
    print(f"{'format':16} {'record':>8} {'rows/s':>12} {'MiB/s':>8} {'plain rows/s':>12} {'×':>6} {'1 % bad':>12}")
    for wide in (False, True):
        told = [json.dumps(document).encode() for document in documents(wide)]
        columns = infer(None, pa.array(told, type=pa.binary()))
        given = decoder("json", schema=SchemaFile(name="r.ddl", content=write_ddl(columns).encode()))
        row("string", told, decoder("string"), bytes.decode)
        row("json", told, given, json.loads)
        row("json, inferred", told, decoder("json", columns=columns), json.loads)
        row("avro", *avro(wide))
        row("protobuf", *protobuf(wide))


if __name__ == "__main__":
    main()
