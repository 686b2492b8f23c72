"""Which GENERATION a client takes for the answer to a request, where several could be one."""

from antiphon.conformance.cases import equal
from antiphon.conformance.io.client.entries import asked
from antiphon.conformance.io.client.session import Session, theme
from antiphon.conformance.suites.divergences import write_seal
from replica.log import FinishReason, Generation, Text

_case = theme("answers")
SEVERAL = ("one", "two", "three", "four")


def _answer(s: Session, text: str, labels: list[str], parents: list[str], epoch: int) -> str:
    """Let the host answer in a lane of its own; return the answer's label."""
    body = Generation((1, 2), (Text(text),), len(text), FinishReason.STOP)
    return s.entries.write(text, "hal", body, labels, parents, basis="seal", epoch=epoch)


@_case("ORD-9", "PROM-9")
async def first_of_several(s: Session) -> None:
    """Of several answers behind one seal the first by lamport, then id, is the answer.

    They come in the reverse of that order, one more of them behind the first one.
    """
    request, labels = await asked(s)
    labels.append(write_seal(s.entries, "seal", labels, "request"))
    s.bring("seal")
    for number, text in enumerate(SEVERAL):
        _answer(s, text, labels, ["seal"], epoch=number + 2)
    first, second, *later = sorted(SEVERAL, key=lambda text: s.entry(text).order_key)
    for brought, wanted in ((second, second), (first, first), *((one, first) for one in later)):
        s.bring(brought)
        await s.synchronized()
        equal((await s.status(request))["answer"], wanted, "the answer beside others")


@_case("ORD-9")
async def with_two_parents(s: Session) -> None:
    """A GENERATION that has another parent beside the seal is no answer."""
    request, labels = await asked(s)
    labels.append(write_seal(s.entries, "seal", labels, "request"))
    parents = sorted(["seal", "request"], key=lambda label: s.entry(label).id)
    _answer(s, "both", labels, parents, epoch=2)
    s.bring("seal", "both")
    await s.synchronized()
    equal((await s.status(request))["answer"], None, "the answer with two parents")


@_case("ORD-9")
async def seal_behind_a_refusal(s: Session) -> None:
    """A refusal is no answer once a seal of the request counts."""
    request, labels = await asked(s)
    refused = Generation((), (), 0, FinishReason.REFUSED, "HOST_BUSY: later")
    s.entries.write("refusal", "hal", refused, labels, ["request"])
    labels.append(write_seal(s.entries, "seal", labels, "request"))
    s.bring("refusal", "seal")
    await s.synchronized()
    equal((await s.status(request))["answer"], None, "the answer behind a refusal and a seal")
    _answer(s, "Yes.", labels, ["seal"], epoch=2)
    s.bring("Yes.")
    await s.synchronized()
    equal((await s.status(request))["answer"], "Yes.", "the answer behind that seal")
