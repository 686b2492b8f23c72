"""A conversation with the host under test: writes by Push, and all that arrives by a link."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.cases import NotApplicable, Table, Violation, check
from antiphon.conformance.io.host.stated import check_answer
from antiphon.conformance.io.hosts import host_of, service_of
from antiphon.conformance.io.member import KeptLink, Member
from replica.conversation import Author, Conversation, Draft
from replica.ids import SALT_BYTES, EntryId, PublicKey
from replica.io import HostCalls, now_ms
from replica.link import Entries, HostInfo, Message, Open, Opened, ProfileInfo
from replica.log import (
    Body,
    Cancel,
    Conflict,
    Entry,
    FinishReason,
    Generation,
    Genesis,
    Grant,
    Kind,
    Request,
    Role,
    Sampling,
    Seal,
    Speaker,
    Text,
)
from replica.log import (
    Member as MemberBody,
)
from replica.log import (
    Message as Said,
)
from replica.order import frontier

ANSWER_S = 60.0
"""Longest time without a draft in which an answer is waited for, in seconds."""
DRAFTED_S = 1800.0
"""Longest wait for an answer whose drafts come."""
LONG_TOKENS_MAX = 4_000
TEMPLATE_REFUSES = "TEMPLATE_UNSUPPORTED:"
_TURNS = frozenset({Kind.MESSAGE, Kind.TOOLS, Kind.REQUEST})
SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
"""Sampling whose answers are equal on a bitwise host."""


class Talk:
    """One conversation of one owner with the host."""

    def __init__(
        self,
        member: Member,
        link: KeptLink,
        host: HostInfo,
        stranger: Ed25519PrivateKey,
        *,
        shares_pages: bool,
    ) -> None:
        """Use `UnderTest.talk`."""
        self.member = member
        self.host = host
        self.stranger = stranger
        self.drafts: list[Draft] = []
        self._heard = Counter[EntryId]()
        """Drafts by request."""
        self._link = link
        self._author = Author(member.key, int.from_bytes(os.urandom(6), "little"))
        genesis = self._author.genesis(
            Genesis((member.public,), shares_pages=shares_pages),
            salt=os.urandom(SALT_BYTES),
            time_ms=now_ms(),
        )
        self.held = Conversation(genesis.conversation)
        self.held.admit(genesis)
        self._genesis = genesis
        link.react = self._receive

    @property
    def profile(self) -> ProfileInfo:
        """The profile that the host offers first."""
        return self.host.profiles[0]

    async def begin(self) -> None:
        """Bring genesis and grant to the hub, and open the conversation."""
        await self._push(self._genesis)
        await self.grant(self.host.key, Role.HOST)
        log = self.held.log
        await self._link.send(Open(self.held.id, log.digest, log.heads(), drafts=True))
        await self._link.first(Opened)

    def _receive(self, message: Message) -> None:
        match message:
            case Entries(conversation, entries) if conversation == self.held.id:
                for entry in entries:
                    self.held.admit(entry)
            case Draft(conversation) if conversation == self.held.id:
                self.drafts.append(message)
                self._heard[message.request] += 1
            case _:
                pass

    async def _push(self, *entries: Entry) -> None:
        refused = await self.member.push(self.held.id, entries)
        if refused:
            raise Violation(f"the hub refuses what the kit writes: {', '.join(refused.values())}")

    # --- writing ------------------------------------------------------------------------

    async def grant(self, key: PublicKey, role: Role) -> None:
        """Grant a role."""
        body = MemberBody(Grant(key, role))
        heads = self.held.log.membership_heads() or (self._genesis.id,)
        await self.write(body, parents=heads)

    async def write(
        self,
        body: Body,
        *,
        parents: Sequence[EntryId] | None = None,
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.QUEUE,
        author: Author | None = None,
    ) -> Entry:
        """Append an entry, at the newest branch unless parents are given, as the owner or another.

        The author must have a role that allows it.
        """
        if parents is None:
            tips = self.held.order.tips()
            tip = tips[-1] if tips else None
            parents, basis = frontier(self.held.order, tip), tip.id if tip is not None else None
        entry = (author or self._author).write(
            self.held,
            body,
            parents=tuple(parents),
            basis=basis,
            conflict=conflict,
            salt=os.urandom(SALT_BYTES),
            time_ms=now_ms(),
        )
        self.held.admit(entry)
        await self._push(entry)
        return entry

    async def other(self, role: Role) -> Author:
        """Grant a role to the key `stranger`, and return it as an author."""
        author = Author(self.stranger, int.from_bytes(os.urandom(6), "little"))
        await self.grant(author.public, role)
        return author

    async def say(self, text: str = "Name a colour.") -> Entry:
        """Append a message."""
        return await self.write(Said(Speaker.USER, (Text(text),)))

    def request_body(self, tokens: int = 6, **fields: object) -> Request:
        """Return a request for the host; greedy unless `fields` say otherwise."""
        body = Request(self.host.key, Sampling(), output_tokens_max=tokens)
        return replace(body, **fields)  # type: ignore[arg-type]  # a case names the fields

    async def request(self, tokens: int = 6, **fields: object) -> EntryId:
        """Append a request at the newest branch."""
        return (await self.write(self.request_body(tokens, **fields))).id

    async def cancel(self, request: EntryId, author: Author | None = None) -> None:
        """Cancel a request, as the owner or another."""
        basis = self.held.log.entries[request].header.basis
        await self.write(Cancel(), parents=(request,), basis=basis, author=author)

    async def again(self, request: EntryId, tokens: int = 6, **fields: object) -> EntryId:
        """Ask for another answer to the same message, with FORK."""
        header = self.held.log.entries[request].header
        entry = await self.write(
            self.request_body(tokens, **fields),
            parents=header.parents,
            basis=header.basis,
            conflict=Conflict.FORK,
        )
        return entry.id

    # --- reading ------------------------------------------------------------------------

    async def closed(self, request: EntryId) -> Generation:
        """Wait for the answer to a request, or its refusal. Raises Overdue."""
        order = self.held.order
        await self._link.until_silence(
            lambda: order.answer(request) is not None,
            "an answer",
            heard=lambda: self._heard[request],  # the progress of its prompt too
            silence_s=ANSWER_S,
            limit_s=DRAFTED_S,
        )
        found = order.answer(request)
        assert found is not None, "it was awaited"
        return found

    async def answer(self, request: EntryId) -> Generation:
        """Wait for the answer to a request. Raises Violation where it is refused.

        A template may refuse turns in some orders (spec/07-host §2), but not one of the user
        alone: behind other turns this raises NotApplicable.
        """
        found = await self.closed(request)
        refused = found.finish_reason == FinishReason.REFUSED
        if refused and found.finish_detail.startswith(TEMPLATE_REFUSES) and _has_turns(self.held):
            raise NotApplicable("the host's template refuses turns in this order")
        check(not refused, f"the host refuses a right request: {found.finish_detail}")
        return found

    async def ask(self, text: str = "Name a colour.", tokens: int = 6, **fields: object) -> EntryId:
        """Say something and ask; return the request, which is answered."""
        await self.say(text)
        request = await self.request(tokens, **fields)
        await self.answer(request)
        return request

    async def drafted(self, request: EntryId) -> None:
        """Wait for the first frame of a request. Raises Violation where its answer comes first."""
        order = self.held.order

        def is_shown_or_over() -> bool:
            return bool(frames_of(self, request)) or order.answer(request) is not None

        await self._link.until_silence(
            is_shown_or_over,
            "a draft with tokens",
            heard=lambda: self._heard[request],
            silence_s=ANSWER_S,
            limit_s=DRAFTED_S,
        )
        check(frames_of(self, request), "no draft with tokens came")

    def seal_of(self, request: EntryId) -> Seal:
        """Return the counting seal of a request. Raises Violation."""
        seal = self.held.order.seal_of.get(request)
        if seal is None:
            raise Violation("no seal of the request counts")
        return self.held.order.nodes[seal].seal

    def of_host(self, kind: Kind) -> list[Entry]:
        """Return the entries of a kind that the host wrote."""
        found = (e for e in self.held.log.entries.values() if e.header.kind == kind)
        return [entry for entry in found if entry.header.author == self.host.key]

    def check_host(self) -> None:
        """Raise Violation where an entry of the host does not count, or contradicts itself."""
        order = self.held.order
        for seal in self.of_host(Kind.SEAL):
            check(seal.id in order.nodes, "the host wrote a seal that does not count")
        closing = {order.generation_of(request) for request in order.requests}
        for answer in self.of_host(Kind.GENERATION):
            check(answer.id in closing, "the host wrote a GENERATION that answers nothing")
            check_answer(self.held, answer.id)


def _has_turns(held: Conversation) -> bool:
    """Say whether more was written than one message and one request."""
    return sum(entry.header.kind in _TURNS for entry in held.log.entries.values()) > 2


def frames_of(talk: Talk, request: EntryId) -> list[Draft]:
    """Return the frames of a request with tokens or text that came so far."""
    return [d for d in talk.drafts if d.request == request and (d.token_ids or d.data)]


def require_context(talk: Talk, tokens: int) -> None:
    """Raise NotApplicable where the host's default profile has a shorter context."""
    found = talk.profile.context_tokens_max
    if found < tokens:
        raise NotApplicable(f"it needs a context of {tokens} tokens, and the host has {found}")


async def ask_behind(
    talk: Talk, before: EntryId, text: str, conflict: Conflict, **fields: object
) -> tuple[EntryId, EntryId]:
    """Say something behind the answer to a request, and ask; return message and request."""
    order = talk.held.order
    answer, basis = order.generation_of(before), order.seal_of[before]
    assert answer is not None, "it is answered"
    body = Said(Speaker.USER, (Text(text),))
    said = (await talk.write(body, parents=(answer,), basis=basis)).id
    asked = talk.request_body(**fields)  # type: ignore[arg-type]  # a case names the fields
    request = await talk.write(asked, parents=(said,), basis=basis, conflict=conflict)
    return said, request.id


async def long_request(talk: Talk) -> tuple[EntryId, int]:
    """Ask for a long answer, and wait for its first tokens; return its length in tokens."""
    await talk.say("Tell me a long story.")
    length = min(LONG_TOKENS_MAX, talk.profile.context_tokens_max * 3 // 4)
    request = await talk.request(length, output_tokens_min=length)
    await talk.drafted(request)
    return request, length


class UnderTest:
    """The host that a hub names, or the one that is wanted."""

    def __init__(
        self,
        address: str,
        host: PublicKey | None = None,
        key: Ed25519PrivateKey | None = None,
    ) -> None:
        """Reach it through the hub at `address`; `key` may create conversations there."""
        self._address = address
        self._host = host
        self._is_key_given = key is not None
        self._key = key or Ed25519PrivateKey.generate()

    def another(self) -> "UnderTest":
        """Return the same host for another owner. Raises NotApplicable where the key is given."""
        if self._is_key_given:
            raise NotApplicable("no other key may create conversations")
        return UnderTest(self._address, self._host)

    @asynccontextmanager
    async def talk(
        self, stranger: Ed25519PrivateKey | None = None, *, shares_pages: bool = False
    ) -> AsyncIterator[Talk]:
        """Begin a conversation with the host; check all that it wrote at the end.

        `stranger` is a key without a role, a new one unless given. The genesis consents to
        sharing pages if asked (PAGE-7).
        """
        async with (
            Member.join(self._address, self._key) as member,
            member.linked() as link,
        ):
            found = await host_of(member, self._host)
            stranger = stranger or Ed25519PrivateKey.generate()
            talk = Talk(member, link, found, stranger, shares_pages=shares_pages)
            await talk.begin()
            yield talk
            talk.check_host()

    @asynccontextmanager
    async def calls(
        self, talk: Talk, key: Ed25519PrivateKey | None = None
    ) -> AsyncIterator[HostCalls]:
        """Call the host's service, as the owner or with another key."""
        address = service_of(talk.host)
        async with HostCalls(address, key or self._key, talk.host.key) as calls:
            yield calls


CASES: Table[UnderTest] = Table()
