"""Spark's DDL of types, read and written without a JVM: `id bigint, tags array<string>, address struct<street: string
not null>`.
"""

import re
from typing import Final, NoReturn

import pyarrow as pa

from bmq_spark.values.schema_files import SchemaFile

UTC_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC_TIMESTAMP,
    "timestamp_ltz": UTC_TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "dec": pa.decimal128(10, 0),
    "numeric": pa.decimal128(10, 0),
}
_WRITTEN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    UTC_TIMESTAMP: "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_TOKEN: Final = re.compile(
    r"(?P<word>(?:[A-Za-z0-9_$.]|-(?!-))+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<mark>[<>():,])|'(?P<text>(?:[^'\\]|\\.)*)'",
    re.DOTALL,
)
_BLANK: Final = re.compile(r"(?:\s|--(?:\\\n|[^\r\n])*)+")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_DIGITS: Final = re.compile(r"[0-9]{1,3}")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEPTH: Final = 50


def read_ddl(source: SchemaFile) -> pa.DataType:
    """The struct type. `NOT NULL` becomes a field that is not nullable. Raises ConfigurationError with line and
    column.
    """
    return _Parser(source).whole()


def write_ddl(arrow_type: pa.DataType) -> str:
    """A type in DDL; a struct comes as its fields, as StructType.fromDDL and CREATE TABLE take them. Types of
    ddl.SIMPLE and their nesting only.
    """
    if pa.types.is_struct(arrow_type):
        return ", ".join(
            f"{_name(field.name)} {_nested(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in arrow_type
        )
    return _nested(arrow_type)


def _nested(arrow_type: pa.DataType) -> str:
    if pa.types.is_struct(arrow_type):
        fields = (
            f"{_name(field.name)}: {_nested(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in arrow_type
        )
        return f"struct<{', '.join(fields)}>"
    if pa.types.is_map(arrow_type):
        return f"map<{_nested(arrow_type.key_type)}, {_nested(arrow_type.item_type)}>"
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return f"array<{_nested(arrow_type.value_type)}>"
    if pa.types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    return _WRITTEN[arrow_type]


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Recursive descent over the tokens of one text; the grammar has no more than names, types, and NOT NULL and
    COMMENT after them.
    """

    def __init__(self, source: SchemaFile) -> None:
        self._source = source
        self._text = source.text
        self._tokens: list[tuple[str, str, int]] = []
        position = self._past_blanks(0)
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._fail("a character that DDL does not have here", position)
            kind = match.lastgroup or ""
            self._tokens.append(
                (kind, match[kind].replace("``", "`") if kind == "quoted" else match[kind], match.start(kind))
            )
            position = self._past_blanks(match.end())
        self._at = 0

    def _past_blanks(self, at: int) -> int:
        """Behind blanks and comments; those in brackets may be within one another."""
        while True:
            blank = _BLANK.match(self._text, at)
            at = blank.end() if blank else at
            if not self._text.startswith("/*", at):
                return at
            depth, begin = 0, at
            for edge in _COMMENT_EDGE.finditer(self._text, at):
                depth += 1 if edge[0] == "/*" else -1
                at = edge.end()
                if depth == 0:
                    break
            else:
                self._fail("a comment that does not end", begin)

    def whole(self) -> pa.DataType:
        if len(self._tokens) > 1 and self._peek() == "struct" and self._tokens[1][1] == "<":
            self._at += 2
            struct = self._fields(">", 0)
            self._expect(">")
        else:
            struct = self._fields("", 0)
        if self._at < len(self._tokens):
            self._fail(f"{self._tokens[self._at][1]!r} where a comma or the end should be", self._tokens[self._at][2])
        return struct

    def _fields(self, end: str, depth: int) -> pa.DataType:
        fields: list[pa.Field] = []
        seen: set[str] = set()
        while True:
            kind, name, position = self._next("a field's name")
            if kind not in ("word", "quoted"):
                self._fail(f"{name!r} where a field's name should be", position)
            if name.lower() in seen:
                self._fail(f"field {name!r} a second time (case does not tell names apart)", position)
            seen.add(name.lower())
            if self._peek() == ":":
                self._at += 1
            arrow_type = self._type(depth)
            nullable = True
            while self._peek() in ("not", "comment"):
                if self._next("")[1].lower() == "not":
                    self._expect("null")
                    nullable = False
                else:
                    self._next("a comment's text")
            fields.append(pa.field(name, arrow_type, nullable=nullable))
            if self._peek() != ",":
                break
            self._at += 1
        if end and self._peek() != end:
            self._expect(end)
        return pa.struct(fields)

    def _type(self, depth: int) -> pa.DataType:
        kind, word, position = self._next("a type")
        if kind != "word":
            self._fail(f"{word!r} where a type should be", position)
        if depth > DEPTH:
            self._fail(f"more than {DEPTH} types within one another", position)
        match word.lower():
            case "struct":
                self._expect("<")
                arrow_type = self._fields(">", depth + 1)
                self._expect(">")
            case "array":
                self._expect("<")
                arrow_type = pa.list_(self._type(depth + 1))
                self._expect(">")
            case "map":
                self._expect("<")
                key = self._type(depth + 1)
                self._expect(",")
                arrow_type = pa.map_(key, self._type(depth + 1))
                self._expect(">")
            case "decimal" | "dec" | "numeric" if self._peek() == "(":
                arrow_type = self._decimal(position)
            case simple if simple in SIMPLE:
                arrow_type = SIMPLE[simple]
            case _:
                self._fail(
                    f"type {word!r} is not known (known: "
                    f"{', '.join(sorted({*_WRITTEN.values(), 'decimal(P,S)', 'array', 'map', 'struct'}))})",
                    position,
                )
        return arrow_type

    def _decimal(self, position: int) -> pa.DataType:
        self._expect("(")
        numbers = [self._next("a precision")]
        if self._peek() == ",":
            self._at += 1
            numbers.append(self._next("a scale"))
        self._expect(")")
        digits = [number for _, number, _ in numbers]
        if (
            not all(kind == "word" and _DIGITS.fullmatch(number) for kind, number, _ in numbers)
            or not 1 <= int(digits[0]) <= 38
            or int(digits[-1]) > int(digits[0])
        ):
            self._fail(
                f"decimal({','.join(digits)[:40]}) has to have a precision of 1 to 38 and a scale of at most the "
                "precision",
                position,
            )
        return pa.decimal128(int(digits[0]), int(digits[1]) if len(digits) > 1 else 0)

    def _peek(self) -> str:
        return self._tokens[self._at][1].lower() if self._at < len(self._tokens) else ""

    def _next(self, wanted: str) -> tuple[str, str, int]:
        if self._at >= len(self._tokens):
            self._fail(f"the text ends where {wanted} should be", len(self._text))
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        _, found, position = self._next(repr(mark))
        if found.lower() != mark:
            self._fail(f"{found!r} where {mark!r} should be", position)

    def _fail(self, what: str, position: int) -> NoReturn:
        raise self._source.broken(
            what, "write Spark's DDL, for example: id bigint, name string, tags array<string>", position=position
        )
