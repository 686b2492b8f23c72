"""The SQL of the store, and the rows entries are written as (tables in schema.py)."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from replica.io.store.rows import checksum_of, is_listed
from replica.io.store.small_rows import ENDING, RECORD
from replica.io.store.transaction import Statement
from replica.log import Entry

APPEND = """
INSERT INTO entries (conversation, id, header, signature, checksum, body)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation, id) DO UPDATE SET header = excluded.header,
  signature = excluded.signature, checksum = excluded.checksum,
  body = ifnull(excluded.body, body)
WHERE header IS NOT excluded.header OR signature IS NOT excluded.signature
  OR checksum IS NOT excluded.checksum OR body IS NOT ifnull(excluded.body, body)
"""
"""A different row of the same id is damaged and replaced, because appended entries are verified."""

LIST = "INSERT OR REPLACE INTO membership VALUES (?, ?, ?)"

# One statement, so that all rows are from one snapshot; the numbers are the sorts of rows.py.
SELECT = """
SELECT 0, rowid, id, header, signature, checksum, body FROM entries
WHERE conversation = ?1
UNION ALL SELECT 1, NULL, id, NULL, NULL, checksum, NULL FROM membership
WHERE conversation = ?1
UNION ALL SELECT 2, NULL, id, NULL, NULL, checksum, NULL FROM quarantine
WHERE conversation = ?1 AND NOT body_only
"""
SELECT_HEADERS = SELECT.replace("checksum, body FROM", "checksum, body IS NOT NULL FROM")
"""The same rows, with whether there is a body: SQLite reads no page that holds bodies alone."""

IDS_MAX = 500
"""Ids that one statement asks for."""


@lru_cache
def select_held(count: int) -> str:
    """Return the statement for the ids stored, of so many conversations and ids of theirs."""
    marks = ", ".join("?" * count)
    return f"SELECT id FROM entries WHERE conversation IN ({marks}) AND id IN ({marks})"  # noqa: S608  # no input in it


@lru_cache
def select_some(count: int) -> str:
    """Return the statement for `count` entries of one conversation by id."""
    marks = ", ".join("?" * count)
    return f"""
SELECT 0, rowid, id, header, signature, checksum, body FROM entries
WHERE conversation = ? AND id IN ({marks})
"""  # noqa: S608  # nothing but marks is put in


HAS = """
SELECT 1 FROM entries WHERE conversation = ?1
UNION ALL SELECT 1 FROM quarantine WHERE conversation = ?1
UNION ALL SELECT 1 FROM membership WHERE conversation = ?1 LIMIT 1
"""
SIZES = """
SELECT conversation, count(*), sum(length(header) + length(signature) + ifnull(length(body), 0)),
  sum(checksum & 0xffffffff),
  EXISTS (SELECT 1 FROM entries AS found WHERE found.conversation = entries.conversation)
FROM entries GROUP BY conversation
"""
"""The last column is 0 where a damaged index has a key that no search finds.

A damaged checksum is cut to 32 bits: SQLite refuses a sum that is too great for an integer.
"""
MEMBERSHIP_SUMS = """
SELECT conversation, count(*), sum(checksum & 0xffffffff) FROM (
  SELECT entries.conversation, entries.checksum FROM membership CROSS JOIN entries
  ON entries.conversation = membership.conversation AND entries.id = membership.id
) GROUP BY conversation
"""
LISTED = "SELECT count(*) FROM membership"
LACKING = """
SELECT DISTINCT conversation FROM quarantine WHERE NOT body_only AND NOT EXISTS (
  SELECT 1 FROM entries
  WHERE entries.conversation = quarantine.conversation AND entries.id = quarantine.id
)
"""
"""Conversations with entries that were set aside and did not come again."""
IN_QUARANTINE = "SELECT DISTINCT conversation, id, checksum FROM quarantine"
QUARANTINED = "SELECT conversation, id, body_only, why FROM quarantine ORDER BY rowid"

# These compare the bad bytes as they were read, so that a row repaired meanwhile stays. A
# damaged column may have any type, which a comparison without CAST would consider.
SET_ASIDE = """
INSERT INTO quarantine SELECT ?6, ?7, header, signature, body, ?8, ?9, ?10 FROM entries
WHERE rowid = ?1 AND CAST(header AS BLOB) IS CAST(?2 AS BLOB)
  AND CAST(signature AS BLOB) IS CAST(?3 AS BLOB)
  AND CAST(checksum AS BLOB) IS CAST(?4 AS BLOB) AND CAST(body AS BLOB) IS CAST(?5 AS BLOB)
"""
DROP_ROW = """
DELETE FROM entries
WHERE rowid = ?1 AND CAST(header AS BLOB) IS CAST(?2 AS BLOB)
  AND CAST(signature AS BLOB) IS CAST(?3 AS BLOB)
  AND CAST(checksum AS BLOB) IS CAST(?4 AS BLOB) AND CAST(body AS BLOB) IS CAST(?5 AS BLOB)
"""
DROP_BODY = """
UPDATE entries SET body = NULL
WHERE rowid = ?1 AND CAST(header AS BLOB) IS CAST(?2 AS BLOB)
  AND CAST(signature AS BLOB) IS CAST(?3 AS BLOB)
  AND CAST(checksum AS BLOB) IS CAST(?4 AS BLOB) AND CAST(body AS BLOB) IS CAST(?5 AS BLOB)
"""
NOTE_GONE = "INSERT INTO quarantine VALUES (?, ?, NULL, NULL, NULL, 0, 'its row is gone', ?)"
NOTE_BODY_LOST = """
INSERT INTO quarantine VALUES (?, ?, NULL, NULL, NULL, 1, 'its body failed its digest', ?)
"""

COUNT = """
SELECT (SELECT count(*) FROM entries WHERE conversation = ?1)
  + (SELECT count(*) FROM quarantine WHERE conversation = ?1 AND NOT body_only)
"""
DELETE = (
    "DELETE FROM entries WHERE conversation = ?",
    "DELETE FROM acks WHERE conversation = ?",
    "DELETE FROM quarantine WHERE conversation = ?",
    "DELETE FROM membership WHERE conversation = ?",
)

DELETE_RECORD = f"DELETE FROM meta WHERE key = '{RECORD}' || lower(hex(?))"  # noqa: S608  # a constant

DELETE_NAMES = "DELETE FROM meta WHERE value = ?"
"""Forget what names a conversation, as by its title."""

DELETE_ENDING = f"DELETE FROM meta WHERE key = '{ENDING}' || lower(hex(?))"  # noqa: S608  # likewise

ROWS_OF = """
SELECT rowid FROM entries WHERE conversation = ?1 AND rowid > ?2 ORDER BY rowid LIMIT 65536
"""
DELETE_ROW = "DELETE FROM entries WHERE rowid = ?"

SAVE_ACK = "INSERT OR REPLACE INTO acks VALUES (?, ?, ?, ?, ?, ?)"
LOAD_ACKS = """
SELECT conversation, peer, lane, head, acked_ms, checksum FROM acks
WHERE conversation = ?1 AND peer = ifnull(?2, peer)
"""
GET_META = """
SELECT key, value, checksum FROM copies WHERE key = ?1
UNION ALL SELECT key, value, checksum FROM meta WHERE key = ?1
"""
_RECORD_KEYS = f"key >= '{RECORD}' AND key < '{RECORD.rstrip()}!'"  # `!` is behind the space
ALL_META = f"""
SELECT key, value, checksum FROM copies
UNION ALL SELECT key, value, checksum FROM meta WHERE ({_RECORD_KEYS}) IS NOT TRUE
"""  # noqa: S608  # constants
"""All small values but the records of a hub, which are as many as its conversations."""
RECORDS = f"SELECT key, value, checksum FROM meta WHERE {_RECORD_KEYS}"  # noqa: S608  # constants
DROP_VALUE = "DELETE FROM meta WHERE key = ?"
DROP_META = """
DELETE FROM meta WHERE CAST(key AS BLOB) IS CAST(?1 AS BLOB)
  AND CAST(value AS BLOB) IS CAST(?2 AS BLOB) AND checksum IS ?3
"""
DROP_COPY = DROP_META.replace("meta", "copies")
PUT_META = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"

SELECT_BRINGERS = "SELECT conversation, bringer FROM bringers"
PUT_BRINGER = "INSERT OR REPLACE INTO bringers VALUES (?, ?)"

SELECT_TOMBSTONES = (
    "SELECT conversation, finished, checksum FROM tombstones",
    "SELECT conversation, finished, checksum FROM tombstones_again",
)
PUT_TOMBSTONE = (
    "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)",
    "INSERT OR REPLACE INTO tombstones_again VALUES (?, ?, ?)",
)
_DROP_TOMBSTONE = """
DELETE FROM tombstones WHERE CAST(conversation AS BLOB) IS CAST(?1 AS BLOB)
  AND CAST(finished AS BLOB) IS CAST(?2 AS BLOB) AND CAST(checksum AS BLOB) IS CAST(?3 AS BLOB)
"""
DROP_TOMBSTONE = (_DROP_TOMBSTONE, _DROP_TOMBSTONE.replace("tombstones", "tombstones_again"))


def appending(entries: Sequence[Entry]) -> list[Statement]:
    """Return the statements that store admitted entries."""
    rows = [
        (
            entry.conversation,
            entry.id,
            entry.header_bytes,
            entry.signature,
            checksum_of(entry.signature),
            entry.body,
        )
        for entry in entries
    ]
    listed = [entry for entry in entries if is_listed(entry)]
    return [Statement(APPEND, rows), *([listing(listed)] if listed else [])]


def listing(entries: Iterable[Entry]) -> Statement:
    """Return the statement that lists the ids of membership entries a second time."""
    rows = [(e.conversation, e.id, checksum_of(e.conversation, e.id)) for e in entries]
    return Statement(LIST, rows)
