"""Cases of chapter 04 §9: the places that a Hint names, and answers that a Watch names not."""

from antiphon.conformance.cases import equal
from antiphon.conformance.histories import NO_DIGEST, History
from antiphon.conformance.io.calls import Caller
from antiphon.conformance.io.hub.run import TABLE, HubRun, push, reasons
from antiphon.conformance.io.hub.watching import Watched, check_hint
from antiphon.conformance.writers import Writer
from antiphon.v1 import sync_pb2 as pb
from replica.log import Conflict, Entry, Grant, Member, Request, Role, Sampling, Seal

_theme = TABLE.theme("hints")


async def _sealed(run: HubRun) -> tuple[History, Writer, Caller, Entry]:
    """Push a conversation whose request is sealed; return it, the host, the owner and the seal."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    seal = history.seal(history.ask(host.public), host)
    return history, host, await run.push_all(history), seal


async def _hint(caller: Caller, history: History) -> pb.Hint:
    _, hint = await Watched(caller, history).until_hint()
    return hint


@_theme.shows("LINK-27", "PROM-7")
async def the_lamport_is_behind_the_basis(run: HubRun) -> None:
    """The basis of the next entry is a seal, whose lamport is the greatest of those it names."""
    history, _, owner, seal = await _sealed(run)
    (request,) = seal.header.parents
    hint = await _hint(owner, history)
    check_hint(hint, history, history.held.log.entries[request], seal)


@_theme.shows("LINK-27", "PROM-7")
async def the_tip_is_the_newest_branch(run: HubRun) -> None:
    """Of two branches the Hint names the one whose seal is the later in order(x)."""
    history, host, owner, seal = await _sealed(run)
    history.answer(seal, host)
    body = Request(host.public, Sampling(), output_tokens_max=16)
    beside = history.owner.write(
        history.id, body, parents=[history.genesis], conflict=Conflict.FORK
    )
    other = history.seal(history.add(beside), host)
    answer = history.answer(other, host)
    await push(owner, *history.entries)
    check_hint(await _hint(owner, history), history, answer, other)


@_theme.shows("LINK-27", "ORD-15")
async def membership_heads_ascend(run: HubRun) -> None:
    """Several membership heads are named, ascending by id."""
    history = run.new()
    second = history.writer("second")
    granted = history.grant(second.public, Role.OWNER)
    for name, by in (("a", history.owner), ("b", second)):
        change = Member(Grant(history.writer(name).public, Role.READER))
        history.add(by.write(history.id, change, parents=[granted]))
    owner = await run.push_all(history)
    heads = [e.id for e in history.entries[-2:]]
    equal(list((await _hint(owner, history)).membership_heads), sorted(heads), "its heads")


@_theme.shows("ORD-13", "LINK-27")
async def own_heads_are_covered(run: HubRun) -> None:
    """A refused entry of a reader is none of the own heads in its Hint."""
    history = run.new()
    reader = history.writer("reader")
    history.grant(reader.public, Role.READER)
    await run.push_all(history)
    caller = await run.enter(reader)
    equal(await reasons(caller, history.say("no", reader)), ["ROLE_FORBIDS"], "the outcome")
    equal(list((await _hint(caller, history)).own_heads), [], "the own heads")


@_theme.shows("LINK-85")
async def a_request_of_no_host_is_not_open(run: HubRun) -> None:
    """The request of a tip whose host is revoked gets no answer, and is not named."""
    history, host, owner, seal = await _sealed(run)
    equal((await _hint(owner, history)).open_request, seal.header.parents[0], "the open request")
    await push(owner, history.revoke(host.public, seal))
    hint = await _hint(owner, history)
    equal((hint.tip, hint.open_request), (seal.id, b""), "tip and open request of no host")


@_theme.shows("LINK-84", "PROM-9")
async def a_second_answer_is_not_named(run: HubRun) -> None:
    """Behind a second generation of a request comes no Answered."""
    history, host, owner, seal = await _sealed(run)
    first = history.answer(seal, host)
    await push(owner, first)
    watch = Watched(owner, history)
    await watch.until_hint()
    body = history.held.log.body(first.id)
    assert body is not None
    second = history.add(host.write(history.id, body, parents=[seal], basis=seal))
    await push(await run.enter(host), second)
    events, _ = await watch.until_hint()
    equal([e.WhichOneof("event") for e in events], ["entries"], "the events of a second answer")


@_theme.shows("LINK-84", "ORD-9")
async def an_answer_to_a_void_seal_is_not_named(run: HubRun) -> None:
    """Behind a generation of a seal that does not count comes no Answered."""
    history = run.new()
    host = history.writer("host")
    history.grant(host.public, Role.HOST)
    history.say()
    request = history.ask(host.public)
    heads = history.held.log.membership_heads()
    body = Seal(request.id, None, (request.id,), NO_DIGEST, NO_DIGEST, NO_DIGEST, (1,), heads)
    named = [history.held.log.entries[i] for i in (request.id, *heads)]
    void = host.write(history.id, body, parents=[request], listed=named)
    history.add(void)
    owner = await run.push_all(history)
    watch = Watched(owner, history)
    await watch.until_hint()
    await push(await run.enter(host), history.answer(void, host))
    events, _ = await watch.until_hint()
    equal([e.WhichOneof("event") for e in events], ["entries"], "the events of a void answer")
