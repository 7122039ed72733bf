"""A message as the line of JSON that makes it again where it is written to a channel. Pure.

A value that is a JSON object or array is `json`, other text is `text`, all else `base64`: none of them changes a byte.
"""

from typing import Any, Final

import msgspec

from bmq_databus.messages.forms import NewMessage

_encode: Final = msgspec.json.Encoder().encode
_raw: Final = msgspec.json.Decoder(msgspec.Raw)
_MARGIN: Final = 200
"""Who takes the line decodes it within other calls, and the depth that can be decoded is that of all together."""
_NO_JSON: Final = (msgspec.MsgspecError, RecursionError)


def line_of(message: NewMessage) -> bytes:
    """With its line break."""
    written: dict[str, Any] = {}
    if message.key is not None:
        if (key := _text(message.key)) is None:
            written["keyBase64"] = message.key
        else:
            written["key"] = key
    if message.headers:
        written["headers"] = _headers(message.headers)
    if message.timestamp_ms > 0:
        written["timestamp"] = message.timestamp_ms
    if message.partition >= 0:
        written["partition"] = message.partition
    if message.value is not None:
        written |= _value(message.value)
    return _encode(written) + b"\n"


def _value(value: bytes) -> dict[str, Any]:
    text = _text(value)
    if text is None:
        return {"base64": value}
    return {"json": msgspec.Raw(value)} if _is_json(value) else {"text": text}


def _is_json(value: bytes) -> bool:
    """An object or an array in one line, without anything around it."""
    if value[:1] not in (b"{", b"[") or value[-1:] not in (b"}", b"]") or b"\n" in value:
        return False
    try:
        _raw.decode(value)
        _raw.decode(b"[" * _MARGIN + value + b"]" * _MARGIN)
    except _NO_JSON:
        return False
    return True


def _headers(headers: tuple[tuple[str, bytes | None], ...]) -> Any:
    texts = {name: None if content is None else _text(content) for name, content in headers}
    if len(texts) == len(headers) and all((texts[name] is None) == (content is None) for name, content in headers):
        return texts
    return [{"name": name, **_content(content)} for name, content in headers]


def _content(content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {}
    text = _text(content)
    return {"base64": content} if text is None else {"text": text}


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
