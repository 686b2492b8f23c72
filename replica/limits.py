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
BODY_FIELDS_MAX = 10_240
PARENTS_MAX = 64
SEAL_ENTRIES_MAX = 8_192
OWNERS_MAX = 16
CUTS_MAX = 1_024
MEMBERSHIP_HEADS_MAX = 64
PARTS_MAX = 256
LABEL_BYTES_MAX = 64
STOP_STRINGS_MAX = 16
GRAMMAR_BYTES_MAX = 64 * 1024
TOOL_NAME_BYTES_MAX = 256
DOCUMENT_UPDATE_BYTES_MAX = 64 * 1024
CLOCK_MAX = 2**53 - 1
"""Greatest seq and lamport, exact as a 64-bit float."""

FRAME_BYTES_MAX = 1024 * 1024
CREDIT_BYTES = 2 * 1024 * 1024
PENDING_LINK_BYTES_MAX = 4 * 1024 * 1024
PENDING_ENTRY_BYTES_MIN = 1_024
PENDING_BYTES_MAX = 64 * 1024 * 1024
CONVERSATIONS_PER_LINK_MAX = 4_096
ENTRIES_MAX = 1_000_000
"""Entries of a conversation at a hub, unless its operator states another number."""
LINKS_PER_KEY_MAX = 64
"""Links and Watches of a key at a hub, likewise."""
CONVERSATIONS_IN_MEMORY_MAX = 1_000
MEMBERSHIP_RESERVE = 1_024
"""Membership entries owners may add to a full conversation, so that a revocation fits."""
ANSWERS_RESERVE = 256
"""Entries of a full conversation that end the requests open in it: seals, answers and CANCELs."""
LANES_PER_KEY_MAX = 1_024
OWN_HEADS_MAX = 1_024
"""Heads that a Hint names; owners may have more lanes, since changes of members have no bound."""
FORK_HEADS_MAX = 64
"""Heads of one lane that a Hint names: whoever forks its lane again and again has no more."""
OPEN_LOOKED_AT = 16
"""Requests without an answer that one Hint looks at, the latest ones: it bounds its cost."""
READER_ENTRIES_MAX = 64
"""Entries of a key whose only role is to read: it may join heads and resign."""
SEALS_PER_REQUEST_MAX = 8
REVOCATIONS_PER_KEY_MAX = 16
"""Revocations of one key by one other, or by itself."""
HOSTS_MAX = 64
HOST_PROFILES_MAX = 16
HOST_TEXT_BYTES_MAX = 256
TICKET_LIFETIME_S = 15 * 60
INVITATION_LIFETIME_S = 24 * 3600
MAILBOXES_MAX = 4_096
MAILBOXES_PER_KEY_MAX = 64
DEPOSITS_MAX = 8
"""Proofs that a mailbox holds; further ones are dropped."""
METADATA_BYTES_MAX = 4 * 1024
IDS_PER_FRAME = 8_192
FETCH_IDS_MAX = 8_192
FETCH_RANGES_MAX = 1_024
ENTRIES_PER_FRAME_MAX = 2_048
HEADS_PER_FRAME_MAX = 8_192
"""Lanes beyond which logs are compared by ids alone."""
LISTING_ITEMS_MAX = 1_024
LISTED_MAX = 65_536
"""Listed conversations that a client remembers, so that an invented list is bounded."""
OPENING_MAX = 64
"""Listed conversations that a client opens at the same time."""
STALE_S = 60.0
"""Time without an entry after which a conversation whose request waits may be closed."""
IDS_HELD_MAX = 1 << 20
"""Most ids of a hub that all channels of a client keep, and one channel while chunks arrive."""
SEEDINGS_MAX = 3
"""Times a client sends a log to a hub that does not know it, before it gives up."""
ITEMS_PER_FRAME_MAX = 16_384
"""Items of any other repeated field, and all other fields together."""
REQUEST_BYTES_MAX = 4_096
"""Bytes of the request of a call whose kind needs no more."""
REQUEST_TIMEOUT_S = 20.0
"""Time in which the request of a call has to come."""
KEYLESS_CALLS_MAX = 64
"""Calls without a key that wait for their request at a time."""
STRANGER_CALLS_MAX = 8_192
"""Refused calls and calls without a key that wait for their turn at a hub."""
TURNS_PER_S = 200.0
"""Turns while some wait: with all their work they keep a hub busy for a fifth of the time."""
TURNS_AT_ONCE = 200
"""Turns before any waits: some 0.2 s of work."""

UNITS_PER_S = 100_000
"""Units that a hub works off in a second: one is some 10 µs."""
BURST_UNITS = 100_000
"""Units ahead of the hub before anybody waits: about a second."""
WAIT_S_MAX = 5.0
"""Longest wait before one frame of a link, well under its idle time-out."""
RESERVE_UNITS = 20_000
"""Recent units of MEMBER and CANCEL that a payer may cause without waiting."""
HALF_LIFE_S = 10.0
"""Time in which recent work counts half."""
NEWCOMER_S = 600.0
"""Time for which a creator is new."""
CREATORS_MAX = 65_536
"""Most creators in the table of the known and in that of the new ones."""
PAYERS_MAX = 65_536
"""Keys whose payers are remembered; the others are strangers until their next work."""

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
STREAMS_MAX = 4_096
"""Links and Watches of all keys of a hub, and as many transfers beside them."""
RELEASED_SHARE = 8
"""Released streams may be this share of all, until their calls have ended."""
CALLS_SHARE = 4
"""A stream has a connection, a transfer a connection and a file; a quarter is for the rest."""
TRANSFERS_PER_KEY_MAX = 16
"""Fetches and transfers of blobs of one key at a time."""
CONNECTION_CALLS_MAX = 256
"""Calls of any kind of one connection at a time; further ones wait at the caller."""
CALLS_PER_KEY_MAX = 64
"""Unary calls of one key that run at a time."""
CALLS_MAX = 1_024
"""Unary calls of all keys that run at a time; of those beyond half a key has one at most."""
RUNNING_DRAFTS_BYTES_MAX = 32 * 1024 * 1024
"""Most memory of all running drafts of a conversation."""
DRAFT_BYTES_MAX = 16 * 1024 * 1024
"""Most memory of a running draft that a hub keeps, per request."""
BLOB_BYTES_MAX = 1024 * 1024 * 1024
BLOBS_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""Most bytes of all blobs of one conversation."""
BLOB_CHUNK_BYTES = 256 * 1024
EXPIRING_BLOBS_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Most bytes of the blobs of one conversation that expire."""
ARCHIVE_BYTES_MAX = 1024 * 1024 * 1024
"""Most bytes of a checkpoint archive that a host imports."""
CHECKPOINT_TOKENS_MAX = 2**24
OUTBOX_BYTES_MAX = 16 * 1024 * 1024
OUTBOX_MESSAGES_MAX = 20_000
BACKLOG_BYTES_MAX = 1024 * 1024
"""Bytes of one link that a hub received and that are not durable yet; then reading stops."""
MEMORY_LINK_BYTES_MAX = 32 * 1024 * 1024
"""Most memory that one link occupies at a hub: queued frames, ids, pending entries; likewise
the drafts of one conversation."""
MEMORY_KEY_BYTES_MAX = 128 * 1024 * 1024
MEMORY_BYTES_MAX = 512 * 1024 * 1024
"""Most memory that all links and drafts of a hub occupy, beside the conversations themselves."""
LOGS_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""Memory of all conversations beyond which a hub evicts unused ones."""
CONVERSATIONS_PER_CREATOR_MAX = 16_384
CONVERSATIONS_MAX = 1_048_576
FEW_CONVERSATIONS = 16
"""Conversations of a key up to which it has a part in the last ones that a hub takes."""
CONVERSATION_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Most bytes of the entries of a conversation at a hub."""
DISK_CREATOR_BYTES_MAX = 64 * 1024**3
DISK_SHARE = 0.9
"""Share of its disk that all conversations have, unless the operator states bytes."""
RESERVE_SHARE = 8
"""The last part of the disk, 1 in so many, is for creators below their share alone."""
DISK_RESERVE_BYTES = 1024 * 1024
"""Disk beyond the bounds of a creator that MEMBER and CANCEL entries alone may take."""
ANSWERS_RESERVE_BYTES = 16 * 1024 * 1024
"""Bytes beyond the bounds of a conversation, or of a creator, that seals and answers may take."""
UPLOAD_LIFETIME_S = 24 * 3600
"""Age of an upload that nobody goes on with, after which it is deleted."""
BLOB_FILES_MAX = 4_096
"""Most blobs and uploads of a conversation."""
WRITE_TIMEOUT_S = 60.0

HOST_OPEN_MAX = 1_024
"""Conversations that a model host has open, unless its operator states another number."""
HOST_OPEN_PER_OWNER_MAX = 256
"""Those of one creator; one more takes an idle one's place."""
HOST_OPEN_UNASKED_MAX = 256
"""Open conversations up to which a listed one is opened before anybody asks in it."""
HOST_OPEN_IDLE_S = 900.0
"""Time without an entry after which a conversation is closed until somebody asks in it."""
HOST_RUNNING_MAX = 64
HOST_RUNNING_PER_OWNER_MAX = 48
"""Less than of all, so that one owner can't keep all others waiting."""
HOST_WAITING_PER_OWNER_MAX = 256
"""The newest requests beyond it are refused (HOST-28)."""
LOSSES_MAX = 8
"""Losses until work is given up: two that take the memory from each other would never end."""
COUNTS_MAX = 16
RENDERS_MAX = 16
PAGES_MAX = 16
WARMS_MAX = 4
"""Calls of Warm that compute at once; they advance in turn."""
ANSWERS_IN_A_ROW_MAX = 8
"""Contexts of answers that are rendered before a call that only counts or warms has its turn."""
KEEP_S_MAX = 3_600
"""Longest time for which a context stays in memory once it is computed."""
PINS_MAX = 1_024
"""Most pins of a pool; together they hold at most half of its memory.

Each is of one conversation and expires, so that none holds them for good.
"""
GRAMMARS_MAX = 2
"""Grammars that are compiled at once: those who pay for new ones have them in turn."""
GRAMMAR_CPU_S_MAX = 2.0
"""CPU time of one grammar; common ones take some milliseconds."""
GRAMMAR_MEMORY_BYTES_MAX = 1024**3
REPLAY_TOKENS_MAX = 1 << 23
"""Most tokens of all contexts together, each counted in full: memory for their ids."""
REPLAY_ENTRIES_MAX = 1 << 20
"""Most entries that the seals of a replay list; one that several list counts for each."""
REPLAY_GRAMMAR_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes of the different grammars of a replay: a gigabyte, where they are costly."""
REPLAYS_UNREAD_MAX = 4
"""Replays that are computed and not read yet; the oldest is dropped for another one."""
EXPORTS_MAX = 16
IMPORTS_MAX = 2
"""Archives that are received at the same time: each is a gigabyte at most."""
IMPORT_TIMEOUT_S = 600.0
