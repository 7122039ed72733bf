"""`bmq up --nodes 1c3b2p`: a cluster as child processes of this one, over a folder that they share or over a bucket."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bmq.errors import ConfigurationError
from bmq.runtime.loop import run_service
from bmq.runtime.shared_folder import SharedFolder
from bmq.runtime.store_url import StoreKind, parse_store_url
from bmq_cli.processes import one_machine
from bmq_cli.processes.nodes import FIRST_IDS, Address, NodePlan, plan_nodes, shape_of
from bmq_node.configuration.addresses import WILDCARD_HOSTS
from bmq_node.configuration.values import Role
from bmq_node.process.listening import check_free
from bmq_node.process.starting import keep_private, make_bucket
from bmq_node.process.supervisor import Child, Program, supervise

_SERVES: Final = re.compile(r"(\S+) \((Kafka|admin)\)")


def up_nodes(
    shape: str,
    *,
    url: str,
    fsync: bool,
    listen: Address,
    admin: Address,
    admin_token_file: Path | None,
    linger_ms: float,
    cluster_configs: Mapping[str, str],
    limits: Mapping[str, str],
) -> int:
    """Runs the cluster until it is told to end, or cannot go on; the exit code. Raises ConfigurationError,
    CannotListen, StoreUnusable.
    """
    parsed = parse_store_url(url)
    if parsed.kind is StoreKind.MEMORY:
        raise ConfigurationError(
            f"--nodes {shape} and --store {url}: processes share no memory: choose a folder or a bucket"
        )
    plans = plan_nodes(
        shape_of(shape),
        store=_for_children(url, fsync=fsync) if parsed.kind is StoreKind.FILE else url,
        listen=listen,
        admin=admin,
        options=_options(
            listen,
            admin_token_file=admin_token_file,
            linger_ms=linger_ms,
            cluster_configs=cluster_configs,
            limits=limits,
        ),
    )
    for plan in plans:
        if plan.listen is not None:
            check_free(f"{plan.name}: --listen", plan.listen)
        check_free(f"{plan.name}: --admin", plan.admin)
    make_bucket(url)
    keep_private(url)
    folder = SharedFolder.open(parsed.folder) if parsed.folder is not None else None
    ranks = list(FIRST_IDS)
    programs = [
        Program(name=plan.name, command=(*_command(), *plan.arguments), stop_rank=ranks.index(plan.role))
        for plan in plans
    ]

    async def say_hello(children: Sequence[Child]) -> None:
        print(_hello(plans, children, url), flush=True)

    try:
        return run_service(lambda stop: supervise(programs, stop, serving=say_hello))
    finally:
        if folder is not None:
            folder.close()


def addresses_in(line: str) -> dict[str, str]:
    """HOST:PORT by what is served there, `Kafka` or `admin`, of the line with which a node says that it serves."""
    return {kind: address for address, kind in _SERVES.findall(line)}


def _for_children(url: str, *, fsync: bool) -> str:
    options = ["shared=true", *([] if fsync else ["fsync=false"])]
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(options)}"


def _options(
    listen: Address,
    *,
    admin_token_file: Path | None,
    linger_ms: float,
    cluster_configs: Mapping[str, str],
    limits: Mapping[str, str],
) -> list[str]:
    options = ["--linger-ms", f"{linger_ms:g}", *one_machine.flags()]
    if admin_token_file is not None:
        options += ["--admin-token-file", str(admin_token_file.absolute())]
    if listen[0] in WILDCARD_HOSTS:
        options += ["--advertised-listen", "127.0.0.1:0"]
    for name, value in cluster_configs.items():
        options += ["--cluster-config", f"{name}={value}"]
    for name, value in limits.items():
        options += ["--limits", f"{name}={value}"]
    return options


def _command() -> tuple[str, ...]:
    """What runs `bmq` as this process was run."""
    script = Path(sys.executable).with_name("bmq")
    return (sys.executable, str(script) if script.is_file() else sys.argv[0])


def _hello(plans: Sequence[NodePlan], children: Sequence[Child], url: str) -> str:
    addresses = [addresses_in(child.serves.result()) for child in children]
    servers = ",".join(found["Kafka"] for found in addresses if "Kafka" in found)
    command = os.path.relpath(sys.argv[0]) if os.sep in sys.argv[0] else "bmq"
    rows = [f"  {plan.name:<15} {child.serves.result()}" for plan, child in zip(plans, children, strict=True)]
    brokers = sum(plan.role is Role.BROKER for plan in plans)
    return (
        f"bmq listens on {servers} (Kafka) and {addresses[0].get('admin', 'no address')} (admin), over "
        f"{url.partition('?')[0]}\n" + "\n".join(rows) + "\nTry, in another terminal:\n"
        f"  {command} topics create hello --partitions {3 * brokers} -b {servers}\n"
        f"  echo world | {command} produce hello -b {servers}\n"
        f"  {command} consume hello --from beginning -b {servers}\n"
        f"  {command} cluster status --admin {addresses[0].get('admin', 'ADDRESS')}\n"
        "Ctrl-C stops it."
    )
