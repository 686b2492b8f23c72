"""The public errors of the library, available by name in `antiphon` and `antiphon.aio`.

They are the errors that docstrings name, including those that "the refusal" may stand for, and
those that docs/errors.md lists.
"""

from antiphon.daemons import DaemonFailed
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
from replica.io import AnswerOverdue, FolderTaken, HostMissing, WriteUnconfirmed
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
    QuotaExceeded,
    RateLimited,
    StoreCorrupt,
    StoreFull,
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
    "FolderTaken",
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
    "QuotaExceeded",
    "RateLimited",
    "ReplicaClosed",
    "RunTooLong",
    "RunUnfinished",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "ToolUnsuitable",
    "WriteUnconfirmed",
]
