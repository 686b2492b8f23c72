"""Seals: what they list, behind which seal, and once for each request."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.host.talk import CASES, UnderTest, ask_behind
from replica.conversation import Author
from replica.log import Cancel, Conflict, Kind, Message, Request, Role, Sampling, Speaker, Text
from replica.order import context_digest

_case = CASES.theme("seals").shows


@_case("ORD-7", "ORD-8", "ORD-10")
async def first_turn(run: UnderTest) -> None:
    """The first seal lists message and request, in order, with the digest of its context."""
    async with run.talk() as talk:
        said = await talk.say()
        request = await talk.request()
        await talk.answer(request)
        seal = talk.seal_of(request)
        equal(seal.entries, (said.id, request), "the list of the seal")
        equal(seal.prev_seal, None, "prev_seal")
        digest = context_digest(talk.held.log, None, seal.entries)
        equal(seal.context_digest, digest, "the context digest")
        equal(len(seal.tokens_per_entry), 2, "the number of token counts")


@_case("ORD-7", "ORD-10", "ORD-11")
async def second_turn(run: UnderTest) -> None:
    """The next seal extends the first one, and lists its answer and all that is new."""
    async with run.talk() as talk:
        first = await talk.ask()
        answer = talk.held.order.generation_of(first)
        news = [await talk.say(text) for text in ("One.", "Two.", "Three.")]
        second = await talk.request()
        await talk.answer(second)
        seal = talk.seal_of(second)
        equal(seal.prev_seal, talk.held.order.seal_of[first], "prev_seal")
        listed = (answer, *(entry.id for entry in news), second)
        equal(seal.entries, listed, "the list of the seal")


@_case("HOST-12", "ORD-9")
async def one_for_each_request(run: UnderTest) -> None:
    """A request that comes again gets neither a second seal nor a second answer."""
    async with run.talk() as talk:
        first = await talk.ask()
        await talk.member.push(talk.held.id, [talk.held.log.entries[first]])
        await talk.ask("Another one.")
        for kind in (Kind.SEAL, Kind.GENERATION):
            equal(len(talk.of_host(kind)), 2, f"the number of {kind.name}s for two requests")


@_case("ORD-11", "HOST-12")
async def queued_requests(run: UnderTest) -> None:
    """Requests that queue are sealed one behind the other, each behind the answer before."""
    async with run.talk() as talk:
        said = await talk.say()
        body = talk.request_body()
        requests = [(await talk.write(body, parents=(said.id,))).id for _ in range(3)]
        for request in requests:
            await talk.answer(request)
        order, before = talk.held.order, None
        for request in sorted(requests, key=lambda i: talk.held.log.entries[i].order_key):
            equal(talk.seal_of(request).prev_seal, before, "prev_seal of a request that queued")
            before = order.seal_of[request]


@_case("HOST-37", "ORD-7")
async def forks(run: UnderTest) -> None:
    """Requests that fork get answers of their own on one context."""
    async with run.talk() as talk:
        first = await talk.ask()
        await talk.say("Another one.")
        second = await talk.request()
        third = await talk.again(second)
        for request in (second, third):
            await talk.answer(request)
        seals = [talk.seal_of(request) for request in (second, third)]
        for seal in seals:
            equal(seal.prev_seal, talk.held.order.seal_of[first], "prev_seal of a fork")
        equal(seals[0].entries[:-1], seals[1].entries[:-1], "the contexts of two forks")


@_case("ORD-7", "ORD-11")
async def branches(run: UnderTest) -> None:
    """Two requests that fork behind one answer, and those that queue behind them, stay apart."""
    async with run.talk() as talk:
        before = [await talk.ask()] * 2
        order = talk.held.order
        for conflict, texts in (
            (Conflict.FORK, ("Red or green?", "One or two?")),
            (Conflict.QUEUE, ("Go on.", "Go on.")),
        ):
            pairs = zip(before, texts, strict=True)
            asked = [await ask_behind(talk, one, text, conflict) for one, text in pairs]
            for one, (said, request) in zip(before, asked, strict=True):
                await talk.answer(request)
                seal = talk.seal_of(request)
                name = f"of a request with {conflict.name}"
                equal(seal.prev_seal, order.seal_of[one], f"prev_seal {name}")
                equal(seal.entries, (order.generation_of(one), said, request), f"the list {name}")
            before = [request for _, request in asked]


@_case("ORD-11")
async def queued_behind_fork(run: UnderTest) -> None:
    """A request queued behind one that forks, both sent at once, goes behind the answer to it."""
    async with run.talk() as talk:
        first = await talk.ask()
        await talk.ask("Go on.")
        basis = talk.held.order.seal_of[first]
        _, fork = await ask_behind(talk, first, "Or rather?", Conflict.FORK)
        body = talk.request_body()
        queued = (await talk.write(body, parents=(fork,), basis=basis)).id
        await talk.answer(queued)
        order, seal = talk.held.order, talk.seal_of(queued)
        equal(seal.prev_seal, order.seal_of.get(fork), "prev_seal behind a request that forks")
        equal(seal.entries, (order.generation_of(fork), queued), "the list behind it")


@_case("ORD-6")
async def withdrawn_message(run: UnderTest) -> None:
    """A message that was withdrawn is in no later context, also where others reply to it."""
    async with run.talk() as talk:
        first = await talk.ask()
        order = talk.held.order
        basis = order.seal_of[first]
        said = await talk.say("Never mind.")
        await talk.write(Cancel(), parents=(said.id,), basis=basis)
        request = await talk.request()
        reply = Message(Speaker.USER, (Text("Why not?"),))
        replied = await talk.write(reply, parents=(said.id,), basis=basis)
        await talk.answer(request)
        without = (order.generation_of(first), request)
        equal(talk.seal_of(request).entries, without, "the list behind the CANCEL of a message")
        later = await talk.request()
        await talk.answer(later)
        behind = (order.generation_of(request), replied.id, later)
        equal(talk.seal_of(later).entries, behind, "the list behind a late reply to that message")


@_case("ORD-6")
async def other_host(run: UnderTest) -> None:
    """A request that names another host gets no seal of this one."""
    async with run.talk() as talk:
        other = Author(talk.stranger, 1).public
        await talk.grant(other, Role.HOST)
        said = await talk.say()
        theirs = await talk.write(Request(other, Sampling()), parents=(said.id,))
        ours = await talk.write(talk.request_body(), parents=(said.id,), conflict=Conflict.FORK)
        await talk.answer(ours.id)
        sealed = theirs.id in talk.held.order.seal_of
        check(not sealed, "the host seals a request that names another one")


@_case("ORD-8", "ORD-10")
async def messages_of_two_writers(run: UnderTest) -> None:
    """Messages that two members wrote at once are both listed, by lamport, then id."""
    async with run.talk() as talk:
        first = await talk.say("First.")
        body = Message(Speaker.USER, (Text("At once."),))
        twins = [await talk.write(body, parents=(first.id,)) for _ in range(2)]
        request = await talk.request()
        await talk.answer(request)
        ordered = sorted(twins, key=lambda entry: entry.order_key)
        listed = (first.id, *(entry.id for entry in ordered), request)
        equal(talk.seal_of(request).entries, listed, "the list of the seal")
