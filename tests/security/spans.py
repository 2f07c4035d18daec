"""Takes the spans of systems under test, over OTLP, as they come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


class Spans(TraceServiceServicer):
    """A collector: `endpoint` is what a process sends to, `held` all that came."""

    def __init__(self) -> None:
        self._got: list[bytes] = []
        self._server = grpc.server(ThreadPoolExecutor(1))
        add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        """Take some spans."""
        self._got.append(request.SerializeToString())
        return ExportTraceServiceResponse()

    @property
    def held(self) -> bytes:
        """The messages one after the other."""
        return b"\n".join(self._got)

    def close(self) -> None:
        """Stop."""
        self._server.stop(0).wait()
