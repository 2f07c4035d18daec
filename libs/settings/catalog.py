"""Names of all settings of all services. A test compares this list with what the services declare."""

from __future__ import annotations

PREFIX = "SEED_AGENTS_"

_NAMES = (
    "ALLOWED_PROVIDER_HOSTS",
    "ALLOW_PRIVATE_PROVIDERS",
    "BODIES_IN_FLIGHT_BYTES",
    "BODY_LIMIT_BYTES",
    "BODY_TIMEOUT_MS",
    "BRANCH",
    "BUILD_DATE",
    "CLOCK_SKEW_MS",
    "COMMIT",
    "DATABASE_POOL",
    "DATABASE_URL",
    "DATA_DIR",
    "DATA_KEY_CACHE",
    "GRPC_HOST",
    "GRPC_PORT",
    "HEADS_INTERVAL_MS",
    "HM_SERVER_URL",
    "HTTP_HOSTNAME",
    "HTTP_PORT",
    "INTERNAL_KEY",
    "IPFS_SERVER_URL",
    "KEY_FILE",
    "LEASE_MS",
    "LOG_LEVEL",
    "MESSAGE_WAIT_MS",
    "METRICS_HOST",
    "METRICS_PORT",
    "NATS_URL",
    "NESTING_LIMIT",
    "OTLP_ENDPOINT",
    "PARTIAL_INTERVAL_MS",
    "PING_INTERVAL_MS",
    "POLL_MAX_MS",
    "POLL_MIN_MS",
    "PONG_TIMEOUT_MS",
    "PROVIDER_TIMEOUT_MS",
    "PROVIDER_VENDOR_URLS",
    "REDIS_URL",
    "RUNS_ADDR",
    "SECRETS_ADDR",
    "SECRETS_KEYRING",
    "SECRETS_KEYRING_COMMAND",
    "SECRETS_KEYRING_FILE",
    "SEND_QUEUE_BYTES",
    "SESSIONS_ADDR",
    "SESSION_TITLE_GENERATION",
    "SOCKETS_PER_ACCOUNT",
    "SOCKETS_PER_ADDRESS",
    "SUBSCRIPTIONS_PER_SOCKET",
    "SUBSCRIPTION_AUTH",
    "TURN_SWEEP_MS",
    "URL",
    "WORKER_SLOTS",
)

KNOWN: frozenset[str] = frozenset(PREFIX + name for name in _NAMES)

OTHERS: dict[str, tuple[str, str, str]] = {
    "DATA_DIR": ("`data`", "up, command line", "Directory of the embedded stores, keys and logs."),
    "KEY_FILE": ("`~/.config/seed-agents/key.json`", "command line", "The client's signing key."),
    "URL": ("the running server", "command line", "The server that the client talks to."),
}
"""Settings that no service declares: (default, who reads it, meaning) by name."""
