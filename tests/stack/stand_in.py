"""A stand-in for a service: serves GET /api/health, and notes in a shared file when it starts and stops.

`stand_in.py NAME PORT JOURNAL [die|hang]` - `die`: says something and exits with code 7. `hang`: ignores SIGTERM.
"""

import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import FrameType

name, port, journal, *behaviour = sys.argv[1:]


def note(what: str) -> None:
    with Path(journal).open("a") as file:
        file.write(f"{what} {name}\n")


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def on_term(_number: int, _frame: FrameType | None) -> None:
    if "hang" not in behaviour:
        note("stop")
        sys.exit(0)


signal.signal(signal.SIGTERM, on_term)
if "die" in behaviour:
    print("first line", flush=True)
    print("I cannot work like this", file=sys.stderr)
    sys.exit(7)
note("start")
HTTPServer(("127.0.0.1", int(port)), Health).serve_forever()
