"""`bmq server`: one process of a cluster, with any set of roles, from its configuration to its end."""

import asyncio
import inspect
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from bmq.config.limits import limits_of
from bmq.errors import BmqError
from bmq.runtime.bearer_tokens import BearerTokens
from bmq.runtime.logging import configure_logging
from bmq.runtime.loop import raise_file_limit, run_service, settle
from bmq.runtime.metered_store import MeteredStore
from bmq.runtime.open_store import open_store
from bmq.runtime.otel import OtelTracer
from bmq.runtime.self_test import prove_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq.storage.durable import cancelled
from bmq_cli.terminal.exit_codes import code_of
from bmq_node.admin.exposition import expose
from bmq_node.admin.server import AdminServer
from bmq_node.configuration.addresses import address_text
from bmq_node.configuration.listener_files import ListenerFile
from bmq_node.configuration.node_settings import exposed_limits, listens
from bmq_node.configuration.server_config import REPEATABLE, ServerConfig, flag_of
from bmq_node.configuration.server_reference import default_text
from bmq_node.configuration.sources import PAGE, read_config, unknown_variables
from bmq_node.configuration.values import Role
from bmq_node.node import Node
from bmq_node.process.listening import bound
from bmq_node.process.living import CannotGoOn, live
from bmq_node.process.open_files import tell_if_fewer, with_files
from bmq_node.process.over_store import settings_of
from bmq_node.process.starting import keep_private, make_bucket, start_failure
from bmq_node.process.supervised import end_with_supervisor, watch_supervisor

_log = structlog.get_logger(__name__)

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        show_default=False,
        help="A YAML file of keys; flags and BMQ_* variables go before it.",
    ),
]


def server(**given: Any) -> None:
    """Start one process of a cluster: a controller, broker or proxy, or several of these. docs/server-configuration.md
    says more of each key.
    """
    file = given.pop("config")
    config = read_config({key: value for key, value in given.items() if value}, file)
    raise typer.Exit(serve(config))


def _signature() -> inspect.Signature:
    """A parameter for each key, so that there is an option for each: all of them text, which the configuration
    reads.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("config", keyword, default=None, annotation=ConfigFile)]
    for key, field in ServerConfig.model_fields.items():
        repeatable = key in REPEATABLE
        help_text = f"{field.description} Default: {default_text(key, field).strip('`')}."
        option = typer.Option(
            flag_of(key), metavar="KEY=VALUE" if repeatable else "VALUE", help=help_text, show_default=False
        )
        kind: Any = list[str] | None if repeatable else str | None
        parameters.append(inspect.Parameter(key, keyword, default=None, annotation=Annotated[kind, option]))
    return inspect.Signature(parameters, return_annotation=None)


server.__signature__ = _signature()  # type: ignore[attr-defined]
server.__annotations__ = {name: one.annotation for name, one in _signature().parameters.items()} | {"return": None}


def serve(config: ServerConfig) -> int:
    """Runs the process until it is told to end, or cannot go on; its exit code. Raises ConfigurationError,
    StoreUnusable.
    """
    supervisor = end_with_supervisor()
    configure_logging(environment={"BMQ_LOG_LEVEL": config.log_level, "BMQ_LOG_FORMAT": config.log_format})
    structlog.contextvars.bind_contextvars(node=config.node_id)
    if unknown := unknown_variables():
        _log.warning(
            f"variables that are no keys of bmq are left alone: {PAGE} has all keys", variables=", ".join(unknown)
        )
    given, files = config, raise_file_limit()
    config = with_files(given, files)
    tracer = _tracer(config)
    make_bucket(config.store)
    keep_private(config.store)
    opened = open_store(config.store)
    tell_if_fewer(files, given.connections_max, config.connections_max)

    async def main(stop: asyncio.Event) -> int:
        watching = (
            [asyncio.ensure_future(watch_supervisor(supervisor))]
            if supervisor is not None and sys.platform != "linux"
            else []
        )
        try:
            return await _live(config, MeteredStore(opened), stop, tracer)
        finally:
            await cancelled(watching)

    try:
        return run_service(main)
    finally:
        opened.close()
        if tracer is not None:
            tracer.close()


async def _live(config: ServerConfig, store: MeteredStore, stop: asyncio.Event, tracer: OtelTracer | None) -> int:
    clock, rng = SystemClock(), SystemRng()
    address = listens(config.admin)
    expose(config.roles, limits=exposed_limits(config))
    node = Node(
        store,
        clock=clock,
        rng=rng,
        settings=settings_of(config),
        config=config,
        tracer=tracer,
        tokens=_tokens(config),
    )
    admin = (
        AdminServer(node.admin.front, host=address[0], port=address[1], limits=limits_of(config.limits))
        if address is not None
        else None
    )
    listener_file = None
    if config.advertised_listeners_file and config.has(Role.PROXY):
        listener_file = ListenerFile(
            Path(config.advertised_listeners_file), config.listeners, host_name=socket.gethostname()
        )
    code = 0

    async def start() -> None:
        if listener_file is not None:
            node.advertise(listener_file.start())
            node.run_beside("addresses of listeners", listener_file.watch(node.advertise))
        if admin is not None:
            await bound("admin", config.admin, admin.start())
        await prove_store(store, clock, rng)
        await node.start()

    def failed(error: BmqError) -> None:
        nonlocal code
        code = code_of(error)
        line = f"this bmq ends: {error}" if isinstance(error, CannotGoOn) else start_failure(error)
        print(f"error: {' '.join(line.split())}", file=sys.stderr, flush=True)

    await live(node, start=start(), stop=stop, serving=lambda: _serving(config, node, admin), failed=failed)
    if admin is not None:
        await admin.stop()
    return code


def _tokens(config: ServerConfig) -> BearerTokens | None:
    if not (config.admin_token or config.admin_tokens_accepted or config.admin_token_file):
        return None
    file = Path(config.admin_token_file) if config.admin_token_file else None
    tokens = [one for one in (config.admin_token, *config.admin_tokens_accepted.splitlines()) if one]
    return BearerTokens(file, option="admin_token_file", tokens=tokens)


def _tracer(config: ServerConfig) -> OtelTracer | None:
    """Raises ConfigurationError."""
    if not config.otlp_endpoint:
        return None
    resource: dict[str, str | int] = {
        "service.name": "bmq",
        "service.instance.id": str(config.node_id),
        "bmq.roles": ",".join(config.roles),
    }
    return OtelTracer.open(config.otlp_endpoint, sample_ratio=config.otlp_sample_ratio, resource=resource)


def _serving(config: ServerConfig, node: Node, admin: AdminServer | None) -> None:
    """Says so, on one line: `bmq up --nodes` waits for it."""
    settle()
    addresses = [f"{address_text(*node.internal)} (internal)"]
    if node.proxy is not None:
        addresses.insert(0, f"{address_text(node.proxy.host, node.proxy.port)} (Kafka)")
        addresses += [f"{address_text(*address)} ({name})" for name, address in node.proxy.listening.items()]
    if admin is not None:
        admin.serve(ended=node.ended, lags=node.lags)
        addresses.append(f"{address_text(admin.host, admin.port)} (admin)")
    print(f"bmq node {config.node_id} ({', '.join(config.roles)}) serves: {', '.join(addresses)}", flush=True)
