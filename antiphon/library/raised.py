"""The errors that the library promises: `antiphon` and `antiphon.aio` have them by name.

Those that a docstring names, and what may stand behind "the refusal" in one.
"""

from antiphon.cli.errors import DaemonFailed
from antiphon.library.errors import (
    BranchUnbegun,
    CallOpen,
    EventsMissed,
    LoopUnsuitable,
    ProcessForked,
    ReplicaClosed,
    RunTooLong,
    RunUnfinished,
    ToolUnsuitable,
)
from replica.conversation import (
    ClockInvalid,
    InviteExpired,
    InviteInvalid,
    InviteRevoked,
    InviteUsed,
    JoinPending,
    KeyRemoved,
    LastOwner,
)
from replica.errors import AntiphonError, StoreError
from replica.io import AnswerOverdue, HostMissing
from replica.log import AnswerRefused
from replica.refusals import (
    ArgumentInvalid,
    BodyTooLarge,
    ConversationDeleted,
    ConversationUnknown,
    HubUnreachable,
    KeyFileInvalid,
    KeyReused,
    NoHost,
    NotAllowed,
    PeerIdentityChanged,
    StoreLocked,
)

__all__ = [
    "AnswerOverdue",
    "AnswerRefused",
    "AntiphonError",
    "ArgumentInvalid",
    "BodyTooLarge",
    "BranchUnbegun",
    "CallOpen",
    "ClockInvalid",
    "ConversationDeleted",
    "ConversationUnknown",
    "DaemonFailed",
    "EventsMissed",
    "HostMissing",
    "HubUnreachable",
    "InviteExpired",
    "InviteInvalid",
    "InviteRevoked",
    "InviteUsed",
    "JoinPending",
    "KeyFileInvalid",
    "KeyRemoved",
    "KeyReused",
    "LastOwner",
    "LoopUnsuitable",
    "NoHost",
    "NotAllowed",
    "PeerIdentityChanged",
    "ProcessForked",
    "ReplicaClosed",
    "RunTooLong",
    "RunUnfinished",
    "StoreError",
    "StoreLocked",
    "ToolUnsuitable",
]
