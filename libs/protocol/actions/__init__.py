"""All 69 actions by name, and which of them change something."""

from typing import Final

from ..base import Action
from .agents import (
    AcceptAgentInvite,
    CreateAgent,
    DeclineAgentInvite,
    DeleteAgent,
    GetAgent,
    InviteAgentCollaborator,
    ListAgentCollaborators,
    ListAgentInvites,
    ListAgents,
    RegisterSigner,
    RemoveAgentCollaborator,
    SetAgentPublicChat,
    SetAgentPublicRead,
    UpdateAgent,
)
from .mcp import (
    DeleteMcpServer,
    ListMcpServers,
    RefreshMcpServer,
    SetMcpServer,
)
from .memory import (
    DeleteAgentMemoryFile,
    DeleteAgentTool,
    DownloadAgentMemoryFile,
    ListAgentMemory,
    ListAgentTools,
    ReadAgentMemoryFile,
    SaveAgentTool,
    UploadAgentMemoryFileToIpfs,
    WriteAgentMemoryFile,
)
from .runs import (
    CancelRun,
    GetRun,
    GetRunJournal,
    ListRuns,
    SignalRun,
    Subscribe,
    Unsubscribe,
)
from .secrets import (
    CancelProviderOAuth,
    CreateSigningIdentity,
    DeleteModelProvider,
    DeleteSigningIdentity,
    GetProviderOAuthStatus,
    ImportSigningIdentity,
    ListModelProviders,
    ListProviderModels,
    ListSigningIdentities,
    SetModelProvider,
    SetSecret,
    StartProviderOAuth,
    SubmitProviderOAuthCode,
    UpdateSigningIdentity,
)
from .sessions import (
    AbortFileUpload,
    AppendFileUploadChunk,
    BeginFileUpload,
    CommitFileUpload,
    CreateSession,
    DeleteSession,
    GetSession,
    InvokeSessionTool,
    ListSessions,
    MessageSession,
    ReadSessionAttachment,
    RetrySession,
    StopSession,
    UpdateSession,
    UploadSessionAttachment,
)
from .triggers import (
    CombineAgentTriggers,
    CreateAgentTrigger,
    DeleteAgentTrigger,
    GetAgentTrigger,
    ListAgentTriggers,
    UpdateAgentTrigger,
)

AgentAction = (
    RegisterSigner
    | ListAgents
    | ListAgentInvites
    | ListAgentCollaborators
    | InviteAgentCollaborator
    | RemoveAgentCollaborator
    | SetAgentPublicRead
    | SetAgentPublicChat
    | AcceptAgentInvite
    | DeclineAgentInvite
    | CreateAgent
    | GetAgent
    | UpdateAgent
    | DeleteAgent
    | ListModelProviders
    | ListProviderModels
    | ListSigningIdentities
    | CreateSigningIdentity
    | ImportSigningIdentity
    | UpdateSigningIdentity
    | DeleteSigningIdentity
    | SetModelProvider
    | DeleteModelProvider
    | StartProviderOAuth
    | SubmitProviderOAuthCode
    | GetProviderOAuthStatus
    | CancelProviderOAuth
    | SetSecret
    | ListAgentTriggers
    | GetAgentTrigger
    | CreateAgentTrigger
    | UpdateAgentTrigger
    | DeleteAgentTrigger
    | CombineAgentTriggers
    | ListAgentMemory
    | ListAgentTools
    | SaveAgentTool
    | DeleteAgentTool
    | ReadAgentMemoryFile
    | WriteAgentMemoryFile
    | DeleteAgentMemoryFile
    | DownloadAgentMemoryFile
    | UploadAgentMemoryFileToIpfs
    | CreateSession
    | ListSessions
    | UpdateSession
    | DeleteSession
    | GetSession
    | MessageSession
    | InvokeSessionTool
    | UploadSessionAttachment
    | ReadSessionAttachment
    | BeginFileUpload
    | AppendFileUploadChunk
    | CommitFileUpload
    | AbortFileUpload
    | StopSession
    | RetrySession
    | GetRun
    | ListRuns
    | CancelRun
    | SignalRun
    | GetRunJournal
    | Subscribe
    | Unsubscribe
    | ListMcpServers
    | SetMcpServer
    | RefreshMcpServer
    | DeleteMcpServer
)
"""Any action."""

ACTIONS: Final[dict[str, type[Action]]] = {
    kind.__name__: kind
    for kind in (
        RegisterSigner,
        ListAgents,
        ListAgentInvites,
        ListAgentCollaborators,
        InviteAgentCollaborator,
        RemoveAgentCollaborator,
        SetAgentPublicRead,
        SetAgentPublicChat,
        AcceptAgentInvite,
        DeclineAgentInvite,
        CreateAgent,
        GetAgent,
        UpdateAgent,
        DeleteAgent,
        ListModelProviders,
        ListProviderModels,
        ListSigningIdentities,
        CreateSigningIdentity,
        ImportSigningIdentity,
        UpdateSigningIdentity,
        DeleteSigningIdentity,
        SetModelProvider,
        DeleteModelProvider,
        StartProviderOAuth,
        SubmitProviderOAuthCode,
        GetProviderOAuthStatus,
        CancelProviderOAuth,
        SetSecret,
        ListAgentTriggers,
        GetAgentTrigger,
        CreateAgentTrigger,
        UpdateAgentTrigger,
        DeleteAgentTrigger,
        CombineAgentTriggers,
        ListAgentMemory,
        ListAgentTools,
        SaveAgentTool,
        DeleteAgentTool,
        ReadAgentMemoryFile,
        WriteAgentMemoryFile,
        DeleteAgentMemoryFile,
        DownloadAgentMemoryFile,
        UploadAgentMemoryFileToIpfs,
        CreateSession,
        ListSessions,
        UpdateSession,
        DeleteSession,
        GetSession,
        MessageSession,
        InvokeSessionTool,
        UploadSessionAttachment,
        ReadSessionAttachment,
        BeginFileUpload,
        AppendFileUploadChunk,
        CommitFileUpload,
        AbortFileUpload,
        StopSession,
        RetrySession,
        GetRun,
        ListRuns,
        CancelRun,
        SignalRun,
        GetRunJournal,
        Subscribe,
        Unsubscribe,
        ListMcpServers,
        SetMcpServer,
        RefreshMcpServer,
        DeleteMcpServer,
    )
}
"""Every action by its name, the `_` on the wire."""

SOCKET_ONLY: Final = frozenset({"Subscribe", "Unsubscribe"})
"""Actions that are frames of a WebSocket and have no answer of their own."""

MUTATING: Final = frozenset(
    name for name in ACTIONS if name not in SOCKET_ONLY and not name.startswith(("List", "Get", "Read"))
)
"""Actions that change something: a captured envelope of these must not act twice."""

__all__ = [
    "ACTIONS",
    "MUTATING",
    "SOCKET_ONLY",
    "AbortFileUpload",
    "AcceptAgentInvite",
    "Action",
    "AgentAction",
    "AppendFileUploadChunk",
    "BeginFileUpload",
    "CancelProviderOAuth",
    "CancelRun",
    "CombineAgentTriggers",
    "CommitFileUpload",
    "CreateAgent",
    "CreateAgentTrigger",
    "CreateSession",
    "CreateSigningIdentity",
    "DeclineAgentInvite",
    "DeleteAgent",
    "DeleteAgentMemoryFile",
    "DeleteAgentTool",
    "DeleteAgentTrigger",
    "DeleteMcpServer",
    "DeleteModelProvider",
    "DeleteSession",
    "DeleteSigningIdentity",
    "DownloadAgentMemoryFile",
    "GetAgent",
    "GetAgentTrigger",
    "GetProviderOAuthStatus",
    "GetRun",
    "GetRunJournal",
    "GetSession",
    "ImportSigningIdentity",
    "InviteAgentCollaborator",
    "InvokeSessionTool",
    "ListAgentCollaborators",
    "ListAgentInvites",
    "ListAgentMemory",
    "ListAgentTools",
    "ListAgentTriggers",
    "ListAgents",
    "ListMcpServers",
    "ListModelProviders",
    "ListProviderModels",
    "ListRuns",
    "ListSessions",
    "ListSigningIdentities",
    "MessageSession",
    "ReadAgentMemoryFile",
    "ReadSessionAttachment",
    "RefreshMcpServer",
    "RegisterSigner",
    "RemoveAgentCollaborator",
    "RetrySession",
    "SaveAgentTool",
    "SetAgentPublicChat",
    "SetAgentPublicRead",
    "SetMcpServer",
    "SetModelProvider",
    "SetSecret",
    "SignalRun",
    "StartProviderOAuth",
    "StopSession",
    "SubmitProviderOAuthCode",
    "Subscribe",
    "Unsubscribe",
    "UpdateAgent",
    "UpdateAgentTrigger",
    "UpdateSession",
    "UpdateSigningIdentity",
    "UploadAgentMemoryFileToIpfs",
    "UploadSessionAttachment",
    "WriteAgentMemoryFile",
]
