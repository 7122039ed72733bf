"""Spans to an OpenTelemetry collector, over OTLP and HTTP. Needs the optional dependency `bmq-core[otel]`, which is
imported here alone.

Whether a span is kept is decided before anything is made of it: the others cost a random number each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from bmq.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

EXPORT_TIMEOUT_S: Final = 5
FLUSH_MS: Final = 2_000
"""What the end of the process waits for a collector."""
_PATH: Final = "/v1/traces"


class OtelTracer:
    """A Tracer whose spans go to an OpenTelemetry collector; it keeps the share `sample_ratio` of them."""

    def __init__(self, provider: TracerProvider, tracer: Tracer, *, sample_ratio: float) -> None:
        self._provider = provider
        self._tracer = tracer
        self._sample_ratio = sample_ratio

    @classmethod
    def open(cls, endpoint: str, *, sample_ratio: float, resource: Mapping[str, str | int]) -> OtelTracer:
        """Sends nothing yet. `resource` says whose spans they are. Raises ConfigurationError where the dependency is
        missing.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        except ImportError:
            raise ConfigurationError(
                f"otlp_endpoint {endpoint}: OpenTelemetry is not installed: pip install 'bmq-core[otel]', or leave "
                "it out"
            ) from None
        provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource.create(dict(resource)), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _PATH, timeout=EXPORT_TIMEOUT_S)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider, provider.get_tracer("bmq"), sample_ratio=sample_ratio)

    def span(self, name: str, *, took_s: float, attributes: Mapping[str, str | int], failed: bool = False) -> None:
        """Sends a span that ends now, if chance has it kept."""
        if random.random() >= self._sample_ratio:
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode

        end_ns = time.time_ns()
        span = self._tracer.start_span(
            name, kind=SpanKind.SERVER, attributes=attributes, start_time=end_ns - int(took_s * 1e9)
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)

    def close(self) -> None:
        """Sends what is left, where a collector takes it soon. Blocks."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()
