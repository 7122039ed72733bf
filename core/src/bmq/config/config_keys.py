"""One configuration key: its type, bounds, default, documentation, and how its text is read. Pure; owns no key of its
own.

`topic_config` and `cluster_config` hold the tables. Values travel as text, as in Kafka; numbers of their wire forms are
Kafka's.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

from bmq.errors import InvalidConfig

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,19}(\.[0-9]{0,19})?|\.[0-9]{1,19})", re.ASCII)
_ALIKE_FROM: Final = 0.5
VALUE_LENGTH_MAX: Final = 4096
"""A value's in bytes, as it was sent: blanks around it count."""

Value = bool | int | float | str | tuple[str, ...]


class ConfigType(enum.IntEnum):
    """Kafka's numbers in DescribeConfigs replies."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(enum.IntEnum):
    """Where a value comes from; Kafka's numbers in DescribeConfigs replies."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A key. `synonym` is the cluster-wide key that gives a topic's default; `refused` maps values that are legal in
    Kafka to why not here.
    """

    name: str
    type: ConfigType
    default: str
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    refused: Mapping[str, str] | None = None
    synonym: str | None = None
    read_only: bool = False

    def parse(self, text: str) -> Value:
        """The value. Raises InvalidConfig naming key, value and remedy."""
        text = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._wrong(text, "set true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.LONG:
                return self._whole_number(text)
            case ConfigType.DOUBLE:
                if _DECIMAL.fullmatch(text) is None:
                    raise self._wrong(text, "set a decimal number")
                number = float(text)
                self._check_bounds(number, text)
                return number
            case ConfigType.STRING:
                self._check_choice(text, text)
                return text
            case ConfigType.LIST:
                return self._items(text)

    def accept(self, text: str) -> str:
        """What is kept of a new value: without the blanks around it. Raises InvalidConfig, also for one that is too
        long with them.
        """
        size_bytes = len(text.encode(errors="surrogatepass"))
        if size_bytes > VALUE_LENGTH_MAX:
            raise InvalidConfig(f"{self.name}: a value of {size_bytes} bytes: at most {VALUE_LENGTH_MAX} are possible")
        self.parse(text)
        return text.strip()

    def _whole_number(self, text: str) -> int:
        limit = INT_MAX if self.type is ConfigType.INT else LONG_MAX
        if _WHOLE_NUMBER.fullmatch(text) is None or not -limit - 1 <= int(text) <= limit:
            raise self._wrong(text, f"set a whole number of at most {limit}")
        number = int(text)
        self._check_bounds(number, text)
        return number

    def _items(self, text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(",")) if text else ()
        if len(set(items)) < len(items):
            raise self._wrong(text, "name each item once")
        for item in items:
            self._check_choice(item, text)
        return items

    def _check_bounds(self, number: float, text: str) -> None:
        if self.minimum is not None and number < self.minimum:
            raise self._wrong(text, f"set at least {self.minimum}")
        if self.maximum is not None and number > self.maximum:
            raise self._wrong(text, f"set at most {self.maximum}")

    def _check_choice(self, item: str, text: str) -> None:
        if self.refused and item in self.refused:
            raise InvalidConfig(f"{self.name}={text}: {self.refused[item]}")
        if self.choices and item not in self.choices:
            raise self._wrong(text, f"set {' or '.join(self.choices)}")

    def _wrong(self, text: str, remedy: str) -> InvalidConfig:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        return InvalidConfig(f"{self.name}={shown}: {remedy}")


def config_key(
    name: str,
    type: ConfigType,
    default: str | float,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    refused: Mapping[str, str] | None = None,
    synonym: str | None = None,
    read_only: bool = False,
) -> ConfigKey:
    """A row of a table."""
    return ConfigKey(
        name=name,
        type=type,
        default=str(default),
        doc=doc,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        refused=refused,
        synonym=synonym,
        read_only=read_only,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One place that a value could come from, in the order of precedence."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One row of a DescribeConfigs reply. `synonyms` begins with the row's own value."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    documentation: str
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()


def describe(key: ConfigKey, synonyms: tuple[ConfigSynonym, ...]) -> DescribedConfig:
    """The row of a key whose possible values are `synonyms`, the one in force first. Earlier versions of bmq kept
    blanks, any number of them.
    """
    synonyms = tuple(replace(one, value=one.value.strip()[:VALUE_LENGTH_MAX]) for one in synonyms)
    return DescribedConfig(
        name=key.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        type=key.type,
        documentation=key.doc,
        read_only=key.read_only,
        synonyms=synonyms,
    )


def unknown_key(name: str, known: Iterable[str], *, kind: str) -> InvalidConfig:
    """The error for a key that is in no table, with the likely one."""
    near = _most_alike(name[:100], known)
    hint = f"did you mean {near}?" if near is not None else f"list the known ones by describing a {kind}"
    return InvalidConfig(f"{name[:100]}: no {kind} configuration has this name: {hint}")


def _most_alike(name: str, known: Iterable[str]) -> str | None:
    """By the pairs of letters that both have. A request may have ten thousand such names: where letters are compared in
    their order (difflib), some take a ms each.
    """
    pairs = _pairs(name)
    alike, found = max(((_share(pairs, _pairs_of_key(key)), key) for key in known), default=(0.0, ""))
    return found if alike >= _ALIKE_FROM else None


def _share(some: frozenset[str], others: frozenset[str]) -> float:
    return 2 * len(some & others) / max(1, len(some) + len(others))


def _pairs(text: str) -> frozenset[str]:
    return frozenset(map("".join, pairwise(text.lower())))


_pairs_of_key: Final = lru_cache(maxsize=1_000)(_pairs)
