"""Errors of the command line itself, in addition to the library's.

AntiphonError
├── RequestRefused
│   ├── PrefixUnknown        no id here has this prefix
│   ├── PrefixAmbiguous      several ids have this prefix
│   ├── NothingHere          no conversation is held here yet
│   ├── NothingAwaited       no answer is awaited on this branch
│   ├── ReadOnlyHere         your key may not write in this conversation
│   ├── ChecksFailed         a check failed
│   │   └── NotInPlace       a check of doctor failed
│   ├── ConfigInvalid        the settings are invalid
│   └── FileUnusable         a file can't be read or written
│       └── FileExists       the file exists already
├── EntryRefused
│   └── MessageTooLong       a message that does not fit an entry
├── Unavailable
│   └── DaemonFailed         a daemon did not start, or keeps ending
│       ├── HostKeyElsewhere the host uses a key the hub does not vouch for
│       └── ModelNotFetched  the model to serve could not be fetched
└── Unforeseen               a bug in antiphon
"""

from replica.errors import AntiphonError, RequestRefused, Unavailable
from replica.refusals import BodyTooLarge, NotAllowed


class PrefixUnknown(RequestRefused):
    """No conversation here has an id with this prefix."""

    reason = "ID_UNKNOWN"
    next_step = "antiphon list    shows the conversations held here"


class EntryUnknown(PrefixUnknown):
    """No entry of the conversation has an id with this prefix."""

    next_step = "antiphon log --graph    shows the entries and their ids"


class PrefixAmbiguous(RequestRefused):
    """Several ids have this prefix."""

    reason = "ID_AMBIGUOUS"
    next_step = "Type more digits of the id."


class NothingHere(RequestRefused):
    """No conversation is held here yet."""

    reason = "NO_CONVERSATION"
    next_step = "antiphon new    begins one; antiphon import FILE imports one"


class NothingAwaited(RequestRefused):
    """No answer is awaited on this branch."""

    reason = "NOTHING_AWAITED"
    next_step = "antiphon log --graph    shows the branches and their open requests"


class ReadOnlyHere(NotAllowed):
    """Your key may read this conversation, but not write in it."""

    next_step = "antiphon key show    prints the key an owner must grant the writer's role"


class MessageTooLong(BodyTooLarge):
    """A message may have at most half a mebibyte."""

    next_step = "Send it in parts: all with antiphon send --no-request, but the last without it."


class ChecksFailed(RequestRefused):
    """A check failed; the lines above give the details."""

    reason = "CHECKS_FAILED"
    next_step = "Fetch sound copies: link a replica that verifies, or import its bundle."


class NotInPlace(ChecksFailed):
    """Something that antiphon needs is missing or misconfigured."""

    next_step = "Follow the step below each failed check, then run antiphon doctor again."


class ConfigInvalid(RequestRefused):
    """The settings are invalid."""

    reason = "CONFIG_INVALID"
    next_step = "antiphon --print-config    shows the settings in force"


class FileUnusable(RequestRefused):
    """A file can't be read or written."""

    reason = "FILE_UNUSABLE"
    next_step = "Check the path and its permissions."


class FileExists(FileUnusable):
    """An existing file is overwritten only with --force."""

    next_step = "Choose another name, or give --force."


class DaemonFailed(Unavailable):
    """A daemon did not start, or ended."""

    reason = "DAEMON_FAILED"
    next_step = "Read the last lines of its log above."


class HostKeyElsewhere(DaemonFailed):
    """The host uses a key from another folder, so the hub does not vouch for it."""

    next_step = "Keep identity.key in the host's --data-dir; or run both by hand, with --host-key."


class ModelNotFetched(DaemonFailed):
    """The model could not be fetched; the lines above give the reason."""

    reason = "MODEL_NOT_FETCHED"
    next_step = "antiphon model list    shows the models known by name and those downloaded"


class Unforeseen(AntiphonError):
    """A bug in antiphon, not a mistake of yours."""

    next_step = "antiphon --verbose COMMAND …    shows where it happened; please report that"
