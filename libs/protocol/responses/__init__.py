"""All answers by name, and which answer belongs to which action."""

from typing import Final

from ..actions import ACTIONS, SOCKET_ONLY
from ..base import Response
from .agents import (
    AcceptAgentInviteResponse,
    CreateAgentResponse,
    DeclineAgentInviteResponse,
    DeleteAgentResponse,
    GetAgentResponse,
    InviteAgentCollaboratorResponse,
    ListAgentCollaboratorsResponse,
    ListAgentInvitesResponse,
    ListAgentsResponse,
    RegisterSignerResponse,
    RemoveAgentCollaboratorResponse,
    SetAgentPublicChatResponse,
    SetAgentPublicReadResponse,
)
from .errors import PROTOCOL_TOO_OLD, Error
from .mcp import (
    DeleteMcpServerResponse,
    ListMcpServersResponse,
    SetMcpServerResponse,
)
from .memory import (
    DeleteAgentMemoryFileResponse,
    DeleteAgentToolResponse,
    DownloadAgentMemoryFileResponse,
    ListAgentMemoryResponse,
    ListAgentToolsResponse,
    ReadAgentMemoryFileResponse,
    SaveAgentToolResponse,
    UploadAgentMemoryFileToIpfsResponse,
    WriteAgentMemoryFileResponse,
)
from .runs import (
    CancelRunResponse,
    GetRunJournalResponse,
    GetRunResponse,
    ListRunsResponse,
    SignalRunResponse,
)
from .secrets import (
    CancelProviderOAuthResponse,
    CreateSigningIdentityResponse,
    DeleteModelProviderResponse,
    DeleteSigningIdentityResponse,
    ImportSigningIdentityResponse,
    ListModelProvidersResponse,
    ListProviderModelsResponse,
    ListSigningIdentitiesResponse,
    ProviderOAuthStatusResponse,
    SetModelProviderResponse,
    SetSecretResponse,
    StartProviderOAuthResponse,
    SubmitProviderOAuthCodeResponse,
    UpdateSigningIdentityResponse,
)
from .sessions import (
    AbortFileUploadResponse,
    AppendFileUploadChunkResponse,
    BeginFileUploadResponse,
    CommitFileUploadResponse,
    CreateSessionResponse,
    DeleteSessionResponse,
    GetSessionResponse,
    InvokeSessionToolResponse,
    ListSessionsResponse,
    MessageSessionResponse,
    ReadSessionAttachmentResponse,
    RetrySessionResponse,
    StopSessionResponse,
    UpdateSessionResponse,
    UploadSessionAttachmentResponse,
)
from .triggers import (
    CreateAgentTriggerResponse,
    DeleteAgentTriggerResponse,
    GetAgentTriggerResponse,
    ListAgentTriggersResponse,
    UpdateAgentTriggerResponse,
)

AgentResponse = (
    Error
    | RegisterSignerResponse
    | ListAgentsResponse
    | ListAgentInvitesResponse
    | ListAgentCollaboratorsResponse
    | InviteAgentCollaboratorResponse
    | RemoveAgentCollaboratorResponse
    | SetAgentPublicReadResponse
    | SetAgentPublicChatResponse
    | AcceptAgentInviteResponse
    | DeclineAgentInviteResponse
    | CreateAgentResponse
    | GetAgentResponse
    | DeleteAgentResponse
    | ListModelProvidersResponse
    | ListProviderModelsResponse
    | ListSigningIdentitiesResponse
    | CreateSigningIdentityResponse
    | ImportSigningIdentityResponse
    | UpdateSigningIdentityResponse
    | DeleteSigningIdentityResponse
    | SetModelProviderResponse
    | DeleteModelProviderResponse
    | StartProviderOAuthResponse
    | SubmitProviderOAuthCodeResponse
    | ProviderOAuthStatusResponse
    | CancelProviderOAuthResponse
    | SetSecretResponse
    | ListAgentTriggersResponse
    | GetAgentTriggerResponse
    | CreateAgentTriggerResponse
    | UpdateAgentTriggerResponse
    | DeleteAgentTriggerResponse
    | ListAgentMemoryResponse
    | ListAgentToolsResponse
    | SaveAgentToolResponse
    | DeleteAgentToolResponse
    | ReadAgentMemoryFileResponse
    | WriteAgentMemoryFileResponse
    | DeleteAgentMemoryFileResponse
    | DownloadAgentMemoryFileResponse
    | UploadAgentMemoryFileToIpfsResponse
    | CreateSessionResponse
    | ListSessionsResponse
    | UpdateSessionResponse
    | DeleteSessionResponse
    | GetSessionResponse
    | MessageSessionResponse
    | InvokeSessionToolResponse
    | UploadSessionAttachmentResponse
    | ReadSessionAttachmentResponse
    | BeginFileUploadResponse
    | AppendFileUploadChunkResponse
    | CommitFileUploadResponse
    | AbortFileUploadResponse
    | StopSessionResponse
    | RetrySessionResponse
    | GetRunResponse
    | ListRunsResponse
    | CancelRunResponse
    | SignalRunResponse
    | GetRunJournalResponse
    | ListMcpServersResponse
    | SetMcpServerResponse
    | DeleteMcpServerResponse
)
"""Any answer."""

RESPONSES: Final[dict[str, type[Response]]] = {
    kind.__name__: kind
    for kind in (
        Error,
        RegisterSignerResponse,
        ListAgentsResponse,
        ListAgentInvitesResponse,
        ListAgentCollaboratorsResponse,
        InviteAgentCollaboratorResponse,
        RemoveAgentCollaboratorResponse,
        SetAgentPublicReadResponse,
        SetAgentPublicChatResponse,
        AcceptAgentInviteResponse,
        DeclineAgentInviteResponse,
        CreateAgentResponse,
        GetAgentResponse,
        DeleteAgentResponse,
        ListModelProvidersResponse,
        ListProviderModelsResponse,
        ListSigningIdentitiesResponse,
        CreateSigningIdentityResponse,
        ImportSigningIdentityResponse,
        UpdateSigningIdentityResponse,
        DeleteSigningIdentityResponse,
        SetModelProviderResponse,
        DeleteModelProviderResponse,
        StartProviderOAuthResponse,
        SubmitProviderOAuthCodeResponse,
        ProviderOAuthStatusResponse,
        CancelProviderOAuthResponse,
        SetSecretResponse,
        ListAgentTriggersResponse,
        GetAgentTriggerResponse,
        CreateAgentTriggerResponse,
        UpdateAgentTriggerResponse,
        DeleteAgentTriggerResponse,
        ListAgentMemoryResponse,
        ListAgentToolsResponse,
        SaveAgentToolResponse,
        DeleteAgentToolResponse,
        ReadAgentMemoryFileResponse,
        WriteAgentMemoryFileResponse,
        DeleteAgentMemoryFileResponse,
        DownloadAgentMemoryFileResponse,
        UploadAgentMemoryFileToIpfsResponse,
        CreateSessionResponse,
        ListSessionsResponse,
        UpdateSessionResponse,
        DeleteSessionResponse,
        GetSessionResponse,
        MessageSessionResponse,
        InvokeSessionToolResponse,
        UploadSessionAttachmentResponse,
        ReadSessionAttachmentResponse,
        BeginFileUploadResponse,
        AppendFileUploadChunkResponse,
        CommitFileUploadResponse,
        AbortFileUploadResponse,
        StopSessionResponse,
        RetrySessionResponse,
        GetRunResponse,
        ListRunsResponse,
        CancelRunResponse,
        SignalRunResponse,
        GetRunJournalResponse,
        ListMcpServersResponse,
        SetMcpServerResponse,
        DeleteMcpServerResponse,
    )
}
"""Every answer by its name, the `_` on the wire."""

_SHARED: Final = {
    "UpdateAgent": GetAgentResponse,
    "GetProviderOAuthStatus": ProviderOAuthStatusResponse,
    "CombineAgentTriggers": UpdateAgentTriggerResponse,
    "RefreshMcpServer": SetMcpServerResponse,
}

ANSWERS: Final[dict[str, type[Response]]] = {
    name: _SHARED.get(name) or RESPONSES[f"{name}Response"] for name in ACTIONS if name not in SOCKET_ONLY
}
"""The answer to each action, by the action's name; those of the WebSocket have none."""

__all__ = [
    "ANSWERS",
    "PROTOCOL_TOO_OLD",
    "RESPONSES",
    "AbortFileUploadResponse",
    "AcceptAgentInviteResponse",
    "AgentResponse",
    "AppendFileUploadChunkResponse",
    "BeginFileUploadResponse",
    "CancelProviderOAuthResponse",
    "CancelRunResponse",
    "CommitFileUploadResponse",
    "CreateAgentResponse",
    "CreateAgentTriggerResponse",
    "CreateSessionResponse",
    "CreateSigningIdentityResponse",
    "DeclineAgentInviteResponse",
    "DeleteAgentMemoryFileResponse",
    "DeleteAgentResponse",
    "DeleteAgentToolResponse",
    "DeleteAgentTriggerResponse",
    "DeleteMcpServerResponse",
    "DeleteModelProviderResponse",
    "DeleteSessionResponse",
    "DeleteSigningIdentityResponse",
    "DownloadAgentMemoryFileResponse",
    "Error",
    "GetAgentResponse",
    "GetAgentTriggerResponse",
    "GetRunJournalResponse",
    "GetRunResponse",
    "GetSessionResponse",
    "ImportSigningIdentityResponse",
    "InviteAgentCollaboratorResponse",
    "InvokeSessionToolResponse",
    "ListAgentCollaboratorsResponse",
    "ListAgentInvitesResponse",
    "ListAgentMemoryResponse",
    "ListAgentToolsResponse",
    "ListAgentTriggersResponse",
    "ListAgentsResponse",
    "ListMcpServersResponse",
    "ListModelProvidersResponse",
    "ListProviderModelsResponse",
    "ListRunsResponse",
    "ListSessionsResponse",
    "ListSigningIdentitiesResponse",
    "MessageSessionResponse",
    "ProviderOAuthStatusResponse",
    "ReadAgentMemoryFileResponse",
    "ReadSessionAttachmentResponse",
    "RegisterSignerResponse",
    "RemoveAgentCollaboratorResponse",
    "Response",
    "RetrySessionResponse",
    "SaveAgentToolResponse",
    "SetAgentPublicChatResponse",
    "SetAgentPublicReadResponse",
    "SetMcpServerResponse",
    "SetModelProviderResponse",
    "SetSecretResponse",
    "SignalRunResponse",
    "StartProviderOAuthResponse",
    "StopSessionResponse",
    "SubmitProviderOAuthCodeResponse",
    "UpdateAgentTriggerResponse",
    "UpdateSessionResponse",
    "UpdateSigningIdentityResponse",
    "UploadAgentMemoryFileToIpfsResponse",
    "UploadSessionAttachmentResponse",
    "WriteAgentMemoryFileResponse",
]
