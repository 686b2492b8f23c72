"""What can go wrong at the command line itself, beyond the library's refusals.

AntiphonError
├── RequestRefused
│   ├── PrefixUnknown        nothing here has an id that begins so
│   ├── PrefixAmbiguous      several ids begin so
│   ├── NothingHere          no conversation is held here yet
│   ├── NothingAwaited       no answer is awaited on this branch
│   ├── ReadOnlyHere         your key may not write in this conversation
│   ├── ChecksFailed         a check found something bad
│   │   └── NotInPlace       of what doctor looks at
│   ├── ConfigInvalid        the settings don't parse
│   └── FileUnusable         a file can't be read or written
│       └── FileExists       it is there already
├── EntryRefused
│   └── MessageTooLong       a message that no entry can carry
├── Unavailable
│   └── DaemonFailed         a daemon did not start, or keeps ending
│       ├── HostKeyElsewhere a host whose key the hub does not vouch for
│       └── ModelNotFetched  the model it is to serve is not here
└── Unforeseen               a mistake of ours
"""

from replica.errors import AntiphonError, RequestRefused, Unavailable
from replica.refusals import BodyTooLarge, NotAllowed


class PrefixUnknown(RequestRefused):
    """Nothing here has an id that begins like this."""

    reason = "ID_UNKNOWN"
    next_step = "antiphon list    shows the conversations held here"


class EntryUnknown(PrefixUnknown):
    """No entry of the conversation has an id that begins like this."""

    next_step = "antiphon log --graph    shows the entries and their ids"


class PrefixAmbiguous(RequestRefused):
    """Several ids begin like this."""

    reason = "ID_AMBIGUOUS"
    next_step = "Type more digits of the id."


class NothingHere(RequestRefused):
    """No conversation is held here yet."""

    reason = "NO_CONVERSATION"
    next_step = "antiphon new    begins one; antiphon import FILE brings one"


class NothingAwaited(RequestRefused):
    """No answer is awaited on this branch."""

    reason = "NOTHING_AWAITED"
    next_step = "antiphon log --graph    shows the branches and what is open on them"


class ReadOnlyHere(NotAllowed):
    """Your key may read this conversation, but not write in it."""

    next_step = "antiphon key show    prints the key an owner must grant the writer's role"


class MessageTooLong(BodyTooLarge):
    """One message takes at most half a mebibyte."""

    next_step = "Send it in parts: antiphon send --no-request, and the last one without."


class ChecksFailed(RequestRefused):
    """A check found something bad; the lines above say what."""

    reason = "CHECKS_FAILED"
    next_step = "Fetch sound copies: link a replica that verifies, or import its bundle."


class NotInPlace(ChecksFailed):
    """Something that is needed is not in place."""

    next_step = "Do what stands below each failed check, then run antiphon doctor again."


class ConfigInvalid(RequestRefused):
    """The settings don't parse."""

    reason = "CONFIG_INVALID"
    next_step = "antiphon --print-config    shows the settings in force"


class FileUnusable(RequestRefused):
    """A file can't be read or written."""

    reason = "FILE_UNUSABLE"
    next_step = "Check the path and its permissions."


class FileExists(FileUnusable):
    """Nothing is overwritten unless told so."""

    next_step = "Choose another name, or give --force."


class DaemonFailed(Unavailable):
    """A daemon did not start, or ended."""

    reason = "DAEMON_FAILED"
    next_step = "Read the last lines of its log above."


class HostKeyElsewhere(DaemonFailed):
    """The host keeps its key elsewhere, so the hub beside it does not vouch for it."""

    next_step = "Let it keep identity.key in its --data-dir; or run both by hand, with --host-key"


class ModelNotFetched(DaemonFailed):
    """The model could not be fetched; what is above says why."""

    reason = "MODEL_NOT_FETCHED"
    next_step = "antiphon model list    shows the models known by name, and which are here"


class Unforeseen(AntiphonError):
    """It is a mistake of ours, not of yours."""

    next_step = "antiphon --verbose COMMAND …    says where it happened; please report that"
