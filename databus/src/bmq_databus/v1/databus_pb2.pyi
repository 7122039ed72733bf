from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WriteRequest(_message.Message):
    __slots__ = ("channel", "messages")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    channel: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, channel: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class WriteStreamRequest(_message.Message):
    __slots__ = ("channel", "messages")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    channel: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, channel: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "partition")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    partition: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., partition: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("results", "failed")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    failed: int
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., failed: _Optional[int] = ...) -> None: ...

class WriteStreamResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("written", "accepted", "sampled_out", "error", "dead_letter", "targets")
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_OUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    written: Written
    accepted: Accepted
    sampled_out: SampledOut
    error: Error
    dead_letter: DeadLetter
    targets: _containers.RepeatedCompositeFieldContainer[TargetResult]
    def __init__(self, written: _Optional[_Union[Written, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., sampled_out: _Optional[_Union[SampledOut, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., dead_letter: _Optional[_Union[DeadLetter, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[TargetResult, _Mapping]]] = ...) -> None: ...

class Written(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SampledOut(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "text", "retry_after_seconds")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    code: int
    text: str
    retry_after_seconds: int
    def __init__(self, code: _Optional[int] = ..., text: _Optional[str] = ..., retry_after_seconds: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("channel", "reason")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    channel: str
    reason: str
    def __init__(self, channel: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TargetResult(_message.Message):
    __slots__ = ("target", "result")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    target: str
    result: Result
    def __init__(self, target: _Optional[str] = ..., result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...
