"""Errors of the command line itself, in addition to the library's.

AntiphonError
├── RequestRefused
│   ├── PrefixUnknown        no id here has this prefix
│   │   ├── NotAtTheHub      no conversation that the hub lists has it
│   │   └── EntryUnknown     no entry of the conversation has it
│   ├── BranchUnknown        no branch has this name
│   ├── PrefixAmbiguous      several ids may be meant
│   ├── NothingHere          no conversation is held here yet
│   ├── NothingAwaited       no answer is awaited on this branch
│   ├── NothingYet           the branch has no question or answer yet
│   ├── UndoForbidden        another member's question waits for its answer
│   ├── NothingToContinue    the last answer on this branch was not cut off
│   │   └── TurnBetween      it was, and another turn follows it
│   ├── ReadOnlyHere         your key may not write in this conversation
│   ├── CancelForbidden      only other members' answers are awaited
│   ├── DeletedHere          a conversation was deleted from this folder beside a command
│   ├── ChecksFailed         a check failed
│   │   ├── HubDiffers       the hub does not send everyone the same log
│   │   ├── EndLost          the store lost its last entries
│   │   └── NotInPlace       a check of doctor failed
│   ├── UsageInvalid         a command, option or value that there is not
│   │   ├── NoSuchCommand    a chat has no /command of this name
│   │   └── NothingBehind    a /command that takes nothing has something behind it
│   ├── FileUnusable         a file can't be read or written
│   │   ├── FileExists       the file exists already
│   │   └── NotReplaced      the same, where nothing may replace it
│   ├── MemberUnknown        no member has this name or key
│   └── Unconfirmed          a command that asks first, without a terminal to ask
│       └── KeyNotGiven      the same for a hub's key off loopback
├── EntryRefused
│   └── MessageTooLong       a message that does not fit an entry
├── InvitationUnknown        no invitation for this name is open
├── InviteHubChanged         the hub that a code names has another key than the code states
├── Unavailable
│   ├── InviteHubAway        the hub that a code names does not answer
│   ├── NotCompared          this replica and the hub are not in sync
│   ├── NoHostToAsk          no model host answers questions
│   │   └── HostNotLinked    none of the conversation's hosts does, or not the one named
│   └── DaemonFailed         (antiphon/daemons/errors.py)
│       └── ModelNotFetched  the model to serve could not be fetched
└── Unforeseen               a bug in antiphon
"""

import errno

from antiphon.daemons import DaemonFailed
from replica.errors import AntiphonError, RequestRefused, Unavailable, with_step
from replica.refusals import (
    ArgumentInvalid,
    BodyTooLarge,
    ConversationDeleted,
    HubUnreachable,
    NotAllowed,
    PeerIdentityChanged,
)


class PrefixUnknown(RequestRefused):
    """No conversation here has an id with this prefix."""

    reason = "ID_UNKNOWN"
    next_step = "`antiphon list` shows the conversations held here."


class NotAtTheHub(PrefixUnknown):
    """The hub lists no conversation of your key with this prefix."""

    next_step = "`antiphon clone` fetches all of yours; `antiphon join CODE` joins another one."


class EntryUnknown(PrefixUnknown):
    """No entry of the conversation has an id with this prefix."""

    next_step = "`antiphon log --graph` shows the entries and their ids."


class BranchUnknown(RequestRefused):
    """A branch has a name in the shared document, or is named by an entry on it."""

    reason = "BRANCH_UNKNOWN"
    next_step = "`antiphon branches` lists the branches, their names and their digits."


class PrefixAmbiguous(RequestRefused):
    """Several ids may be meant."""

    reason = "ID_AMBIGUOUS"
    next_step = (
        "Give the first digits of the one that is meant, enough to tell it from the others;"
        " `antiphon list` shows the conversations."
    )


class NothingHere(RequestRefused):
    """No conversation is held here yet."""

    reason = "NO_CONVERSATION"
    next_step = (
        "`antiphon new` begins one, `antiphon join CODE` joins one, `antiphon clone` fetches yours,"
        " `antiphon import FILE` imports one."
    )


class NothingAwaited(RequestRefused):
    """No answer is awaited on this branch."""

    reason = "NOTHING_AWAITED"
    next_step = (
        "`antiphon log --graph` shows the branches and their open requests; `antiphon cancel"
        " --request ID` ends any of them."
    )


class NothingYet(RequestRefused):
    """The branch has no question, or no answer, that the command could be about."""

    reason = "NOTHING_YET"
    next_step = "Send a message first."


class UndoForbidden(RequestRefused):
    """Only its author takes back what no answer has read, and only what no question follows."""

    reason = "UNDO_FORBIDDEN"
    next_step = "Undo it once it is answered, or let the next message follow an entry: `/fork`."


class NothingToContinue(RequestRefused):
    """Only an answer that was cut off can go on: by a limit, a cancellation or a crash."""

    reason = "NOTHING_TO_CONTINUE"
    next_step = "Send a message, or ask for another answer with /again or `antiphon send`."


class TurnBetween(NothingToContinue):
    """Another turn follows the answer that was cut off, or is queued behind it."""

    next_step = (
        "Send a message. To continue the answer beside that turn, choose it first: /fork ENTRY, or"
        " `antiphon fork --at ENTRY`."
    )


class ReadOnlyHere(NotAllowed):
    """Your key may read this conversation, but not write in it."""

    next_step = "Ask an owner for an invitation, `antiphon invite NAME`; then `antiphon join CODE`."


class CancelForbidden(NotAllowed):
    """Only its asker, or an owner, may cancel an answer."""

    next_step = (
        "Wait for it, or go on beside it: `antiphon send --conflict fork TEXT`, in a chat `/fork`."
    )


class DeletedHere(ConversationDeleted):
    """Another command has deleted this conversation from this folder."""

    next_step = "`antiphon clone ID` fetches it again, unless it was deleted from the hub too."


class MessageTooLong(BodyTooLarge):
    """A message may have at most half a mebibyte."""

    next_step = "Send it in parts: all with `antiphon send --no-request`, but the last without it."


class ChecksFailed(RequestRefused):
    """A check failed; the lines above give the details."""

    reason = "CHECKS_FAILED"
    next_step = (
        "`antiphon repair` fetches sound copies from the hub; else import a member's bundle."
    )


class HubDiffers(ChecksFailed):
    """The hub does not send everyone the same log."""

    next_step = (
        "The hub is not to be trusted with it: compare with a member, export it, and go on at"
        " another hub."
    )


class NotCompared(Unavailable):
    """A comparison needs this replica and the hub in sync."""

    reason = "NOT_COMPARED"
    next_step = "Try again once `antiphon status` says that the conversation is synchronized."


class EndLost(ChecksFailed):
    """The last entries that were written to the store are gone."""

    next_step = "`antiphon repair` reads what is left of them, and fetches the rest from the hub."


class NotInPlace(ChecksFailed):
    """Something that antiphon needs is missing or misconfigured."""

    next_step = "Follow the step below each failed check, then run `antiphon doctor` again."


class UsageInvalid(RequestRefused):
    """The command line does not have the form of this command."""

    reason = "USAGE_INVALID"
    next_step = "`antiphon --help` lists the commands."


class NoSuchCommand(UsageInvalid):
    """A line of a chat that begins with / is a command."""

    next_step = "`/help` lists the commands; between triple quotes it is a message."


class NothingBehind(UsageInvalid):
    """A /command of a chat that takes nothing has something behind it; it was not run."""

    next_step = "Type it alone; `/help` lists the commands and what they take."


class FileUnusable(RequestRefused):
    """A file can't be read or written."""

    reason = "FILE_UNUSABLE"
    next_step = "Check the path and its permissions."


def file_unusable(file: object, error: OSError) -> FileUnusable:
    """Return the refusal of a file by the system; what helps on a full disk is another step."""
    refused = FileUnusable(f"{file}: {error.strerror or error}")
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return refused
    return with_step(refused, "Free disk space and try again, or name a file on another disk.")


class FileExists(FileUnusable):
    """An existing file is overwritten only with --force."""

    next_step = "Choose another name, or give `--force`."


class NotReplaced(FileUnusable):
    """A file that is there is never replaced."""

    next_step = "Choose another name."


class MemberUnknown(ArgumentInvalid):
    """A member is named by your name for it, or by the first digits of its key."""

    reason = "MEMBER_UNKNOWN"
    next_step = "`antiphon members` lists them."


class Unconfirmed(ArgumentInvalid):
    """A command that can't be undone asks first."""

    reason = "NOT_CONFIRMED"
    next_step = "Give `--yes`, or run it at a terminal."


class KeyNotGiven(Unconfirmed):
    """Off loopback a hub's key is pinned only if it is given, or compared at a terminal."""

    next_step = "Give `--key KEY` with the key that the hub prints, or run it at a terminal."


class NoHostToAsk(Unavailable):
    """No model host that answers questions is linked to the hub."""

    reason = "NO_HOST"
    next_step = "Start one with `antiphon up`, or name one with `--host-address`."


class HostNotLinked(NoHostToAsk):
    """No model host of the conversation, or not the one named, is linked to the hub."""

    next_step = (
        "Start it with `antiphon up`, or name another one with `--host KEY`; `antiphon members`"
        " lists them."
    )


class InvitationUnknown(ArgumentInvalid):
    """No invitation for this name is open."""

    next_step = "List the names and states of all with `antiphon invitations`."


class InviteHubAway(HubUnreachable):
    """The hub that the code names does not answer."""

    next_step = (
        "Ask the inviter whether the hub runs and has this address; then run `antiphon join CODE`"
        " again."
    )


class InviteHubChanged(PeerIdentityChanged):
    """The hub that the code names has another key than the code states."""

    next_step = (
        "Do not go on: somebody else may answer there. Ask the inviter whether the hub has another"
        " key now, and for another code."
    )


class ModelNotFetched(DaemonFailed):
    """The model could not be fetched; the lines above give the reason."""

    reason = "MODEL_NOT_FETCHED"
    next_step = "`antiphon model list` shows the models known by name and those downloaded."


class Unforeseen(AntiphonError):
    """A bug in antiphon, not a mistake of yours."""

    next_step = "`antiphon --verbose COMMAND …` shows where it happened; please report that."
