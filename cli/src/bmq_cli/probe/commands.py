"""`bmq probe`: measures, for as long as it runs, how long a record takes from a producer to a consumer."""

import signal
import sys
from threading import Event
from typing import Annotated, Any

import structlog
import typer
from prometheus_client import disable_created_metrics

from bmq.errors import ConfigurationError
from bmq.runtime.logging import configure_logging
from bmq_cli.probe.metrics_server import MetricsServer
from bmq_cli.probe.prober import Prober, ProbeSettings
from bmq_cli.session import Session, with_session
from bmq_node.configuration.addresses import address_of, address_text
from bmq_node.process.starting import FAILED

log = structlog.get_logger("bmq.probe")


@with_session
def probe(
    session: Session,
    *,
    interval_ms: Annotated[
        int, typer.Option(min=10, max=3_600_000, envvar="BMQ_PROBE_INTERVAL_MS", help="How often it sends a record.")
    ] = 1000,
    topic: Annotated[
        str, typer.Option(envvar="BMQ_PROBE_TOPIC", help="Where to; made if it is missing, and kept for ten minutes.")
    ] = "__bmq_probe",
    partitions: Annotated[
        int,
        typer.Option(
            min=1, max=100, help="How many partitions the topic is made with: it sends to one after the other."
        ),
    ] = 12,
    timeout_ms: Annotated[
        int,
        typer.Option(
            min=100,
            max=600_000,
            envvar="BMQ_PROBE_TIMEOUT_MS",
            help="A record that is not consumed after so long has failed.",
        ),
    ] = 10_000,
    admin: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", envvar="BMQ_PROBE_ADMIN", help="Where it serves /metrics, /livez and /readyz."
        ),
    ] = "127.0.0.1:9081",
) -> None:
    """Send a record every so often and measure until a consumer has it. Runs until it is stopped; docs/monitoring.md
    has its metrics.
    """
    configure_logging()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    settings = ProbeSettings(
        topic=topic, partitions=partitions, interval_s=interval_ms / 1000, timeout_s=timeout_ms / 1000
    )
    try:
        host, port = address_of(admin)
    except ValueError:
        raise ConfigurationError(f"--admin {admin}: write HOST:PORT, for example 127.0.0.1:9081") from None
    prober = Prober(session.connection, settings)
    try:
        server = MetricsServer(host, port, why_dead=prober.why_dead, why_not_ready=prober.why_not_ready)
    except OSError as error:
        print(f"error: --admin {admin}: {error.strerror or error}. choose another address", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    stop = Event()

    def end(number: int, _: Any) -> None:
        log.info("stops", signal=signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print(
        f"bmq probe of {session.connection.bootstrap_server} serves: {address_text(host, server.port)} (admin)",
        flush=True,
    )
    prober.run(stop)
    server.close()
