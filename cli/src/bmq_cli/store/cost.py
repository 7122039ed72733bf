"""`bmq store cost`: what a store holds and costs, by topic."""

from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from bmq.errors import ConfigurationError
from bmq.ports import ObjectStore
from bmq.runtime.store_url import StoreUrl
from bmq.runtime.system import SystemRng
from bmq_audit.cost.attribution import shared_bytes
from bmq_audit.cost.bill import PRICE_LISTS, Bill, Prices, TopicCost, bill_of
from bmq_audit.findings import Report
from bmq_audit.metadata import audit_metadata
from bmq_audit.reading import Progress, Reader
from bmq_audit.survey import survey_store
from bmq_cli.store.check import run
from bmq_cli.store.opening import opened
from bmq_cli.terminal.exit_codes import ExitCode
from bmq_cli.terminal.output import Cell, Column, Output
from bmq_cli.terminal.sizes import size_text

_KEYS: Final = ("storage_gib_month", "put_per_1000", "get_per_1000")
_FILE_BYTES_MAX: Final = 64 << 10
_COLUMNS: Final = (
    Column(title="TOPIC"),
    Column(title="PARTITIONS", number=True),
    Column(title="OBJECTS", number=True),
    Column(title="BYTES", number=True),
    Column(title="SHARED", number=True),
    Column(title="$ A MONTH", number=True),
    Column(title="PUTS", number=True),
    Column(title="$ PUTS", number=True),
    Column(title="GETS", number=True),
    Column(title="$ GETS", number=True),
)


def cost_of_store(url: StoreUrl, output: Output, *, prices: str, at_once: int) -> ExitCode:
    """The command. Raises CommandFailed, BmqError."""
    price_list = load_prices(prices)
    with opened(url, alone=False) as store:
        bill = run(lambda: _bill(store, at_once=at_once))
    output.document(document(url, bill, price_list))
    _show(url, bill, price_list, output)
    return ExitCode.OK


def load_prices(text: str) -> Prices:
    """A list by its name, or a YAML file. Raises ConfigurationError."""
    if text in PRICE_LISTS:
        return PRICE_LISTS[text]
    path = Path(text)
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise ConfigurationError(
                f"--prices {text}: it has more than {_FILE_BYTES_MAX} bytes: name a YAML file of three prices"
            )
        found = yaml.safe_load(content.decode())
    except OSError as error:
        known = ", ".join(PRICE_LISTS)
        raise ConfigurationError(f"--prices {text}: {error.strerror}: name a YAML file, or one of {known}") from None
    except RecursionError:
        raise ConfigurationError(f"--prices {text}: no YAML: it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--prices {text}: no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"--prices {text}: not a mapping: write {', '.join(f'{key}: 0.01' for key in _KEYS)}")
    for key in found:
        if key not in (*_KEYS, "name"):
            raise ConfigurationError(f"--prices {text}: {key}: no such key: the keys are {', '.join(_KEYS)} and name")
    values = {key: _price(text, key, found.get(key)) for key in _KEYS}
    return Prices(name=str(found.get("name", path.name)), **values)


def document(url: StoreUrl, bill: Bill, prices: Prices) -> dict[str, Any]:
    """What programs get. Numbers of requests and shares are rounded."""
    return {
        "store": url.text.partition("?")[0],
        "prices": {"name": prices.name, **{key: getattr(prices, key) for key in _KEYS}},
        "topics": [_row(cost, prices) for cost in bill.topics],
        "total": _row(bill.total, prices),
        "kinds": [{"kind": kind, "objects": each.objects, "size_bytes": each.size_bytes} for kind, each in bill.kinds],
        "months": bill.months,
        "put_dollars_a_month": None if bill.months is None else round(bill.total.put_dollars(prices) / bill.months, 6),
    }


async def _bill(store: ObjectStore, *, at_once: int) -> Bill:
    reader = Reader(store, rng=SystemRng(), at_once=at_once, progress=Progress())
    survey = await survey_store(reader)
    metadata = await audit_metadata(reader, Report())
    return bill_of(survey, metadata.image, await shared_bytes(reader))


def _price(text: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise ConfigurationError(f"--prices {text}: {key} {value!r}: write dollars, for example {key}: 0.005")
    return float(value)


def _row(cost: TopicCost, prices: Prices) -> dict[str, Any]:
    return {
        "topic": cost.name,
        "partitions": cost.partitions,
        "objects": cost.own.objects,
        "own_bytes": cost.own.size_bytes,
        "shared_bytes": round(cost.shared_bytes),
        "storage_dollars_a_month": round(cost.storage_month(prices), 6),
        "puts_so_far": round(cost.puts),
        "put_dollars_so_far": round(cost.put_dollars(prices), 6),
        "gets_to_read_once": round(cost.gets),
        "get_dollars_to_read_once": round(cost.get_dollars(prices), 6),
    }


def _show(url: StoreUrl, bill: Bill, prices: Prices, output: Output) -> None:
    output.table(_COLUMNS, [_cells(cost, prices) for cost in (*bill.topics, bill.total)])
    output.text()
    columns = (Column(title="KIND"), Column(title="OBJECTS", number=True), Column(title="BYTES", number=True))
    output.table(columns, [(kind, each.objects, size_text(each.size_bytes)) for kind, each in bill.kinds])
    output.text()
    output.text(f"{url.text.partition('?')[0]} at the prices of {prices.name}:")
    output.text(f"  $ a month = (bytes + shared) ÷ 2^30 × ${prices.storage_gib_month:g}")
    output.text(f"  $ puts    = PUTs so far, as far as numbers and objects tell, ÷ 1000 × ${prices.put_per_1000:g}")
    output.text(
        f"  $ gets    = GETs to read all segments once, 1 MiB and an index each, ÷ 1000 × ${prices.get_per_1000:g}"
    )
    output.text(
        "  shared: WAL and shared segments by the bytes of their directories, metadata by the bytes of the topics; "
        "so are their PUTs"
    )
    if bill.months is not None:
        output.text(f"  PUTs at this rate: ${bill.total.put_dollars(prices) / bill.months:.2f} a month")


def _cells(cost: TopicCost, prices: Prices) -> tuple[Cell, ...]:
    return (
        cost.name,
        cost.partitions,
        cost.own.objects,
        size_text(cost.own.size_bytes),
        size_text(cost.shared_bytes),
        _dollars(cost.storage_month(prices)),
        round(cost.puts),
        _dollars(cost.put_dollars(prices)),
        round(cost.gets),
        _dollars(cost.get_dollars(prices)),
    )


def _dollars(amount: float) -> str:
    return f"{amount:.2f}" if amount >= 1 else f"{amount:.5f}"
