"""The removal of a key, as its own replica knows it (DECISIONS D383).

A hub sends a removed key nothing more, the entry that removes it included, and answers as
if the conversation did not exist (LINK-9). So the log says who removed the key only if that
entry came another way, in a bundle for example.
"""

from replica.conversation.conversation import Conversation
from replica.conversation.invitation import KeyRemoved
from replica.errors import AntiphonError, RequestRefused, with_step
from replica.ids import EntryId, PublicKey, short
from replica.log import Body, Member, Revocation, cuts_at_heads
from replica.refusals import ConversationUnknown, CreateForbidden


class LastOwner(RequestRefused):
    """Without its last owner nobody could grant, remove or invite anybody, for good."""

    reason = "LAST_OWNER"
    next_step = (
        "Keep the conversation, delete it with `antiphon delete --hub`, or make another key an"
        " owner by a program: `conversation.grant(key, 'owner')`. To leave it without one,"
        " give `--yes`, or `leave_ownerless=True`."
    )


_KEPT = "what is here can still be read"
_INVITE = (
    "Invite its holder again, `antiphon invite NAME` or `invite(name)`: they join with a new key,"
    " in another folder."
)


def removal_of(held: Conversation, key: PublicKey) -> KeyRemoved | None:
    """Return the error of a key that the log says was removed, with the name of who did it."""
    membership = held.log.membership
    if key not in membership.kept:
        return None
    by = _removed_by(held, key)
    who = "it removed itself" if by is None or by == key else f"{short(by)} removed it"
    return KeyRemoved(f"your key {short(key)} is no member any more: {who}; {_KEPT}")


def means_removal(held: Conversation, key: PublicKey, reason: str) -> bool:
    """Say whether a hub that refuses the whole conversation says so because the key was removed.

    A hub that lost the conversation gets it back from this replica. One that goes on to say
    that there is none has judged the key by a removal that is not here. Where it lets few keys
    begin conversations, it says so to others in place of that (LINK-10).
    """
    means_it = reason == ConversationUnknown.reason or (
        reason == CreateForbidden.reason and held.creator != key
    )
    return means_it and bool(held.log.membership.roles.get(key))


def refusal_of(held: Conversation, key: PublicKey, error: AntiphonError) -> AntiphonError:
    """Return what a hub's refusal of a conversation means to a key that the log grants a role."""
    if not means_removal(held, key, error.reason):
        return error
    return removal_of(held, key) or KeyRemoved(
        f"the hub takes nothing from your key {short(key)} any more: an owner removed it, and who"
        f" did is not told to a removed key; {_KEPT}"
    )


def check_not_removed(held: Conversation, key: PublicKey) -> None:
    """Refuse to give a role to a key that was removed: no grant has effect. Raises KeyRemoved."""
    if key in held.log.membership.kept:
        removed = KeyRemoved(f"{short(key)} was removed, which is for good")
        raise with_step(removed, _INVITE)


def check_owner_stays(held: Conversation, leaving: PublicKey) -> None:
    """Refuse the removal of the last owner. Raises LastOwner."""
    membership = held.log.membership
    if {*filter(membership.is_owner, membership.roles)} == {leaving}:
        raise LastOwner(f"{short(leaving)} is the last owner of this conversation")


def is_readers_leaving(held: Conversation, key: PublicKey, body: Body) -> bool:
    """Say whether `body` is the leaving of a reader, which has a form of its own (ORD-3)."""
    match body:
        case Member(Revocation(key=removed)):
            return removed == key and not held.log.membership.covers_author(key)
        case _:
            return False


def removal_to_write(
    held: Conversation, ours: PublicKey, key: PublicKey
) -> tuple[Member, tuple[EntryId, ...]]:
    """Return the entry with which our key removes another, or itself, and its parents.

    That of a reader follows the genesis alone and has no cuts; the author begins a lane with it.
    """
    genesis = EntryId(held.id)
    plain = Member(Revocation(key))
    if is_readers_leaving(held, ours, plain):
        return plain, (genesis,)
    change = Revocation(key, cuts_at_heads(held.log, key))
    return Member(change), held.log.membership_heads() or (genesis,)


def _removed_by(held: Conversation, key: PublicKey) -> PublicKey | None:
    """Return the author of the first revocation of a key that counts."""
    membership = held.log.membership
    for entry in sorted(held.log.entries.values(), key=lambda entry: entry.order_key):
        author = entry.header.author
        match held.log.body(entry.id):
            case Member(Revocation(key=removed)) if removed == key and membership.counts(entry):
                if author == key or membership.ranks[author] < membership.ranks[key]:
                    return author
            case _:
                pass
    return None
