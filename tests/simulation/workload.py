"""Actions of people: write, ask, edit, join threads, grant and revoke, also offline."""

from random import Random

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey, Track
from replica.limits import PARENTS_MAX
from replica.log.body import (
    Cancel,
    DocumentUpdate,
    Grant,
    Join,
    Member,
    Message,
    Request,
    Revocation,
    Role,
    Sampling,
    Speaker,
    Text,
)
from replica.log.entry import Conflict
from replica.log.revoking import cuts_at_heads
from replica.order.node import SealNode
from replica.order.tail import frontier
from tests.simulation.replica_node import ReplicaNode

ACTIONS = ("message",) * 4 + ("ask",) * 5 + ("document", "join", "regenerate", "edit", "leave")


def act(person: ReplicaNode, conversation: ConversationId, hosts: tuple[PublicKey, ...]) -> None:
    """Perform a random action if this person has the conversation and may write."""
    random = person.random
    held = _readable(person, conversation)
    if held is None:
        return
    action = random.choice(ACTIONS)
    host = random.choice(hosts)
    if Role.READER in held.log.membership.roles[person.public] and random.random() < 0.8:
        return  # else it writes anyway, and the entry is void
    match action:
        case "message":
            _say(person, held, _branch(held, random))
        case "ask":
            node = _branch(held, random)
            parents = (_say(person, held, node),)
            _ask(person, held, node, parents, host)
        case "regenerate":
            _regenerate(person, held, host)
        case "edit":
            _edit(person, held)
        case "document":
            _write_document(person, held)
        case "join":
            _join(person, held)
        case _:
            person.leave(conversation)
            person.later(random.choice((0.5, 4.0)), lambda: person.join(conversation))


def say(person: ReplicaNode, conversation: ConversationId) -> None:
    """Write a message if this person has the conversation."""
    held = _readable(person, conversation)
    if held is not None:
        _say(person, held, _branch(held, person.random))


def _readable(person: ReplicaNode, conversation: ConversationId) -> Conversation | None:
    held = person.shelf.get(conversation)
    if not person.is_alive or held is None or held.is_blocked:
        return None
    return held if held.is_member(person.public) else None


def _branch(held: Conversation, random: Random) -> SealNode | None:
    tips = held.order.tips()
    if not tips:
        return None
    return tips[-1] if random.random() < 0.8 else random.choice(tips)


def _frontier(held: Conversation, node: SealNode | None) -> tuple[EntryId, ...]:
    return frontier(held.order, node)


def _say(person: ReplicaNode, held: Conversation, node: SealNode | None) -> EntryId:
    body = Message(Speaker.USER, (Text(f"{person.name} {person.random.random():.6f}"),))
    basis = node.id if node is not None else None
    message = person.writer.write(held.id, body, _frontier(held, node), basis=basis).id
    if person.mix.cancels and person.random.random() < 0.15:
        later = person.random.choice((0.0, 0.3, 3.0))
        person.later(later, lambda: _cancel(person, held.id, message))
    return message


def _ask(
    person: ReplicaNode,
    held: Conversation,
    node: SealNode | None,
    parents: tuple[EntryId, ...],
    host: PublicKey,
) -> None:
    random = person.random
    body = Request(host, Sampling(), membership_heads=held.log.membership_heads())
    conflict = random.choice((Conflict.FORK, Conflict.QUEUE))
    basis = node.id if node is not None else None
    request = person.writer.write(held.id, body, parents, basis=basis, conflict=conflict)
    if person.mix.cancels and random.random() < 0.3:
        later = random.choice((0.0, 0.3, 3.0))
        person.later(later, lambda: _cancel(person, held.id, request.id))


def _cancel(person: ReplicaNode, conversation: ConversationId, ended: EntryId) -> None:
    """Cancel a request, or withdraw a message."""
    held = person.shelf.get(conversation)
    is_here = held is not None and ended in held.log.entries
    if held is not None and is_here and not held.is_blocked:
        person.writer.write(conversation, Cancel(), (ended,))


def _regenerate(person: ReplicaNode, held: Conversation, host: PublicKey) -> None:
    nodes = [held.order.nodes[i] for i in sorted(held.order.nodes)]
    if nodes:
        node = person.random.choice(nodes)
        parents = held.log.entries[node.seal.request].header.parents
        _ask(person, held, node.parent, parents, host)


def _edit(person: ReplicaNode, held: Conversation) -> None:
    """Write a message in place of an older entry."""
    seals = sorted(held.order.nodes)
    if not seals:
        return
    node = held.order.nodes[person.random.choice(seals)]
    older = held.log.entries[person.random.choice(node.seal.entries)].header
    basis = node.parent.id if node.parent is not None else None
    body = Message(Speaker.USER, (Text(f"{person.name} rather {person.random.random():.6f}"),))
    person.writer.write(held.id, body, older.parents, basis=basis)


def _write_document(person: ReplicaNode, held: Conversation) -> None:
    if person.random.random() < 0.3:  # a malformed update is void for all
        body = DocumentUpdate(person.random.randbytes(20))
        person.writer.write(held.id, body, _heads(held, Track.DOCUMENT))
    else:
        person.writer.set_title(held, f"{person.name} {person.random.random():.6f}")


def _join(person: ReplicaNode, held: Conversation) -> None:
    heads = _heads(held, Track.CONVERSATION)
    if len(heads) > 1:
        person.writer.write(held.id, Join(), heads)


def _heads(held: Conversation, track: Track) -> tuple[EntryId, ...]:
    log = held.log
    on_track = [i for i in log.covered() if log.entries[i].header.track == track]
    followed = {p for i in on_track for p in log.entries[i].header.parents}
    heads = sorted(i for i in on_track if i not in followed)
    return tuple(heads[:PARENTS_MAX]) or (EntryId(held.id),)


def grant(owner: ReplicaNode, conversation: ConversationId, key: PublicKey, role: Role) -> None:
    """Give a key a role."""
    held = owner.shelf[conversation]
    parents = held.log.membership_heads() or (EntryId(conversation),)
    owner.writer.write(conversation, Member(Grant(key, role)), parents)


def revoke(owner: ReplicaNode, conversation: ConversationId, key: PublicKey) -> None:
    """Revoke a key, keeping the entries that the author of the revocation holds."""
    held = owner.shelf.get(conversation)
    if not owner.is_alive or held is None or not held.is_member(owner.public):
        return
    log = held.log
    if key == owner.public and not log.membership.covers_author(key):
        owner.writer.leave_as_reader(held)
        return
    cuts = cuts_at_heads(log, key)
    if owner.random.random() < 0.3:
        cuts = cuts[:1]  # other entries of the key become void
    parents = log.membership_heads() or (EntryId(conversation),)
    owner.writer.write(conversation, Member(Revocation(key, cuts)), parents)
