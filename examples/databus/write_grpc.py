"""Writes orders to a sidecar by gRPC: python write_grpc.py [HOST:PORT]

`bmq_databus.v1.databus_pb2` is what protoc makes of databus.proto; the two calls need nothing else of it.
"""

import sys
from collections.abc import Iterator

import grpc

from bmq_databus.v1.databus_pb2 import Message, WriteRequest, WriteResponse, WriteStreamRequest, WriteStreamResponse

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8602"

with grpc.insecure_channel(address) as channel:
    write = channel.unary_unary(
        "/bmq.databus.v1.Databus/Write",
        request_serializer=WriteRequest.SerializeToString,
        response_deserializer=WriteResponse.FromString,
    )
    stream = channel.stream_stream(
        "/bmq.databus.v1.Databus/WriteStream",
        request_serializer=WriteStreamRequest.SerializeToString,
        response_deserializer=WriteStreamResponse.FromString,
    )

    # One call of many, with a key by which it may be sent again and is written once.
    orders = [Message(key=b"4711", value=b'{"total": 5}'), Message(key=b"4712", value=b'{"total": 7}')]
    key = (("idempotency-key", "8e03978e-40d5"),)
    response = write(WriteRequest(channel="orders", messages=orders), timeout=70, metadata=key)
    for result in response.results:  # the call succeeds also where some failed
        if result.HasField("error"):
            sys.exit(result.error.text)
        print(f"written to partition {result.written.partition} at offset {result.written.offset}")

    # A stream: results come while it lasts.
    def requests() -> Iterator[WriteStreamRequest]:
        for number in range(1_000):
            message = Message(value=f"order {number}".encode())
            yield WriteStreamRequest(channel="orders", messages=[message])

    results = [result for response in stream(requests()) for result in response.results]
    print(f"{sum(result.HasField('written') for result in results)} written")
