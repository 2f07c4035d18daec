"""Is this grpcio good for us? `python -m bench.streams`: unary throughput, and memory under streams that are abandoned.

It needs nothing of the project but grpcio, psutil and uvloop, so that any version can be tried in an environment of its
own: `pip install grpcio==… psutil uvloop && PYTHONPATH=. python bench/streams.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import psutil
import uvloop

_METHOD = "/bench.Streams/{}"
_BODY = bytes(300)
_BATCH = 200
_UNARY_S = 4.0


async def _unary(request: bytes, _context: Any) -> bytes:
    return request


async def _stream(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    yield request
    await asyncio.Event().wait()


async def _serve() -> None:
    server = grpc.aio.server()
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(_unary),
        "Stream": grpc.unary_stream_rpc_method_handler(_stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Streams", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def _rate(channel: grpc.aio.Channel, clients: int) -> float:
    call = channel.unary_unary(_METHOD.format("Unary"))
    done = 0
    end = time.monotonic() + _UNARY_S

    async def one() -> None:
        nonlocal done
        while time.monotonic() < end:
            await call(_BODY)
            done += 1

    await asyncio.gather(*(one() for _ in range(clients)))
    return done / _UNARY_S


async def _abandon(channel: grpc.aio.Channel, cancel: bool) -> None:
    open_stream = channel.unary_stream(_METHOD.format("Stream"))
    for _ in range(_BATCH):
        stream = open_stream(_BODY)
        await stream.read()
        if cancel:
            stream.cancel()
        del stream


async def _measure(port: int, server: int, batches: int, cancel: bool) -> dict[str, Any]:
    processes = {"server": psutil.Process(server), "client": psutil.Process()}
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        rates = {clients: round(await _rate(channel, clients)) for clients in (1, 32)}
        sizes: dict[str, list[float]] = {name: [] for name in processes}
        for _ in range(batches):
            await _abandon(channel, cancel)
            gc.collect()
            await asyncio.sleep(0.2)
            for name, process in processes.items():
                sizes[name].append(process.memory_full_info().uss / 1024**2)
    return {
        "grpcio": grpc.__version__,
        "unary_a_second": rates,
        "streams": batches * _BATCH,
        "cancelled": cancel,
        # The first quarter fills pools; what is added afterwards is growth.
        "kb_a_stream": {
            name: round((got[-1] - got[len(got) // 4]) * 1024 / (_BATCH * (len(got) - 1 - len(got) // 4)), 2)
            for name, got in sizes.items()
        },
        "mb": {name: [round(got[0], 1), round(got[-1], 1)] for name, got in sizes.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=40, help=f"times {_BATCH} streams")
    parser.add_argument("--cancel", action="store_true", help="cancel each stream before it is dropped")
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve())
        return
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        print(json.dumps(uvloop.run(_measure(port, server.pid, given.batches, given.cancel))))
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
