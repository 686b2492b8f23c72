"""Refusals of entries and calls: one class per reason (spec/10-errors).

The first line of a docstring is the detail shown when an instance has none.
"""

from replica.errors import EntryRefused, RequestRefused, StoreError, Unavailable


class WireMalformed(EntryRefused):
    """The bytes are outside the strict wire subset."""

    reason = "WIRE_MALFORMED"
    next_step = "Encode with minimal varints, ascending fields and no default values."


class HeaderTooLarge(EntryRefused):
    """The header is larger than 8 KiB."""

    reason = "HEADER_TOO_LARGE"
    next_step = "Join surplus heads first, then name the JOIN as a parent."


class BodyTooLarge(EntryRefused):
    """The body is larger than 512 KiB."""

    reason = "BODY_TOO_LARGE"
    next_step = "Split the content over several entries: one has room for 511 KiB of text."


class FieldInvalid(EntryRefused):
    """A header field has a wrong length, range or combination."""

    reason = "FIELD_INVALID"
    next_step = "Compare the header with spec/02-entry and sign a correct one."


class ConversationMismatch(EntryRefused):
    """The entry belongs to another conversation."""

    reason = "CONVERSATION_MISMATCH"
    next_step = "Send the entry under the conversation its header names."


class SeqGap(EntryRefused):
    """seq does not follow the previous entry of the lane."""

    reason = "SEQ_GAP"
    next_step = "Number the lane without gaps, and send from the head that the peer reports."


class PrevInvalid(EntryRefused):
    """prev is not the lane's previous entry."""

    reason = "PREV_INVALID"
    next_step = "Name the id at seq - 1 of the same author, epoch and track."


class ParentInvalid(EntryRefused):
    """A parent is in another track or conversation."""

    reason = "PARENT_INVALID"
    next_step = "Name parents on the same track, or the genesis."


class BasisInvalid(EntryRefused):
    """The basis is not a seal, or the track has none."""

    reason = "BASIS_INVALID"
    next_step = "Name a seal of this conversation, and only on the conversation track."


class LamportInvalid(EntryRefused):
    """lamport is not 1 + the maximum over the entries that this one names."""

    reason = "LAMPORT_INVALID"
    next_step = "Recompute lamport from prev, parents, basis and the ids that a control body lists."


class KeyInvalid(EntryRefused):
    """The author key is not a canonical point of large order."""

    reason = "KEY_INVALID"
    next_step = "Generate a new Ed25519 key; a small-order key verifies forged signatures."


class SignatureInvalid(EntryRefused):
    """The signature does not verify."""

    reason = "SIGNATURE_INVALID"
    next_step = "Fetch the entry from another replica; this copy is corrupt or forged."


class BodyDigestMismatch(EntryRefused):
    """The body doesn't match the size and digest in the header."""

    reason = "BODY_DIGEST_MISMATCH"
    next_step = "Fetch the entry from another replica; this body is corrupt or forged."


class BodyMissing(EntryRefused):
    """A control entry came without its body."""

    reason = "BODY_MISSING"
    next_step = "Send control entries with their bodies."


class BodyMalformed(EntryRefused):
    """A control body does not parse or breaks a bound."""

    reason = "BODY_MALFORMED"
    next_step = "Compare the body with spec/02-entry and sign a correct one."


class GenesisInvalid(EntryRefused):
    """The genesis breaks a rule for geneses."""

    reason = "GENESIS_INVALID"
    next_step = "Start the conversation with a genesis as described in spec/02-entry."


class TrackInvalid(EntryRefused):
    """The kind does not belong on this track."""

    reason = "TRACK_INVALID"
    next_step = "Write the entry on the track of its kind (spec/02-entry, kinds)."


class ConversationUnknown(RequestRefused):
    """There is no such conversation here, or you are not a member of it."""

    reason = "CONVERSATION_NOT_FOUND"
    next_step = "Ask an owner for a role; if you hold the log, send it from the genesis."


class ConversationDeleted(RequestRefused):
    """An owner deleted this conversation from the hub."""

    reason = "CONVERSATION_DELETED"
    next_step = "Keep your copy or delete it too; this hub no longer accepts the conversation."


class EntriesMissing(RequestRefused):
    """Entries that the sent ones follow are missing here."""

    reason = "ENTRIES_MISSING"
    next_step = "Send the missing entries; those sent are kept as pending, until a PENDING_FULL."
    retryable = True


class PendingFull(RequestRefused):
    """Too many entries are pending for missing ones."""

    reason = "PENDING_FULL"
    next_step = "Send in send order (ORD-1), from the heads that the peer reports."
    retryable = True


class LanesDiverged(RequestRefused):
    """Two histories of one lane exist: the same position holds different entries."""

    reason = "LANES_DIVERGED"
    next_step = "Exchange all ids and write on in a new epoch; check whether a backup was restored."
    retryable = True


class CreateForbidden(RequestRefused):
    """The hub does not let your key create conversations."""

    reason = "CREATE_FORBIDDEN"
    next_step = "Ask the operator to allow your key, or use another hub."


class Unauthenticated(RequestRefused):
    """The ticket is missing, expired or forged."""

    reason = "TICKET_INVALID"
    next_step = "Authenticate again and repeat the call with the new ticket."
    retryable = True


class ProofInvalid(RequestRefused):
    """The authentication proof does not verify."""

    reason = "PROOF_INVALID"
    next_step = "Compare the two clocks; sign the transcript of spec/04-link with the key you name."


class PeerIdentityChanged(RequestRefused):
    """The peer's key is not the one pinned for this address."""

    reason = "PEER_IDENTITY_CHANGED"
    next_step = "Ask its operator; `antiphon hub trust` (hosts: `--hub-key`) takes a hub's new key."


class PinDamaged(RequestRefused):
    """The key pinned for this hub can't be read."""

    reason = "PIN_DAMAGED"
    next_step = "Run `antiphon hub trust`, and compare the key with the one the hub prints."


class NotAllowed(RequestRefused):
    """Your role does not allow this."""

    reason = "ROLE_FORBIDS"
    next_step = "Ask an owner to grant your key a role that allows it."


class FrameTooLarge(RequestRefused):
    """The frame has too many items, or is larger than 1 MiB."""

    reason = "FRAME_TOO_LARGE"
    next_step = "Split the entries or items over several frames."


class FrameMalformed(RequestRefused):
    """The frame does not parse, has no message, or has an id of another width."""

    reason = "FRAME_MALFORMED"
    next_step = "Compare the client with proto/antiphon/v1."


class ArgumentInvalid(RequestRefused):
    """An argument has a wrong length, range or combination."""

    reason = "ARGUMENT_INVALID"
    next_step = "Correct the named argument."


class KeyReused(RequestRefused):
    """The idempotency key belongs to another call of its author in this conversation.

    >>> answer = trip.ask("Capital of France?", key="job-19")
    >>> trip.ask("Capital of Italy?", key="job-19")
    Traceback (most recent call last):
    replica.refusals.KeyReused: the key belongs to another call
    """

    reason = "KEY_REUSED"
    next_step = "Make this call under a key of its own, or repeat the first call's text."


class VersionUnsupported(RequestRefused):
    """The two sides share no protocol version."""

    reason = "VERSION_UNSUPPORTED"
    next_step = "Upgrade the older of the two sides."


class OutOfOrder(RequestRefused):
    """A message came before another that must precede it."""

    reason = "LINK_OUT_OF_ORDER"
    next_step = "Send Hello first."


class QuotaExceeded(RequestRefused):
    """A quota of this hub is used up."""

    reason = "QUOTA_EXCEEDED"
    next_step = "Delete data you no longer need, or ask the operator for a higher quota."


class CriticalKindUnknown(RequestRefused):
    """The conversation holds a critical kind this version does not know."""

    reason = "CRITICAL_KIND_UNKNOWN"
    next_step = "Upgrade this program; until then the conversation is read-only here."


class CreditExceeded(RequestRefused):
    """The peer sent more bytes than it had credit for."""

    reason = "CREDIT_EXCEEDED"
    next_step = "Count sent frame bytes against the credit received."


class LinkIdle(Unavailable):
    """No frame came for longer than the idle timeout."""

    reason = "LINK_IDLE"
    next_step = "Connect again, and open each conversation from your heads."


class SlowReader(Unavailable):
    """The peer gave no credit while too many bytes were queued for it."""

    reason = "SLOW_READER"
    next_step = "Connect again, and open each conversation from your heads; nothing is lost."


class RateLimited(Unavailable):
    """Your key has more than its share of this hub's time, calls or streams."""

    reason = "RATE_LIMITED"
    next_step = "Repeat the call after the time named; smaller calls wait less."


class LogsTooLarge(Unavailable):
    """The open conversations of one creator occupy too much of this hub's memory."""

    reason = "LOGS_TOO_LARGE"
    next_step = "Wait; it is opened again by itself. Close other large conversations meanwhile."


class HubUnreachable(Unavailable):
    """The hub does not answer."""

    reason = "HUB_UNREACHABLE"
    next_step = "Start the hub or check its address; entries are kept and are sent on reconnect."


class NoHost(Unavailable):
    """No model host is named, pinned, or vouched for by the hub.

    >>> with antiphon.open("~/offline") as alone:
    ...     alone.conversation("notes").ask("Capital of France?")
    Traceback (most recent call last):
    replica.refusals.NoHost: there is no hub to name one
    """

    reason = "NO_HOST"
    next_step = (
        "Run `antiphon up`, or wait until it is ready. Or name a host with `--host KEY` or"
        " `antiphon.open(…, host=KEY)`, pin it as `host` in the settings, or have the hub's"
        " operator vouch for it with `--host-key KEY`. `antiphon new --no-host` begins without one."
    )


class BlobMissing(RequestRefused):
    """There is no such blob in this conversation."""

    reason = "BLOB_NOT_FOUND"
    next_step = "Check digest and conversation; if both are right, write the blob first."


class BlobOffsetInvalid(RequestRefused):
    """The offset is not the committed size."""

    reason = "BLOB_OFFSET_INVALID"
    next_step = "Call Stat for the committed size, and resume at it."
    retryable = True


class BlobDigestMismatch(RequestRefused):
    """The bytes written don't match the stated digest."""

    reason = "BLOB_DIGEST_MISMATCH"
    next_step = "Write the blob again from offset 0; the upload was dropped."


class BlobTooLarge(RequestRefused):
    """The blob is larger than this hub accepts."""

    reason = "BLOB_TOO_LARGE"
    next_step = "Split the content, or ask the operator for a higher limit."


class StoreFull(StoreError):
    """The disk is full; nothing acknowledged is lost."""

    reason = "STORE_FULL"
    next_step = "Free disk space and try again; writers send unacknowledged entries again."
    retryable = True


class StoreLocked(StoreError):
    """Another process holds this store."""

    reason = "STORE_LOCKED"
    next_step = "End that process, or let a stopped one go on (fg), or use another data folder."
    retryable = True


class StoreVersionUnknown(StoreError):
    """The store was written by a newer version."""

    reason = "STORE_VERSION_UNKNOWN"
    next_step = "Use the newer version; this one can't read the store."


class DraftUnknown(StoreError):
    """Another draft of version 1, with other rules, wrote this."""

    reason = "DRAFT_UNKNOWN"
    next_step = (
        "Run the version that wrote it: its `antiphon export` saves a conversation for versions of"
        " that draft, its `antiphon log --json` writes the messages for any other."
    )


class StoreCorrupt(StoreError):
    """Stored bytes don't match their digest."""

    reason = "STORE_CORRUPT"
    next_step = (
        "Run `antiphon repair` (with `--data-dir` for a daemon's folder): it sets the file aside,"
        " keeps what can be read, fetches the rest from the hub, and says what is lost."
    )


class StoreReadOnly(StoreError):
    """The data folder can be read and not written."""

    reason = "STORE_READ_ONLY"
    next_step = "Make the folder writable to write; `antiphon log` and `antiphon list` read it."


class ValueDamaged(StoreError):
    """A small value in the store doesn't match its checksum."""

    reason = "VALUE_DAMAGED"
    next_step = "Run `antiphon repair --data-dir FOLDER`. It drops values, and says what is lost."


class ConversationDamaged(StoreError):
    """The store lost membership entries; the conversation is blocked until they are back."""

    reason = "CONVERSATION_DAMAGED"
    next_step = (
        "Link a hub that holds them, or import a bundle of another member. If nobody holds them,"
        " delete the conversation here and sync it again."
    )
    retryable = True


class KeyFileInvalid(StoreError):
    """The key file is damaged, is no Ed25519 key, or other users can read it."""

    reason = "KEY_FILE_INVALID"
    next_step = (
        "Run `antiphon repair` (with `--data-dir` for a daemon's folder), which corrects one wrong"
        " bit. Else run `chmod 600` on the file, or `antiphon key restore BACKUP`, which sets a"
        " damaged file aside."
    )


class KeyFileUnchecked(StoreError):
    """The key file was written without a checksum, so damage to it would go unnoticed."""

    reason = "KEY_FILE_UNCHECKED"
    next_step = "Run `antiphon repair` (a daemon's: with `--data-dir`); compare the key it prints."


class BundleInvalid(StoreError):
    """The file is not a bundle of one conversation, or is damaged."""

    reason = "BUNDLE_INVALID"
    next_step = "Export the conversation again from a replica that verifies."
