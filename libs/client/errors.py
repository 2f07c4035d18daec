"""What a call or a subscription may raise."""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything this SDK raises."""


class ApiError(ClientError):
    """The server refused: HTTP `status`, its public `message`, and `code` where the protocol has one.

    A refusal over the WebSocket carries the status that the protocol documents for its message.
    """

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.code = code


class ConnectionLost(ClientError):
    """The server could not be reached, or went away, and trying again until the deadline did not help."""


class UnexpectedAnswer(ClientError):
    """What came back is not an answer of this API."""
