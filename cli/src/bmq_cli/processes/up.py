"""`bmq up`: everything in one process over a folder or a bucket; with `--nodes`, a cluster of processes."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import structlog
import typer

from bmq.config.cluster_config import validate_cluster
from bmq.config.limits import limits_of
from bmq.errors import BmqError, ConfigurationError, InvalidConfig
from bmq.runtime.logging import configure_logging
from bmq.runtime.loop import raise_file_limit, run_service, settle
from bmq.runtime.metered_store import MeteredStore
from bmq.runtime.open_store import open_store
from bmq.runtime.self_test import prove_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.settings import BrokerSettings
from bmq_cli.terminal.exit_codes import code_of
from bmq_controller.machine.limits import Limits as ControllerLimits
from bmq_controller.settings import ControllerSettings
from bmq_node.admin.exposition import expose
from bmq_node.admin.server import AdminServer
from bmq_node.admin.tokens import LENGTH_MIN, AdminTokens
from bmq_node.configuration.addresses import address_of, address_text
from bmq_node.configuration.node_settings import ONE_DISK_CATCH_UP_GETS, NodeSettings
from bmq_node.configuration.server_config import flag_of
from bmq_node.configuration.values import Role
from bmq_node.node import Node
from bmq_node.process.listening import bound, check_apart, check_free
from bmq_node.process.living import CannotGoOn, live
from bmq_node.process.open_files import connections_within, limits_within, tell_if_fewer
from bmq_node.process.starting import FAILED, keep_private, make_bucket, start_failure
from bmq_proxy.settings import ProxySettings

log = structlog.get_logger()

OWN_CONFIGS: Final = {"group.initial.rebalance.delay.ms": "0"}
"""Configurations that one machine begins with: nobody waits here for the members that a deployment is still starting
elsewhere."""
TAIL_LIMIT_BYTES = 192 * 1024 * 1024
"""One process holds all roles here: less than a broker of its own would."""
PROXY: Final = ProxySettings(request_memory_bytes=64 * 1024 * 1024, fetch_memory_bytes=64 * 1024 * 1024)
"""Likewise."""


def up(  # noqa: PLR0917 - options, not arguments
    data: Annotated[
        Path | None,
        typer.Option(help="Keep everything in this folder. Default: ./bmq-data", show_default=False, readable=False),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Keep everything in this store, e.g. s3://bucket?endpoint=http://127.0.0.1:9000 (docs/stores.md)"
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="Where Kafka clients connect, HOST:PORT")] = "127.0.0.1:9092",
    admin: Annotated[str, typer.Option(help="Health, metrics and REST API, HOST:PORT")] = "127.0.0.1:9080",
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            help="A cluster-wide setting by Kafka's name, KEY=VALUE; repeatable. bmq up itself sets "
            "group.initial.rebalance.delay.ms=0",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=VALUE", help="What a single client may do (docs/limits.md); repeatable"),
    ] = None,
    linger_ms: Annotated[
        float,
        typer.Option(help="How long a batch may wait for company before it is made durable; 100 to 250 is cheap on S3"),
    ] = 5.0,
    fsync: Annotated[
        bool,
        typer.Option(
            "--fsync/--no-fsync", help="Folder only: whether acknowledged means on the disk, or only in its cache"
        ),
    ] = True,
    admin_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="BMQ_ADMIN_TOKEN_FILE",
            show_envvar=False,
            help="The REST API asks for a token of this file, which has one a line, or for $BMQ_ADMIN_TOKEN. "
            "Default: $BMQ_ADMIN_TOKEN_FILE; without, everybody may look and only this machine may change "
            "anything",
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Start a cluster of processes instead: 1c3b2p is one controller, three brokers, two proxies. The "
            "first proxy listens at --listen, the others on the ports after it; --admin is the first proxy's, "
            "and the ports after it are the other proxies', the brokers' and the controllers'",
        ),
    ] = None,
) -> None:
    """Start controller, broker and proxy in one process, or with --nodes each in processes of its own."""
    try:
        configure_logging()
        limits = _pairs("--limit", limit or [])
        settings, url = _settings(
            data=data, store=store, listen=listen, configs=config or [], limits=limits, linger_ms=linger_ms
        )
        admin_host, admin_port = _address("--admin", admin)
        tokens = _tokens(admin_token_file)
        if nodes is not None:
            raise typer.Exit(
                _up_nodes(
                    nodes,
                    settings,
                    url=url,
                    fsync=fsync,
                    admin=(admin_host, admin_port),
                    admin_token_file=admin_token_file,
                    limits=limits,
                )
            )
        address = address_of(settings.listen)
        check_apart("--listen", address, "--admin", (admin_host, admin_port))
        check_free("--listen", address)
        check_free("--admin", (admin_host, admin_port))
        make_bucket(url)
        keep_private(url)
        opened = open_store(url, fsync=fsync)
        tell_if_fewer(raise_file_limit(), PROXY.connections_max, settings.proxy.connections_max)
    except BmqError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(code_of(error)) from None

    async def main(stop: asyncio.Event) -> int:
        clock, rng = SystemClock(), SystemRng()
        expose(tuple(Role), limits=_limits(settings))
        metered = MeteredStore(opened)
        node = Node(
            metered,
            clock=clock,
            rng=rng,
            settings=settings,
            describe=lambda: _described(settings, url),
            named=flag_of,
        )
        node.admin.front.state.tokens = tokens
        server = AdminServer(node.admin.front, host=admin_host, port=admin_port, limits=settings.proxy.limits)
        failures: list[BmqError] = []

        async def start() -> None:
            await bound("--admin", admin, server.start())
            await prove_store(metered, clock, rng)
            await node.start()

        def serves() -> None:
            server.serve(ended=node.ended, lags=node.lags)
            settle()
            _say_hello(node, url, admin=f"{admin_host}:{server.port}")

        def failed(error: BmqError) -> None:
            failures.append(error)
            line = f"this bmq ends: {error}" if isinstance(error, CannotGoOn) else start_failure(error)
            print(f"error: {line}", file=sys.stderr)

        await live(node, start=start(), stop=stop, serving=serves, failed=failed)
        await server.stop()
        return FAILED if failures else 0

    try:
        code = run_service(main)
    finally:
        opened.close()
    raise typer.Exit(code)


def _up_nodes(
    shape: str,
    settings: NodeSettings,
    *,
    url: str,
    fsync: bool,
    admin: tuple[str, int],
    admin_token_file: Path | None,
    limits: Mapping[str, str],
) -> int:
    from bmq_cli.processes.up_nodes import up_nodes

    return up_nodes(
        shape,
        url=url,
        fsync=fsync,
        listen=address_of(settings.listen),
        admin=admin,
        admin_token_file=admin_token_file,
        linger_ms=settings.broker.linger_ms,
        cluster_configs=settings.cluster_configs,
        limits=limits,
    )


def _settings(
    *,
    data: Path | None,
    store: str | None,
    listen: str,
    configs: list[str],
    limits: Mapping[str, str],
    linger_ms: float,
) -> tuple[NodeSettings, str]:
    if data is not None and store is not None:
        raise ConfigurationError(f"--data {data} and --store {store} are both given: give one of them")
    folder = (data or Path("bmq-data")).absolute()
    url = store if store is not None else f"file://{quote(str(folder))}"
    host, port = _address("--listen", listen)
    if not 0 <= linger_ms <= 10_000:
        raise ConfigurationError(f"--linger-ms {linger_ms:g}: choose 0 to 10000")
    cluster_configs = {**OWN_CONFIGS, **_pairs("--config", configs)}
    try:
        own_limits = limits_of(limits)
    except ConfigurationError as error:
        raise ConfigurationError(f"--limit: {error}") from None
    try:
        validate_cluster(cluster_configs)
    except InvalidConfig as error:
        raise ConfigurationError(f"--config: {error}") from None
    connections = connections_within(raise_file_limit(), PROXY.connections_max, own_limits)
    settings = NodeSettings(
        listen=address_text(host, port),
        cluster_configs=cluster_configs,
        broker=BrokerSettings(
            linger_ms=linger_ms,
            eager=store is None,
            hedge_creates=store is not None,
            tail_limit_bytes=TAIL_LIMIT_BYTES,
            producers_per_partition=own_limits.producers_per_partition,
            producers_per_broker=own_limits.producers_per_broker,
            false_batches_per_look_up=own_limits.false_batches_per_look_up,
        ),
        controller=ControllerSettings(limits=ControllerLimits.within(own_limits)),
        groups=GroupSettings.within(own_limits),
        proxy=replace(
            PROXY if store is not None else replace(PROXY, catch_up_gets_at_once=ONE_DISK_CATCH_UP_GETS),
            connections_max=connections,
            limits=limits_within(connections, own_limits),
        ),
        log_dir=str(folder) if store is None else url.partition("?")[0],
    )
    return settings, url


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"{option} {text}: write KEY=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _limits(settings: NodeSettings) -> dict[str, int]:
    broker, proxy = settings.broker, settings.proxy
    return {
        "buffer_max_bytes": broker.buffer_max_bytes,
        "tail_budget_bytes": broker.tail_budget_bytes,
        "tail_limit_bytes": broker.tail_limit_bytes,
        "wal_budget_bytes": broker.wal_budget_bytes,
        "connections_max": proxy.connections_max,
        "request_memory_bytes": proxy.request_memory_bytes,
        "fetch_memory_bytes": proxy.fetch_memory_bytes,
    }


def _tokens(file: Path | None) -> AdminTokens | None:
    """As the nodes of a cluster have them. Raises ConfigurationError."""
    token = os.environ.get("BMQ_ADMIN_TOKEN", "")
    if file is None and not token:
        return None
    if token and len(token) < LENGTH_MIN:
        raise ConfigurationError(f"BMQ_ADMIN_TOKEN: it is too short to be safe: use at least {LENGTH_MIN} characters")
    return AdminTokens(file, option="--admin-token-file", tokens=[token] if token else [])


def _described(settings: NodeSettings, url: str) -> dict[str, Any]:
    """The configuration, as far as it can be given."""
    return {
        "roles": [str(role) for role in settings.roles],
        "store": url,
        "listen": settings.listen,
        "linger_ms": settings.broker.linger_ms,
        "cluster_config": dict(settings.cluster_configs),
    }


def _address(option: str, text: str) -> tuple[str, int]:
    try:
        return address_of(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text}: write HOST:PORT, for example 127.0.0.1:9092") from None


def _say_hello(node: Node, url: str, *, admin: str) -> None:
    assert node.proxy is not None
    address = f"{node.proxy.host}:{node.proxy.port}"
    command = os.path.relpath(sys.argv[0]) if os.sep in sys.argv[0] else "bmq"
    print(
        f"bmq listens on {address} (Kafka) and {admin} (admin), over {url.partition('?')[0]}\n"
        "Try, in another terminal:\n"
        f"  {command} topics create hello --partitions 3 -b {address}\n"
        f"  echo world | {command} produce hello -b {address}\n"
        f"  {command} consume hello --from beginning -b {address}\n"
        "Ctrl-C stops it.",
        flush=True,
    )
