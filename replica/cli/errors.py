"""What can go wrong at the command line itself, beyond the library's refusals.

AntiphonError
├── RequestRefused
│   ├── PrefixUnknown        nothing here has an id that begins so
│   ├── PrefixAmbiguous      several ids begin so
│   ├── NothingHere          no conversation is held here yet
│   ├── ChecksFailed         a check found something bad
│   └── ConfigInvalid        the settings don't parse
└── Unavailable
    └── DaemonFailed         a daemon did not start, or keeps ending
"""

from replica.errors import RequestRefused, Unavailable


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


class HostUnlinked(Unavailable):
    """No model host is linked to the hub."""

    reason = "HOST_UNLINKED"
    next_step = "antiphon up    starts a hub and a host; or name one with --host KEY"


class ChecksFailed(RequestRefused):
    """A check found something bad; the lines above say what."""

    reason = "CHECKS_FAILED"
    next_step = "Fetch sound copies: link a replica that verifies, or import its bundle."


class ConfigInvalid(RequestRefused):
    """The settings don't parse."""

    reason = "CONFIG_INVALID"
    next_step = "antiphon --print-config    shows the settings in force"


class FileUnusable(RequestRefused):
    """A file can't be read or written."""

    reason = "FILE_UNUSABLE"
    next_step = "Check the path and its permissions."


class DaemonFailed(Unavailable):
    """A daemon did not start, or ended."""

    reason = "DAEMON_FAILED"
    next_step = "Read the last lines of its log above."
