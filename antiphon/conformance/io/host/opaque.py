"""Opaque parts of an issuer whom no host serves: refused, degraded or dropped, and stated."""

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.host.service_calls import rendered
from antiphon.conformance.io.host.talk import CASES, UnderTest
from replica.log import FinishReason, Message, Need, Opaque, Outcome, Speaker, Text

_case = CASES.theme("opaque").shows
ISSUER = "issuer.invalid"


@_case("TRUST-5")
async def required(run: UnderTest) -> None:
    """A required part that the host can't open refuses the request, without a seal."""
    async with run.talk() as talk:
        part = Opaque(ISSUER, need=Need.REQUIRED, data=b"sealed")
        await talk.write(Message(Speaker.USER, (Text("Go on."), part)))
        request = await talk.request()
        answer = await talk.closed(request)
        equal(FinishReason(answer.finish_reason), FinishReason.REFUSED, "the finish reason")
        equal(answer.finish_detail.partition(":")[0], "OPAQUE_REQUIRED", "the reason")
        check(request not in talk.held.order.seal_of, "a refused request is sealed")


@_case("HOST-4", "TRUST-5")
async def degraded_and_dropped(run: UnderTest) -> None:
    """Parts that the host need not open are degraded or dropped, and the seal states which.

    The text of one that is degraded is text of its message.
    """
    async with run.talk() as talk, run.calls(talk) as calls:
        preferred = Opaque(ISSUER, need=Need.PREFERRED, fallback_text="A colour.", data=b"sealed")
        droppable = Opaque(ISSUER, need=Need.DROPPABLE, data=b"sealed")
        parts = (Text("Name one."), preferred, droppable)
        await talk.say()
        message = await talk.write(Message(Speaker.USER, parts))
        plain = await talk.say("Name one.A colour.")
        request = await talk.request()
        await talk.answer(request)
        stated = [(p.entry, p.part_index, p.outcome) for p in talk.seal_of(request).projections]
        wanted = [(message.id, 1, Outcome.DEGRADED), (message.id, 2, Outcome.DROPPED)]
        equal(stated, wanted, "the projections of the seal")
        tokens = dict((await rendered(talk, calls, talk.held.order.seal_of[request]))[0])
        equal(tokens[message.id], tokens[plain.id], "the tokens of a part that is degraded")
