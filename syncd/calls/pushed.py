"""What a Push answers about its entries: next steps and warnings (spec/04-link §9).

Pure. An outcome is the only place where an entry of a Push is answered for. A
warning is about an entry that is durable and will not have the effect its author
expects; the log says nothing about that.
"""

from collections.abc import Callable, Container
from dataclasses import replace

from replica.conversation import Conversation
from replica.errors import AntiphonError
from replica.ids import EntryId, PublicKey
from replica.link import Fault
from replica.log import Kind, Message, Request
from replica.refusals import EntriesMissing, PendingFull, SeqGap


class Warned(AntiphonError):
    """The entry is durable, and may not have the effect its author expects."""


class BodyVoid(Warned):
    """The body does not parse, or holds nothing, so the entry is void."""

    reason = "BODY_VOID"
    next_step = "Compare the body with spec/02-entry, and write a correct one in a new entry."


class HostUngranted(Warned):
    """The key that the request names has no HOST role here, so nobody answers it."""

    reason = "HOST_UNGRANTED"
    next_step = "Grant the key the role HOST, or name another host in a new request."


class HostAbsent(Warned):
    """The host that the request names is not linked to this hub now."""

    reason = "HOST_ABSENT"
    next_step = "Wait until it links, or cancel the request and name another host (Hosts)."


_NEXT_STEPS = {
    EntriesMissing.reason: "Push the missing entries before this one; a Push keeps nothing"
    " that waits.",
    PendingFull.reason: "Push fewer entries, in send order; a Push keeps nothing that waits.",
    SeqGap.reason: "Number the lane without gaps, from the own head that a Hint names.",
}
"""Per reason: what a caller of Push can do, where the text for links does not fit."""


def for_push(fault: Fault) -> Fault:
    """Return a fault with the next step of a caller that has no link."""
    next_step = _NEXT_STEPS.get(fault.reason)
    return fault if next_step is None else replace(fault, next_step=next_step)


def warning_about(
    held: Conversation, entry_id: EntryId, linked: Callable[[], Container[PublicKey]]
) -> Warned | None:
    """Return the warning about an admitted entry; `linked` returns the hosts linked now."""
    log = held.log
    if entry_id not in log.entries:
        return None
    body = log.body(entry_id)
    if log.is_malformed(entry_id) or (isinstance(body, Message) and not body.parts):
        return BodyVoid()
    if log.entries[entry_id].header.kind != Kind.REQUEST or not isinstance(body, Request):
        return None
    if not log.membership.is_host(body.host):
        return HostUngranted()
    return None if body.host in linked() else HostAbsent()
