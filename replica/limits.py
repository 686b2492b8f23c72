"""Protocol constants and default quotas (spec/11-limits names each).

Admission enforces the protocol constants, which are the same everywhere. A quota is
set per link or hub; entries beyond it are refused before admission.
"""

VERSION = 1
"""Version of the protocol, agreed in Hello and Welcome (spec/12-versioning)."""
DRAFT = 2
"""Draft of that version, recorded in stores and bundles until the version is stable."""

HEADER_BYTES_MAX = 8 * 1024
BODY_BYTES_MAX = 512 * 1024
PARENTS_MAX = 64
SEAL_ENTRIES_MAX = 8_192
OWNERS_MAX = 16
CUTS_MAX = 1_024
MEMBERSHIP_HEADS_MAX = 64
PARTS_MAX = 256
PART_NESTING_MAX = 4
STOP_STRINGS_MAX = 16
DOCUMENT_UPDATE_BYTES_MAX = 64 * 1024
CLOCK_MAX = 2**53 - 1
"""Greatest seq and lamport, exact as a 64-bit float."""

FRAME_BYTES_MAX = 1024 * 1024
CREDIT_BYTES = 2 * 1024 * 1024
PENDING_LINK_BYTES_MAX = 4 * 1024 * 1024
PENDING_BYTES_MAX = 64 * 1024 * 1024
CONVERSATIONS_PER_LINK_MAX = 4_096
MEMBERSHIP_RESERVE = 1_024
"""Membership entries owners may add to a full conversation, so that a revocation fits."""
HOSTS_MAX = 64
HOST_PROFILES_MAX = 16
HOST_TEXT_BYTES_MAX = 256
TICKET_LIFETIME_S = 15 * 60
METADATA_BYTES_MAX = 4 * 1024
IDS_PER_FRAME = 16_384
FETCH_IDS_MAX = 8_192

IDLE_TIMEOUT_S = 60.0
HEARTBEAT_S = 20.0
RESYNC_S = 5.0
"""Time without an ack of a sent entry after which the sender compares heads again."""
DENIED_RECHECK_S = 60.0
"""Time after which a client reopens a conversation it was denied: a grant may have come."""

STOP_STRING_BYTES_MAX = 256
"""Most bytes of an answer that a host holds back to look for a stop string."""
STOP_TOKENS_MAX = 64
LOGIT_BIASES_MAX = 1_024
LOGPROBS_MAX = 20
DRAFT_BYTES_MAX = 4 * 1024 * 1024
"""Most bytes of a running draft that a hub keeps, per request."""
BLOB_BYTES_MAX = 1024 * 1024 * 1024
BLOBS_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""Most bytes of all blobs of one conversation."""
BLOB_CHUNK_BYTES = 256 * 1024
OUTBOX_BYTES_MAX = 16 * 1024 * 1024
WRITE_TIMEOUT_S = 60.0
