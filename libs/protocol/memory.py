"""Memory files and tool documents of an agent."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import Json, OpenMap, Wire

ToolKind = Literal["builtin", "lambda", "mcp"]
ToolLanguage = Literal["typescript", "python"]
JsonSchemaTypeName = Literal["string", "number", "integer", "boolean", "object", "array", "null"]


class AgentMemoryEntry(Wire, kw_only=True):
    """A file or directory."""

    path: str
    type: Literal["file", "dir"]
    size: int
    """Bytes; 0 for directories."""
    updated_at: int
    mime_type: str | UnsetType = UNSET


class AgentMemoryTextFile(Wire, kw_only=True, tag_field="encoding", tag="utf8"):
    """A file that is UTF-8 text without NUL."""

    path: str
    size: int
    updated_at: int
    mime_type: str | UnsetType = UNSET
    content: str


class AgentMemoryBinaryFile(Wire, kw_only=True, tag_field="encoding", tag="binary"):
    """Any other file."""

    path: str
    size: int
    updated_at: int
    mime_type: str | UnsetType = UNSET
    data: bytes


AgentMemoryFile = AgentMemoryTextFile | AgentMemoryBinaryFile


class AgentToolInput(Wire, kw_only=True):
    """An authored tool as its author sends it."""

    name: str
    summary: str | UnsetType = UNSET
    description: str
    input: OpenMap
    output: OpenMap | UnsetType = UNSET
    source: str
    runtime: ToolLanguage


class AgentToolInfo(Wire, kw_only=True):
    """A tool document of an agent and what the agent may do with it."""

    name: str
    kind: ToolKind
    server: str | UnsetType = UNSET
    """Only of kind mcp, as is `remote_name`."""
    remote_name: str | UnsetType = UNSET
    summary: str
    description: str
    input: OpenMap
    output: OpenMap | UnsetType = UNSET
    source: str | UnsetType = UNSET
    """Only of kind lambda, as is `runtime`."""
    runtime: ToolLanguage | UnsetType = UNSET
    cid: str
    enabled: bool
    granted: bool
    created_at: int
    updated_at: int


class ToolDocument(Wire, kw_only=True):
    """The stored value whose DAG-CBOR bytes give the tool's CID."""

    name: str
    kind: ToolKind
    summary: str
    description: str
    input: OpenMap
    output: OpenMap | UnsetType = UNSET
    source: str | UnsetType = UNSET
    runtime: ToolLanguage | UnsetType = UNSET
    binding: str | UnsetType = UNSET
    """Executor of a builtin."""
    server: str | UnsetType = UNSET
    remote_name: str | UnsetType = UNSET


class JsonSchema(Wire, kw_only=True):
    """The subset of JSON Schema for tool contracts and typed results."""

    type: JsonSchemaTypeName | list[JsonSchemaTypeName] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    properties: "dict[str, JsonSchema] | UnsetType" = UNSET
    required: list[str] | UnsetType = UNSET
    additional_properties: "bool | JsonSchema | UnsetType" = UNSET
    enum: list[Json] | UnsetType = UNSET
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    minimum: int | float | UnsetType = UNSET
    maximum: int | float | UnsetType = UNSET
    items: "JsonSchema | UnsetType" = UNSET
    min_items: int | UnsetType = UNSET
    max_items: int | UnsetType = UNSET
