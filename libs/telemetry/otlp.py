"""Spans by OpenTelemetry, sent over OTLP. Imported only where SEED_AGENTS_OTLP_ENDPOINT is set: the SDK is large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from libs.telemetry import traces
from libs.telemetry.traces import Kind, Span, Value

_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_FAULT = 500


class _Ids(RandomIdGenerator):
    """A trace has the id that the log lines have."""

    def generate_trace_id(self) -> int:
        known = traces.trace_id()
        return int(known, 16) if known else super().generate_trace_id()


class _Named:
    """An OpenTelemetry span as ours."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(attributes)


class OtelTracer:
    """Makes spans of a service and hands them to `processor`. Sampling: the SDK's own OTEL_TRACES_SAMPLER."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({SERVICE_NAME: service}), id_generator=_Ids(), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("seed-agents")
        self._carrier = TraceContextTextMapPropagator()

    @contextmanager
    def span(self, name: str, kind: Kind, attributes: dict[str, Value]) -> Iterator[Span]:
        """See traces.Tracer."""
        with self._tracer.start_as_current_span(
            name,
            context=self._above(),
            kind=_KINDS[kind],
            attributes=attributes,
            # Texts of exceptions may hold what users wrote.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _Named(span)
            except BaseException as e:
                status = getattr(e, "status", _FAULT)
                span.set_attributes({"error.type": type(e).__name__, "status": status})
                if isinstance(e, Exception) and status >= _FAULT:
                    span.set_status(Status(StatusCode.ERROR, type(e).__name__))
                raise

    def _above(self) -> Context | None:
        now = trace.get_current_span().get_span_context()
        if now.is_valid and trace.format_trace_id(now.trace_id) == traces.trace_id():
            return None
        # A task that began a trace of its own may have been made inside a span of another.
        return self._carrier.extract({"traceparent": traces.parent()}, context=Context())

    def traceparent(self) -> str:
        """See traces.Tracer."""
        now = trace.get_current_span().get_span_context()
        if not now.is_valid or trace.format_trace_id(now.trace_id) != traces.trace_id():
            return ""
        carrier: dict[str, str] = {}
        self._carrier.inject(carrier)
        return carrier["traceparent"]

    def close(self) -> None:
        """Send what is left; blocks for some seconds when nobody takes it."""
        self._provider.shutdown()


def start(service: str, endpoint: str) -> OtelTracer:
    """Send the spans of this process to an OTLP gRPC endpoint (http:// or host:port without, https:// with TLS)."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    tracer = OtelTracer(service, BatchSpanProcessor(exporter))
    traces.use(tracer)
    return tracer
