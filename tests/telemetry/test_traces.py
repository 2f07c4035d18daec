"""Spans over internal calls: one trace with the id of the log lines, no text of anybody in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from seed.runs.v1 import runs_pb2

from libs import telemetry
from libs.errors import NotFound
from libs.rpc import Caller
from libs.telemetry import otlp, traces
from libs.telemetry.otlp import OtelTracer
from tests.rpc.conftest import World, get
from tests.rpc.conftest import world as world

SECRET = "what a user wrote"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer("test", SimpleSpanProcessor(exporter))
    traces.use(tracer)
    yield exporter
    traces.use(None)
    tracer.close()


def named(exporter: InMemorySpanExporter, name: str, kind: SpanKind = SpanKind.INTERNAL) -> ReadableSpan:
    (found,) = [s for s in exporter.get_finished_spans() if s.name == name and s.kind is kind]
    return found


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format_trace_id(span.context.trace_id)


def above(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_call_is_one_trace_with_the_id_of_the_log_lines(world: World, exported: InMemorySpanExporter) -> None:
    server = await world.serve()
    logged: list[str] = []

    async def act(request: Any, caller: Caller) -> Any:
        logged.append(telemetry.trace_id())
        with telemetry.span("inner", run=request.run_id):
            return runs_pb2.GetRunResponse()

    world.servicer.act = act
    trace = telemetry.new_trace()
    with telemetry.span("request", "server") as span:
        span.name("request GetRun")
        span.set(status=200)
        await get(world.peer(server.port), "r-1", account="acc")
    request = named(exported, "request GetRun", SpanKind.SERVER)
    client = named(exported, "RunsService.GetRun", SpanKind.CLIENT)
    serving = named(exported, "RunsService.GetRun", SpanKind.SERVER)
    inner = named(exported, "inner")
    assert {trace_of(s) for s in (request, client, serving, inner)} == {trace} == set(logged)
    assert [above(s) for s in (request, client, serving, inner)] == [None, *map(id_of, (request, client, serving))]
    assert dict(request.attributes or {}) == {"status": 200} and dict(inner.attributes or {}) == {"run": "r-1"}
    assert request.resource.attributes["service.name"] == "test"


async def test_what_fails_is_told_by_its_type(world: World, exported: InMemorySpanExporter) -> None:
    server = await world.serve()
    errors: list[Exception] = [NotFound(SECRET), ValueError(SECRET)]

    async def act(request: Any, caller: Caller) -> Any:
        raise errors.pop(0)

    world.servicer.act = act
    peer = world.peer(server.port)
    for _ in range(2):
        telemetry.new_trace()
        with pytest.raises(Exception, match=r"."):
            await get(peer, signature=f"{'00' * 32}.1.{'00' * 32}")
    refused, failed = [s for s in exported.get_finished_spans() if s.kind is SpanKind.SERVER]
    assert refused.status.status_code is StatusCode.UNSET and (refused.attributes or {})["error.type"] == "NotFound"
    assert failed.status.status_code is StatusCode.ERROR and failed.status.description == "ValueError"
    everything = "".join(s.to_json() for s in exported.get_finished_spans())
    assert SECRET not in everything and "authorization" not in everything and "00" * 32 not in everything


async def test_a_task_that_begins_a_trace_of_its_own(exported: InMemorySpanExporter) -> None:
    async def turn() -> str:
        trace = telemetry.new_trace()
        with telemetry.span("turn"):
            return trace

    outer = telemetry.new_trace()
    with telemetry.span("outer"):
        own = await asyncio.create_task(turn())
        assert telemetry.traceparent().startswith(f"00-{outer}-")
    assert trace_of(named(exported, "turn")) == own != outer and above(named(exported, "turn")) is None


def test_what_travels_without_spans() -> None:
    trace = telemetry.new_trace()
    value = telemetry.traceparent()
    assert value.startswith(f"00-{trace}-") and value.endswith("-00") and len(value) == 55
    telemetry.bind_trace("")
    assert telemetry.traceparent() == ""
    telemetry.bind_traceparent("00-zz")
    assert telemetry.trace_id() == ""
    telemetry.bind_traceparent(value)
    assert telemetry.trace_id() == trace and traces.parent() == value
    telemetry.bind_trace("")


def test_spans_arrive_at_a_collector() -> None:
    got: list[ExportTraceServiceRequest] = []

    class Collector(TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
            got.append(request)
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    tracer = otlp.start("svc", f"http://127.0.0.1:{port}")
    try:
        trace = telemetry.new_trace()
        with telemetry.span("work"):
            pass
    finally:
        traces.use(None)
        telemetry.bind_trace("")
        tracer.close()
        server.stop(0).wait()
    (span,) = [span for request in got for r in request.resource_spans for s in r.scope_spans for span in s.spans]
    assert (span.name, span.trace_id.hex()) == ("work", trace)


def test_spans_that_are_off_do_nothing() -> None:
    with telemetry.span("a", "client", peer="b") as span:
        span.set(more=1)
        span.name("c")
    with pytest.raises(ValueError), telemetry.span("a"):
        raise ValueError


def test_a_parent_of_another_process(exported: InMemorySpanExporter) -> None:
    telemetry.bind_traceparent(f"00-{'ab' * 16}-{'cd' * 8}-01")
    with telemetry.span("here"):
        pass
    here = named(exported, "here")
    assert trace_of(here) == "ab" * 16 and here.parent is not None
    assert format_span_id(here.parent.span_id) == "cd" * 8
    telemetry.bind_trace("")
