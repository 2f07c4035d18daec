"""The services behind the edge and their stubs."""

from __future__ import annotations

from typing import Any

from seed.memory.v1 import memory_pb2_grpc, tools_pb2_grpc
from seed.runs.v1 import runs_pb2_grpc
from seed.runs.v1 import tools_pb2_grpc as verbs_pb2_grpc
from seed.secrets.v1 import secrets_pb2_grpc
from seed.sessions.v1 import (
    access_pb2_grpc,
    agents_pb2_grpc,
    attachments_pb2_grpc,
    members_pb2_grpc,
    sessions_pb2_grpc,
)
from seed.triggers.v1 import triggers_pb2_grpc

from libs.rpc import Peer, TokenSigner

IDENTITY = "edge"


class Peers:
    """One channel to each service. Attributes are generated stubs; `call` goes through the channel of the stub's owner.

    `sessions_addr` and the others are host:port or any gRPC target.
    """

    def __init__(
        self, *, key: str, sessions_addr: str, secrets_addr: str, runs_addr: str, memory_addr: str, triggers_addr: str
    ) -> None:
        tokens = TokenSigner(IDENTITY, key)
        self.sessions = Peer("sessions", sessions_addr, tokens)
        self.secrets = Peer("secrets", secrets_addr, tokens)
        self.runs = Peer("runs", runs_addr, tokens)
        self.memory = Peer("memory", memory_addr, tokens)
        self.triggers = Peer("triggers", triggers_addr, tokens)

        self.access_stub: Any = self.sessions.stub(access_pb2_grpc.AccessServiceStub)
        self.agents_stub: Any = self.sessions.stub(agents_pb2_grpc.AgentsServiceStub)
        self.attachments_stub: Any = self.sessions.stub(attachments_pb2_grpc.AttachmentsServiceStub)
        self.members_stub: Any = self.sessions.stub(members_pb2_grpc.MembersServiceStub)
        self.sessions_stub: Any = self.sessions.stub(sessions_pb2_grpc.SessionsServiceStub)
        self.runs_stub: Any = self.runs.stub(runs_pb2_grpc.RunsServiceStub)
        self.verbs_stub: Any = self.runs.stub(verbs_pb2_grpc.ToolsServiceStub)
        self.memory_stub: Any = self.memory.stub(memory_pb2_grpc.MemoryServiceStub)
        self.triggers_stub: Any = self.triggers.stub(triggers_pb2_grpc.TriggersServiceStub)
        self.tools_stub: Any = self.memory.stub(tools_pb2_grpc.ToolDocumentsServiceStub)
        self.secrets_stub: Any = self.secrets.stub(secrets_pb2_grpc.SecretsServiceStub)
        self.providers_stub: Any = self.secrets.stub(secrets_pb2_grpc.ProvidersServiceStub)
        self.sign_ins_stub: Any = self.secrets.stub(secrets_pb2_grpc.SignInsServiceStub)
        self.identities_stub: Any = self.secrets.stub(secrets_pb2_grpc.IdentitiesServiceStub)
        self.authorizations_stub: Any = self.secrets.stub(secrets_pb2_grpc.AuthorizationsServiceStub)

    async def close(self) -> None:
        """Close all channels; running calls fail."""
        for peer in (self.sessions, self.secrets, self.runs, self.memory, self.triggers):
            await peer.close()
