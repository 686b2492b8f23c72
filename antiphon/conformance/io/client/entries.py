"""Comparison, entries, acks and divergence, as a client meets them."""

from collections.abc import Iterable
from dataclasses import replace

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.client.session import ME, Session, theme
from antiphon.conformance.suites.divergences import draft_frames, write_answer, write_seal
from replica.conversation import sign_draft
from replica.ids import Digest, EntryId, PublicKey
from replica.link import Ack, Entries, Fault, Ids, Message, Open, Opened
from replica.log import FinishReason, Generation, Grant, Kind, Member, Role, Seal, Text
from replica.refusals import ConversationUnknown, EntriesMissing

_case = theme("entries")


@_case("LINK-12", "REC-1")
async def hub_ahead(s: Session) -> None:
    """A client admits the entries that the hub holds, and becomes synchronized."""
    held = [*s.base, s.entries.say("one", "eve", s.base, "genesis")]
    s.entries.say("two", "eve", held, "one")
    s.hub.hold(s.entries.conversation, s.all("one", "two"))
    await s.connect()
    await s.synchronized()


@_case("LINK-15", "REC-1")
async def append(s: Session) -> None:
    """A client sends what it appends, and counts it as acked by the Ack."""
    await s.joined()
    written = await s.append()
    await s.synchronized()
    check(EntryId(bytes.fromhex(written)) in s.held.log.entries, "the hub lacks the entry")


@_case("LINK-15")
async def late_ack(s: Session) -> None:
    """An entry is unacked until its Ack comes, however late."""
    await s.joined()
    late: list[Message] = []

    def hold_back(message: Message) -> Iterable[Message]:
        if isinstance(message, Ack):
            late.append(message)
            return ()
        return (message,)

    s.hub.outgoing = hold_back
    await s.append()
    await s.sees(lambda: s.sent(Entries), "Entries")
    await s.barrier()
    equal((await s.status())["unacked"], 1, "the number of unacked entries")
    s.hub.outgoing = lambda message: (message,)
    s.hub.send(*late)
    await s.synchronized()


@_case("LINK-15")
async def lost_entries(s: Session) -> None:
    """A client compares heads again where an Ack is overdue, within 10 s, and sends again."""
    await s.joined()
    s.drop(Entries)
    await s.append()
    await s.sees(lambda: s.sent(Entries), "Entries")
    seen = len(s.hub.frames)
    await s.sees(lambda: s.sent(Open, seen), "Open", 10.5)
    check(s.sent(Open, seen)[0].heads is not None, "the Open has no heads")
    await s.synchronized()


@_case("LINK-15", "PROM-4")
async def lost_ack(s: Session) -> None:
    """A client whose Ack is lost compares heads again within 10 s."""
    await s.joined()
    s.hub.outgoing = lambda message: () if isinstance(message, Ack) else (message,)
    await s.append()
    await s.sees(lambda: s.sent(Entries), "Entries")
    seen = len(s.hub.frames)
    await s.sees(lambda: s.sent(Open, seen), "Open", 10.5)
    await s.synchronized()


@_case("LINK-60")
async def ack_of_what_was_not_sent(s: Session) -> None:
    """An Ack of an entry that was not sent on this link counts for nothing."""
    s.hub.hold(s.entries.conversation, s.all())
    await s.connect()
    await s.synchronized()
    s.hub.outgoing = lambda message: () if isinstance(message, Opened) else (message,)
    s.hub.end()
    await s.linked(2)
    await s.sees(lambda: s.sent(Open), "Open")
    written = EntryId(bytes.fromhex(await s.append()))
    await s.barrier()
    if s.sent(Entries):
        raise NotApplicable("it sends before the Opened comes, which nothing forbids")
    s.hub.send(Ack(s.entries.conversation, (written,)))
    await s.barrier()
    equal((await s.status())["unacked"], 1, "the number of unacked entries")


@_case("LINK-60")
async def ack_of_unknown_entries(s: Session) -> None:
    """An Ack of entries that the client does not hold changes nothing."""
    await s.joined()
    s.hub.send(Ack(s.entries.conversation, (EntryId(bytes(32)), EntryId(bytes([1]) * 32))))
    await s.barrier()
    await s.append()
    await s.synchronized()
    equal(len(s.hub.links), 1, "the number of links")


@_case("LINK-60", "LINK-12")
async def false_equal(s: Session) -> None:
    """An "equal" with another digest than the client's makes nothing synchronized."""
    s.hub.hold(s.entries.conversation, s.all())
    await s.connect()
    await s.synchronized()
    await s.append("first")
    await s.synchronized()
    s.hub.outgoing = _equal_always
    s.entries.say("news", "eve", s.base, "genesis")
    s.hub.end()
    s.bring("news")
    await s.linked(2)
    await s.sees(lambda: s.sent(Open), "Open")
    await s.barrier()
    check(not (await s.status())["synchronized"], "the client believes a false equal")


def _equal_always(message: Message) -> Iterable[Message]:
    if isinstance(message, Opened):
        return (replace(message, equal=True, heads=None),)
    return () if isinstance(message, Entries) else (message,)


@_case("PROM-4", "LINK-13")
async def doubled_entries(s: Session) -> None:
    """An entry that comes again changes nothing."""
    await s.joined()
    s.entries.say("one", "eve", s.base, "genesis")
    s.hub.outgoing = lambda message: (message, message)
    s.bring("one")
    s.hub.send(Entries(s.entries.conversation, tuple(s.all("one"))))
    await s.synchronized()
    equal(len(s.hub.links), 1, "the number of links")


@_case("LINK-13", "LINK-14")
async def missing_parent(s: Session) -> None:
    """A client names the entries that it lacks, and admits what waits for them."""
    await s.joined()
    held = [*s.base, s.entries.say("one", "eve", s.base, "genesis")]
    s.entries.say("two", "eve", held, "one")
    s.hub.outgoing = lambda message: () if isinstance(message, Entries) else (message,)
    s.bring("one", "two")
    s.hub.send(Entries(s.entries.conversation, (s.entry("two"),)))
    missing = EntriesMissing.reason
    await s.sees(lambda: any(f.reason == missing for f in s.sent(Fault)), "ENTRIES_MISSING")
    named = next(f.missing for f in s.sent(Fault) if f.reason == missing)
    equal(named, (s.entry("one").id,), "the missing ids")
    s.hub.send(Entries(s.entries.conversation, (s.entry("one"),)))
    await s.synchronized()


@_case("LINK-13", "ENT-6")
async def forged_entry(s: Session) -> None:
    """An entry with a wrong signature is refused with its reason, and not admitted."""
    await s.joined()
    s.entries.say("one", "eve", s.base, "genesis")
    forged = replace(s.entry("one"), signature=bytes(64))
    before = (await s.status())["digest"]
    s.hub.send(Entries(s.entries.conversation, (forged,)))
    await s.sees(lambda: s.sent(Fault), "Fault")
    equal(s.sent(Fault)[0].reason, "SIGNATURE_INVALID", "the reason")
    equal(s.sent(Fault)[0].entry, forged.id, "the entry of the Fault")
    equal((await s.status())["digest"], before, "the digest")


@_case("LINK-13", "ENT-7")
async def changed_body(s: Session) -> None:
    """An entry with another body than it was signed with is refused."""
    await s.joined()
    s.entries.say("one", "eve", s.base, "genesis")
    body = s.entry("one").body or b""
    changed = replace(s.entry("one"), body=body[:-1] + bytes([body[-1] ^ 1]))
    s.hub.send(Entries(s.entries.conversation, (changed,)))
    await s.sees(lambda: s.sent(Fault), "Fault")
    equal(s.sent(Fault)[0].reason, "BODY_DIGEST_MISMATCH", "the reason")


@_case("LINK-14")
async def entries_missing_at_the_hub(s: Session) -> None:
    """A client sends the entries that the hub says it lacks."""
    await s.joined()
    s.drop(Entries)
    written = EntryId(bytes.fromhex(await s.append()))
    await s.sees(lambda: s.sent(Entries), "Entries")
    lacking = Fault.of(EntriesMissing(missing=[written]), s.entries.conversation)
    s.hub.send(lacking)
    await s.synchronized()


@_case("LINK-10")
async def lost_hub(s: Session) -> None:
    """A client sends its log from the genesis to a hub that lost it."""
    await s.joined()
    await s.append()
    await s.synchronized()
    before = s.held.log.digest
    s.hub.lose_all()
    await s.linked(2)

    def is_back() -> bool:
        found = s.hub.core.shelf.get(s.entries.conversation)
        return found is not None and found.log.digest == before

    await s.sees(is_back, "whole log")
    await s.synchronized()


@_case("LINK-10")
async def denied(s: Session) -> None:
    """A client that gets "not found" again offers its log three times at most."""
    await s.joined()
    unknown = Fault.of(ConversationUnknown(), s.entries.conversation)

    def refuse(message: Message) -> bool:
        if isinstance(message, Entries):
            s.hub.send(replace(unknown, entry=message.ids[0]))
        elif isinstance(message, Open):
            s.hub.send(unknown)
        return not isinstance(message, Entries | Open)

    s.hub.passes = refuse
    s.hub.end()
    await s.linked(2)
    found = await s.until(lambda status: status["error"] == unknown.reason, "denied")
    check(not found["synchronized"], "a denied conversation is synchronized")
    offers = [m for m in s.sent(Entries) if s.entry("genesis") in m.entries]
    check(1 <= len(offers) <= 3, f"the client offers its log {len(offers)} times")


@_case("REC-3", "REC-4")
async def diverged_lane(s: Session) -> None:
    """Where a lane holds two entries at one position, both sides get both."""
    await s.joined()
    s.entries.say("one", "eve", s.base, "genesis")
    s.entries.say("other", "eve", s.base, "genesis")
    s.bring("one")
    await s.synchronized()
    s.hub.lose_all()
    s.hub.hold(s.entries.conversation, s.all("other"))
    await s.linked(2)
    await s.sees(lambda: s.sent(Ids), "Ids")
    await s.synchronized()
    for label in ("one", "other"):
        check(s.entry(label).id in s.held.log.entries, f"the hub lacks {label}")
    check(any(ids.answer for ids in s.sent(Ids)), "no list says that it answers the hub's Ids")


@_case("ENT-14")
async def restored_backup(s: Session) -> None:
    """A client that does not know its lane's head writes in an epoch of its own."""
    await s.joined()
    first = EntryId(bytes.fromhex(await s.append("first")))
    await s.synchronized()
    # The hub says nothing about the log: the client can't know what it wrote before.
    s.hub.outgoing = lambda message: () if isinstance(message, Opened) else (message,)
    await s.connect(keep=True)
    await s.sees(lambda: len(s.hub.links) > 1 and s.sent(Open), "Open")
    await s.append("second")
    s.hub.outgoing = lambda message: (message,)
    s.hub.end()
    await s.synchronized()
    mine = PublicKey(s.entries.public(ME))
    own = [e for e in s.held.log.entries.values() if e.header.author == mine]
    equal(len({e.header.lane for e in own}), 2, "the number of its lanes")
    equal(len(s.held.log.at(s.held.log.entries[first].header.lane, 0)), 1, "entries at seq 0")


@_case("ENT-14")
async def other_device(s: Session) -> None:
    """A client does not go on in an epoch that another device of its key writes in."""
    await s.joined()
    await s.append("first")
    await s.synchronized()
    await s.connect(keep=True)
    await s.synchronized()
    held, behind = [*s.base], "genesis"
    for label in ("one", "two", "three"):  # the last one is the newest of this key
        behind = s.entries.say(label, ME, held, behind, epoch=2)
        held.append(behind)
    s.bring("one", "two", "three")
    await s.synchronized()
    written = EntryId(bytes.fromhex(await s.append("second")))
    await s.synchronized()
    lane = s.held.log.entries[written].header.lane
    check(lane != s.entry("three").header.lane, "the entry is in the other device's lane")


# --- hosts ------------------------------------------------------------------------------


async def asked(s: Session) -> tuple[str, list[str]]:
    """Let the client ask; return the request's label and all labels."""
    await s.joined()
    await s.append("Hello?")
    asked = (await s.ask("ask", host=s.entries.public("hal").hex()))["id"]
    await s.synchronized()
    for entry in s.held.log.in_send_order(s.held.log.entries):
        if entry not in s.entries.entries.values():
            label = "request" if entry.header.kind == Kind.REQUEST else f"own-{entry.id.hex()}"
            s.entries.entries[label] = entry
    return asked, list(s.entries.entries)


@_case("ORD-9")
async def answer(s: Session) -> None:
    """The answer to a request is the GENERATION behind its seal."""
    request, labels = await asked(s)
    labels.append(write_seal(s.entries, "seal", labels, "request"))
    write_answer(s.entries, "answer", labels, "seal")
    s.bring("seal", "answer")
    found = await s.until(lambda status: status["answer"] is not None, "answered", request)
    equal(found["answer"], "Yes.", "the answer")


@_case("ORD-9")
async def answer_of_another_host(s: Session) -> None:
    """Neither an answer nor a refusal of another host than the one that was asked is one."""
    request, labels = await asked(s)
    labels.append(write_seal(s.entries, "seal", labels, "request"))
    host = Member(Grant(s.entries.public("ida"), Role.HOST))
    labels.append(s.entries.write("host", "ada", host, labels, [s.base[-1]]))
    refused = Generation((), (), 0, FinishReason.REFUSED)
    s.entries.write("refusal", "ida", refused, labels, ["request"])
    answered = Generation((1, 2), (Text("No."),), 3, FinishReason.STOP)
    s.entries.write("false", "ida", answered, labels, ["seal"], basis="seal")
    for brought, name in ((("host", "refusal"), "refusal"), (("seal", "false"), "answer")):
        s.bring(*brought)
        await s.synchronized()
        equal((await s.status(request))["answer"], None, f"the {name} of another host")
    write_answer(s.entries, "answer", labels, "seal")
    s.bring("answer")
    found = await s.until(lambda status: status["answer"] is not None, "answered", request)
    equal(found["answer"], "Yes.", "the answer beside one of another host")


@_case("ORD-7", "ORD-10")
async def lying_seal(s: Session) -> None:
    """An answer behind a seal that does not count is no answer."""
    request, labels = await asked(s)
    right = write_seal(s.entries, "right", labels, "request")
    body = s.entries.held([*labels, right]).log.body(s.entry(right).id)
    assert isinstance(body, Seal), "it was written"
    void = replace(body, context_digest=Digest(bytes(32)))
    labels.append(s.entries.write("void", "hal", void, labels, ["request"]))
    write_answer(s.entries, "answer", labels, "void")
    s.bring("void", "answer")
    await s.synchronized()
    equal((await s.status(request))["answer"], None, "the answer behind a void seal")


@_case("LINK-17", "LINK-70")
async def drafts(s: Session) -> None:
    """A client shows drafts that follow, with the right digest and signature, and no others."""
    request, labels = await asked(s)
    write_seal(s.entries, "seal", labels, "request")
    s.bring("seal")
    await s.synchronized()
    honest = list(draft_frames(s.entries, s.entry("request").id))
    forged = replace(honest[0], data=b"forged")
    wrong = replace(honest[1], data=b"y", digest=Digest(bytes(32)))
    s.hub.send(forged, honest[1], honest[0], honest[0], honest[2])
    s.hub.send(sign_draft(wrong, s.entries.key("hal")), *honest[1:])
    await s.barrier()
    equal((await s.status(request))["drafted"], "xxx", "the text drafted")


@_case("LINK-17")
async def drafts_of_another_run(s: Session) -> None:
    """The first frame of another run replaces the draft shown, and no later frame does."""
    request, labels = await asked(s)
    write_seal(s.entries, "seal", labels, "request")
    s.bring("seal")
    await s.synchronized()
    first, again = (
        list(draft_frames(s.entries, s.entry("request").id, run, shown))
        for run, shown in ((5, b"x"), (6, b"y"))
    )
    s.hub.send(*first[:2], again[1])
    await s.barrier()
    equal((await s.status(request))["drafted"], "xx", "the text drafted")
    s.hub.send(*again[:2], first[2])
    await s.barrier()
    equal((await s.status(request))["drafted"], "yy", "the text drafted by another run")


@_case("LINK-17")
async def drafts_without_a_seal(s: Session) -> None:
    """A draft of a request without a counting seal is not shown."""
    request, _ = await asked(s)
    s.hub.send(*draft_frames(s.entries, s.entry("request").id))
    await s.barrier()
    equal((await s.status(request))["drafted"], "", "the text drafted")
