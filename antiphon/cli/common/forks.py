"""Forked lanes, shown once per command: whose device it is, and what to do.

A fork is history: both entries are kept, and every replica shows both. In the
field it is nearly always a backup that was restored, or a data folder in two places.
"""

from typing import Any

from antiphon.cli.common.session import Session
from antiphon.cli.views import counted
from replica.conversation import Conversation
from replica.ids import PublicKey, short

OWN_STEP = (
    "Was a backup of this folder restored, or is it in use twice? Nothing is lost: both"
    " histories are in the log, and new entries go on in a new lane."
)
OTHER_STEP = (
    "Ask its owner whether a backup was restored. If the device was copied by somebody else,"
    " an owner of the conversation can revoke the key."
)


def fork_records(held: Conversation) -> list[dict[str, Any]]:
    """Return the forks of a conversation as JSON objects."""
    return [
        {
            "author": lane.author.hex(),
            "epoch": f"{lane.epoch:016x}",
            "track": lane.track,
            "seq": seq,
            "entries": [i.hex() for i in ids],
        }
        for lane, seq, ids in held.log.equivocations()
    ]


def fork_words(held: Conversation, own: PublicKey | None) -> list[str]:
    """Return a sentence for each device that forked a lane, with the next step."""
    by_author: dict[PublicKey, list[str]] = {}
    for lane, seq, ids in held.log.equivocations():
        at = f"{' and '.join(short(i) for i in ids)} at position {seq}"
        by_author.setdefault(lane.author, []).append(at)
    return [_words(held, author, found, own) for author, found in sorted(by_author.items())]


def _words(held: Conversation, author: PublicKey, found: list[str], own: PublicKey | None) -> str:
    is_own = author == own
    whose = "this device" if is_own else f"the device {short(author)}"
    lanes = counted(len(found), "lane", "lanes")
    step = OWN_STEP if is_own else OTHER_STEP
    return f"{short(held.id)}: {whose} wrote two histories of {lanes}: {found[0]}. {step}"


def say_forks(session: Session, held: Conversation) -> None:
    """Print a note for each device that forked a lane of the conversation."""
    for words in fork_words(held, session.own_key()):
        session.out.note(words)
