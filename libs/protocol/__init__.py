"""The public API as typed values: actions, answers, WebSocket events, their numbers and versions.

Areas are modules: `agents`, `secrets`, `mcp`, `triggers`, `memory`, `sessions`, `runs`, `journal` hold the shared
types; `actions` and `responses` the messages; `ws` the events; `limits`, `models`, `text` the rules. What is used
everywhere is importable from here.
"""

from .actions import ACTIONS, MUTATING, SOCKET_ONLY, Action, AgentAction
from .base import Json, OpenMap, Response, Wire
from .encoding import encode_response, json_bytes, json_safe, to_wire, ws_json
from .responses import ANSWERS, PROTOCOL_TOO_OLD, RESPONSES, AgentResponse, Error
from .text import Invalid, byte_length, derived_title, optional_text_argument, required_text, text_argument
from .versions import MIN_CLIENT_PROTOCOL, PROTOCOL_VERSION
from .ws import WsEvent, read_ws_event

__all__ = [
    "ACTIONS",
    "ANSWERS",
    "MIN_CLIENT_PROTOCOL",
    "MUTATING",
    "PROTOCOL_TOO_OLD",
    "PROTOCOL_VERSION",
    "RESPONSES",
    "SOCKET_ONLY",
    "Action",
    "AgentAction",
    "AgentResponse",
    "Error",
    "Invalid",
    "Json",
    "OpenMap",
    "Response",
    "Wire",
    "WsEvent",
    "byte_length",
    "derived_title",
    "encode_response",
    "json_bytes",
    "json_safe",
    "optional_text_argument",
    "read_ws_event",
    "required_text",
    "text_argument",
    "to_wire",
    "ws_json",
]
