"""Every number of the wire that more than one part needs. Bytes are UTF-8 bytes; KIB = 1024; `_MS` are milliseconds.

Each constant names what happens beyond it; the texts are the public messages.
"""

import re
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Envelope, HTTP, WebSocket

CLOCK_SKEW_MS: Final = 300_000
"""Default distance between a client's `ts` and our clock, either way."""
REQUEST_BODY_BYTES: Final = 256 * MIB
"""Default bound of one body; 413 `Request body is too large`."""
BODIES_IN_FLIGHT_BYTES: Final = 512 * MIB
"""Default bound of all bodies an edge holds at once; 503 with Retry-After."""
SUBSCRIPTIONS_PER_SOCKET: Final = 256
"""Error event `Too many subscriptions`."""
REQUESTS_PER_ACCOUNT: Final = 200
"""Of our own: requests a second of one account on the average."""
REQUEST_BURST_PER_ACCOUNT: Final = 1000
REQUESTS_PER_ADDRESS: Final = 500
REQUEST_BURST_PER_ADDRESS: Final = 2000
SOCKETS_PER_ACCOUNT: Final = 64
"""Error event `Too many sockets` at the first Subscribe, then close 1013."""
SOCKETS_PER_ADDRESS: Final = 256
"""429 at the upgrade."""
SEND_QUEUE_BYTES: Final = 4 * MIB
"""Of a socket: partials are dropped, then close 1013."""
PING_INTERVAL_S: Final = 30
PONG_TIMEOUT_S: Final = 10
SHUTDOWN_DRAIN_S: Final = 5

# Names and texts: 400 `<Label> is too large`

LABEL_BYTES: Final = 256
"""Names, titles, labels, signals, provider types, model ids and every id argument."""
SESSION_DESCRIPTION_BYTES: Final = 1024
PROMPT_BYTES: Final = 64 * KIB
"""Rendered markdown of a system prompt, trigger prompt or profile description."""
MESSAGE_BYTES: Final = 64 * KIB
"""All text parts of one message joined by newline: `Message content is too large`; also a detached child's prompt."""
CONTEXT_LINES: Final = 64
"""`Too many context lines`."""
CONTEXT_LINE_BYTES: Final = 2 * KIB
"""`Context line is too large`."""
ATTACHMENTS_PER_MESSAGE: Final = 16
"""Distinct ones: `A message can reference at most 16 attachments`."""
URL_BYTES: Final = 2048
"""Base URLs, trigger resources and prefixes, hm ids, document paths, web URLs."""
OAUTH_CODE_BYTES: Final = 8192
SECRET_VALUE_BYTES: Final = 64 * KIB
"""`Secret value is too large`."""
METADATA_BYTES: Final = 16 * KIB
"""CBOR of agent and secret metadata, model defaults, document metadata."""
TOOLS_PER_DEFINITION: Final = 32
"""`Too many tools`."""
TOOL_NAME_BYTES: Final = 128
"""`Tool name is too large`."""
TOOLS_BYTES: Final = 4 * KIB
"""All tool names of a definition together: `Tools are too large`."""
ENABLED_MODELS: Final = 32
"""`Too many enabled models`."""
MCP_SERVERS_PER_DEFINITION: Final = 16
"""`Too many MCP servers`."""
SIGNING_KEYS: Final = 32
TRIGGER_LIST_ENTRIES: Final = 32
"""Accounts of each kind and event types of a trigger: `Too many trigger …`."""
ACTIVITY_CONDITIONS: Final = 32
"""At least 1."""
ATTACHMENT_NAME_BYTES: Final = 256
ATTACHMENT_NAME_KEPT_CHARS: Final = 64
"""Of a longer name the last so many characters are kept."""
DERIVED_TITLE_CHARS: Final = 80
"""A longer derived title is cut to one less, plus `…`."""

AUTHORED_TOOL_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{1,63}")
MCP_SERVER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
ATTACHMENT_ID: Final = re.compile(r"[0-9a-f]{64}")
SESSION_ID_IN_PATH: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
TIME_OF_DAY: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
IPFS_CID: Final = re.compile(r"[A-Za-z0-9]{32,}")
# All patterns are for `fullmatch`.

SIGNING_IDENTITY_SECRET_PREFIX: Final = "hm-account-"
"""Followed by the first 16 characters of the account id."""
OAUTH_SECRET_SUFFIX: Final = "-subscription-oauth"
"""After the provider type."""

# Pages and listings: clamped

LIST_DEFAULT: Final = 50
"""ListSessions and ListRuns without a limit that is a number."""
LIST_MAX: Final = 200
THREAD_LISTING_DEFAULT: Final = 25
THREAD_LISTING_MAX: Final = 100
THREAD_SEARCH_SESSIONS: Final = 400
THREAD_SEARCH_EVENTS: Final = 4000
THREAD_SNIPPET_CHARS: Final = 80
"""Either side of a hit."""
THREAD_EVENTS: Final = 200
THREAD_BYTES: Final = 256 * KIB
TRIGGER_READ_FIRINGS: Final = 5
ACTIVITY_PAGE_MAX: Final = 50
SEARCH_PAGE_DEFAULT: Final = 20
SEARCH_PAGE_SHORT_QUERY: Final = 30
"""For queries under 3 characters."""
SEARCH_PAGE_MAX: Final = 50
SEARCH_CONTEXT_DEFAULT: Final = 48
SEARCH_CONTEXT_MAX: Final = 512
WEB_SEARCH_DEFAULT: Final = 10
WEB_SEARCH_MAX: Final = 25
DRAFTS_DEFAULT: Final = 50
DRAFTS_MAX: Final = 100

# Memory, attachments, uploads

MEMORY_PATH_BYTES: Final = 512
"""`Memory path is too long`."""
MEMORY_PATH_LEVELS: Final = 16
"""`Memory path is nested too deeply`."""
DOWNLOAD_IDLE_TIMEOUT_S: Final = 60
DOWNLOAD_NAME_CHARS: Final = 128
ATTACHMENT_BYTES: Final = 100 * MIB
"""413 `Attachment exceeds the 100 MiB limit`."""
ATTACHMENTS_PER_SESSION: Final = 200
STORAGE_PER_ACCOUNT_BYTES: Final = 10 * GIB
"""Of our own: attachments of all sessions of an account."""
"""413 `Session already has 200 attachments`."""
UPLOAD_CHUNK_BYTES: Final = 8 * MIB
"""`maxChunkBytes`; 413 `Chunk is too large`."""
MEMORY_UPLOAD_BYTES: Final = 2 * GIB
"""413 `Upload exceeds the maximum file size`."""
UPLOAD_IDLE_MS: Final = 3_600_000
"""A staged upload untouched for so long is discarded."""
UPLOADS_PER_ACCOUNT: Final = 8
"""429 `Too many uploads in progress`."""
INLINE_IMAGE_BYTES: Final = 4_500_000
TEXT_ATTACHMENT_BYTES: Final = 256 * KIB

# Tools, documents, results

TOOL_SOURCE_BYTES: Final = 256 * KIB
TOOL_DESCRIPTION_BYTES: Final = 16 * KIB
TOOL_SUMMARY_CHARS: Final = 140
TOOL_DOCUMENTS_BYTES: Final = 32 * MIB
"""Of an agent, all together: they are listed in one answer. Ours; 413 `The tools of this agent are too large`."""
HYPERMEDIA_CONTENT_BYTES: Final = 256 * KIB
TOOL_RESULT_BYTES: Final = 8 * KIB
"""Of a result's text as the model gets it; the stored event keeps all."""
RESULT_MARKDOWN_BYTES: Final = 256 * KIB
SPACE_INDEX_CHARS: Final = 2048
SPACE_INDEX_MEMORY_ENTRIES: Final = 12
SPACE_INDEX_TRIGGERS: Final = 16
LINKS_CHECKED: Final = 50
LINKS_CHECKED_AT_ONCE: Final = 4
HM_READ_TIMEOUT_S: Final = 30
WEB_FETCH_TIMEOUT_S: Final = 15
WEB_RENDERED_FETCH_TIMEOUT_S: Final = 45
WEB_MARKDOWN_BYTES: Final = 200 * KIB
WEB_THIN_PAGE_CHARS: Final = 200
WEB_QUERY_CHARS: Final = 512
WEB_SEARCH_QUERY_CHARS: Final = 1024
WEB_SEARCH_TITLE_CHARS: Final = 512
WEB_SEARCH_SNIPPET_CHARS: Final = 1024
WEB_SEARCH_LANGUAGE_CHARS: Final = 16
ACCOUNT_NAME_TIMEOUT_S: Final = 1
ACCOUNT_NAME_TTL_S: Final = 300
ACCOUNT_NAME_FAILURE_TTL_S: Final = 30
ACCOUNT_NAME_CHARS: Final = 200
MCP_HEADERS: Final = 16
"""Plain, and as many secret ones: `Too many MCP headers`."""
MCP_HEADER_BYTES: Final = 4 * KIB
"""`MCP header is too large`."""
MCP_CONNECT_TIMEOUT_S: Final = 20
MCP_CALL_TIMEOUT_S: Final = 120
MCP_RESULT_BYTES: Final = 256 * KIB
SANDBOX_TIMEOUT_DEFAULT_S: Final = 60
SANDBOX_TIMEOUT_MAX_S: Final = 300
SANDBOX_GRACE_S: Final = 30
"""What the sandbox itself gets beyond the code's timeout."""
SANDBOX_OUTPUT_BYTES: Final = 64 * KIB
"""Of stdout and of stderr."""
SANDBOX_TAIL_CHARS: Final = 2000
SANDBOX_TAIL_INTERVAL_MS: Final = 250
SANDBOX_CPUS: Final = 1
SANDBOX_MEMORY_MIB: Final = 512
RETURN_RESULT_ATTEMPTS: Final = 3

# Runs and scripts

DELEGATION_DEPTH: Final = 3
CHILDREN_PER_RUN: Final = 10
DETACHED_PER_SESSION: Final = 10
OBLIGATION_REMINDERS: Final = 3
"""Continuations after open obligations, a claim."""
BACKGROUND_ATTEMPTS: Final = 3
INTERACTIVE_ATTEMPTS: Final = 1
SCRIPT_ATTEMPTS: Final = 1
RETRY_BACKOFF_MS: Final = 5000
"""Doubled with each attempt."""
RETRY_BACKOFF_MAX_MS: Final = 300_000
RETRY_JITTER_MS: Final = 1000
LEASE_MS: Final = 15_000
LEASE_RENEWAL_MS: Final = 5000
AGENT_RUNS_PER_WORKER: Final = 8
SCRIPT_RUNS_PER_WORKER: Final = 32
QUEUE_POLL_MS: Final = 1000
SCRIPT_SOURCE_BYTES: Final = 256 * KIB
SCRIPT_COMPUTE_S: Final = 2
SCRIPT_MEMORY_BYTES: Final = 64 * MIB
SCRIPT_STACK_BYTES: Final = 1 * MIB
JOURNAL_ENTRIES: Final = 5000
JOURNAL_BYTES: Final = 8 * MIB
RESIDENT_SLEEP_MS: Final = 60_000
"""Shorter sleeps stay in the worker."""
PLAN_STEPS: Final = 100
PLAN_TEXT_CHARS: Final = 200
RUN_COMPLETED_HOPS: Final = 8
TITLE_ATTEMPTS: Final = 3
TITLE_EVENTS: Final = 12
TITLE_USER_CHARS: Final = 1200
TITLE_ASSISTANT_CHARS: Final = 600
TITLE_TOTAL_CHARS: Final = 4000
OAUTH_LOGIN_MS: Final = 600_000
"""How long a sign-in may take, and how long a finished one stays readable."""
ERROR_STACK_BYTES: Final = 16 * KIB


def clamped_limit(value: object, *, default: int = LIST_DEFAULT, most: int = LIST_MAX) -> int:
    """The `limit` of a listing: fractions floored, clamped to 1 and `most`; `default` for anything but a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return default
    return int(max(1, min(most, value)))
