"""The Python SDK: keys, signed calls with typed answers, subscriptions that resume by themselves.

    async with Client("http://localhost:3050", load_key()) as client:
        agents = (await client.call(ListAgents())).agents

Actions and answers are the structs of `libs.protocol`. The command line is `libs.client.cli`.
"""

from libs.wire import Key

from .client import Client
from .errors import ApiError, ClientError, ConnectionLost, UnexpectedAnswer
from .keys import KeyFileError, default_key_path, load_key, save_key
from .signing import Signer
from .subscription import Subscription

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "ConnectionLost",
    "Key",
    "KeyFileError",
    "Signer",
    "Subscription",
    "UnexpectedAnswer",
    "default_key_path",
    "load_key",
    "save_key",
]
