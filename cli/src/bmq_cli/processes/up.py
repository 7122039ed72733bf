"""`bmq up`: everything in one process over a folder or a bucket; with `--nodes`, a cluster of processes."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import structlog
import typer

from bmq.config.cluster_config import validate_cluster
from bmq.config.limits import limits_of
from bmq.errors import BmqError, ConfigurationError, InvalidConfig
from bmq.runtime.bearer_tokens import LENGTH_MIN, BearerTokens
from bmq.runtime.logging import configure_logging
from bmq.runtime.loop import raise_file_limit, run_service, settle
from bmq.runtime.metered_store import MeteredStore
from bmq.runtime.open_store import open_store
from bmq.runtime.self_test import prove_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq_cli.processes import one_machine
from bmq_cli.terminal.exit_codes import code_of
from bmq_node.admin.exposition import expose
from bmq_node.admin.server import AdminServer
from bmq_node.configuration.addresses import WILDCARD_HOSTS, address_of, address_text
from bmq_node.configuration.node_settings import exposed_limits
from bmq_node.configuration.server_config import ServerConfig, flag_of
from bmq_node.configuration.sources import read_config
from bmq_node.node import Node
from bmq_node.process.listening import bound, check_apart, check_free
from bmq_node.process.living import CannotGoOn, live
from bmq_node.process.open_files import tell_if_fewer, with_files
from bmq_node.process.over_store import settings_of
from bmq_node.process.starting import FAILED, keep_private, make_bucket, start_failure

log = structlog.get_logger()

OWN_CONFIGS: Final = {"group.initial.rebalance.delay.ms": "0"}
"""Configurations that one machine begins with: nobody waits here for the members that a deployment is still starting
elsewhere."""


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
        given = _config(data=data, store=store, listen=listen, configs=config or [], limits=limits, linger_ms=linger_ms)
        asked, tokens = _address("--admin", admin), _tokens(admin_token_file)
        code = (
            _serve(given, fsync=fsync, admin=asked, tokens=tokens)
            if nodes is None
            else _up_nodes(nodes, given, fsync=fsync, admin=asked, admin_token_file=admin_token_file, limits=limits)
        )
    except BmqError as error:
        print(f"error: {error}", file=sys.stderr)
        code = code_of(error)
    raise typer.Exit(code)


def _serve(given: ServerConfig, *, fsync: bool, admin: tuple[str, int], tokens: BearerTokens | None) -> int:
    """Runs the process until it is told to end, or cannot go on; its exit code. Raises ConfigurationError,
    CannotListen, StoreUnusable.
    """
    files = raise_file_limit()
    config = with_files(given, files)
    settings = settings_of(config)
    listen = address_of(config.listen)
    check_apart("--listen", listen, "--admin", admin)
    check_free("--listen", listen)
    check_free("--admin", admin)
    make_bucket(config.store)
    keep_private(config.store)
    opened = open_store(config.store, fsync=fsync)
    tell_if_fewer(files, given.connections_max, config.connections_max)

    async def main(stop: asyncio.Event) -> int:
        clock, rng = SystemClock(), SystemRng()
        expose(config.roles, limits=exposed_limits(config))
        metered = MeteredStore(opened)
        node = Node(
            metered,
            clock=clock,
            rng=rng,
            settings=settings,
            describe=lambda: given.model_dump(mode="json", include={"roles", *given.model_fields_set}),
            named=flag_of,
            tokens=tokens,
        )
        server = AdminServer(node.admin.front, host=admin[0], port=admin[1], limits=settings.proxy.limits)
        failures: list[BmqError] = []

        async def start() -> None:
            await bound("--admin", address_text(*admin), server.start())
            await prove_store(metered, clock, rng)
            await node.start()

        def serves() -> None:
            server.serve(ended=node.ended, lags=node.lags)
            settle()
            _say_hello(node, config.store, admin=f"{admin[0]}:{server.port}")

        def failed(error: BmqError) -> None:
            failures.append(error)
            line = f"this bmq ends: {error}" if isinstance(error, CannotGoOn) else start_failure(error)
            print(f"error: {line}", file=sys.stderr)

        await live(node, start=start(), stop=stop, serving=serves, failed=failed)
        await server.stop()
        return FAILED if failures else 0

    try:
        return run_service(main)
    finally:
        opened.close()


def _up_nodes(
    shape: str,
    config: ServerConfig,
    *,
    fsync: bool,
    admin: tuple[str, int],
    admin_token_file: Path | None,
    limits: Mapping[str, str],
) -> int:
    from bmq_cli.processes.up_nodes import up_nodes

    return up_nodes(
        shape,
        url=config.store,
        fsync=fsync,
        listen=address_of(config.listen),
        admin=admin,
        admin_token_file=admin_token_file,
        linger_ms=config.linger_ms,
        cluster_configs=config.cluster_config,
        limits=limits,
    )


def _config(
    *,
    data: Path | None,
    store: str | None,
    listen: str,
    configs: list[str],
    limits: Mapping[str, str],
    linger_ms: float,
) -> ServerConfig:
    """As of a server with all roles that nobody else is to find. Raises ConfigurationError."""
    if data is not None and store is not None:
        raise ConfigurationError(f"--data {data} and --store {store} are both given: give one of them")
    folder = (data or Path("bmq-data")).absolute()
    host, port = _address("--listen", listen)
    if not 0 <= linger_ms <= 10_000:
        raise ConfigurationError(f"--linger-ms {linger_ms:g}: choose 0 to 10000")
    cluster_configs = {**OWN_CONFIGS, **_pairs("--config", configs)}
    try:
        limits_of(limits)
    except ConfigurationError as error:
        raise ConfigurationError(f"--limit: {error}") from None
    try:
        validate_cluster(cluster_configs)
    except InvalidConfig as error:
        raise ConfigurationError(f"--config: {error}") from None
    anywhere = {"advertised_listen": "127.0.0.1:0"} if host in WILDCARD_HOSTS else {}
    flags = {
        **one_machine.KEYS,
        **anywhere,
        "node_id": 1,
        "store": store if store is not None else f"file://{quote(str(folder))}",
        "listen": address_text(host, port),
        "linger_ms": linger_ms,
        "cluster_config": cluster_configs,
        "limits": dict(limits),
        "balance_interval_ms": 0,
    }
    return read_config(flags, environment={})


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"{option} {text}: write KEY=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _tokens(file: Path | None) -> BearerTokens | None:
    """As the nodes of a cluster have them. Raises ConfigurationError."""
    token = os.environ.get("BMQ_ADMIN_TOKEN", "")
    if file is None and not token:
        return None
    if token and len(token) < LENGTH_MIN:
        raise ConfigurationError(f"BMQ_ADMIN_TOKEN: it is too short to be safe: use at least {LENGTH_MIN} characters")
    return BearerTokens(file, option="--admin-token-file", tokens=[token] if token else [])


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
