"""Contents of messages: their tokens are those of the text as it was written, of one text."""

from collections.abc import Sequence

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.host.service_calls import default_profile, rendered
from antiphon.conformance.io.host.talk import CASES, UnderTest
from replica.ids import Digest
from replica.log import Message, Part, Speaker, Text, Tokens

_case = CASES.theme("contents").shows
SAID = "Hello there, go on with the weather."

Ids = tuple[int, ...]


async def _tokens_of(run: UnderTest, messages: Sequence[Sequence[Part]]) -> list[Ids]:
    """Say messages behind another one, and ask; return the tokens of each as it is rendered."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await talk.say()
        said = [(await talk.write(Message(Speaker.USER, tuple(parts)))).id for parts in messages]
        request = await talk.request(1)
        await talk.answer(request)
        tokens = dict((await rendered(talk, calls, talk.held.order.seal_of[request]))[0])
        return [tuple(tokens[one]) for one in said]


@_case("HOST-4")
async def texts_as_written(run: UnderTest) -> None:
    """White space around a text counts, and texts that follow one another are one."""
    letters = [Text(letter) for letter in SAID]
    messages = [[Text(SAID)], [Text(f"{SAID} \n\n ")], [Text(f" \n{SAID}")], letters]
    plain, behind, before, pieces = await _tokens_of(run, messages)
    check(behind != plain, "white space at the end of a text is lost")
    check(before != plain, "white space at the beginning of a text is lost")
    equal(pieces, plain, "the tokens of a text in parts of one letter")


@_case("HOST-4")
async def ids_as_written(run: UnderTest) -> None:
    """Token ids of a member are inserted as they are, between the texts around them."""
    async with run.talk() as talk, run.calls(talk) as calls:
        digest = Digest((await default_profile(calls)).tokenizer_digest)
    last = (await _tokens_of(run, [[Text(SAID)]]))[0][-1]
    messages = [[Tokens((last,) * count, digest)] for count in (1, 3)]
    one, three = await _tokens_of(run, messages)
    equal(three, (*one, last, last), "the tokens of a message with ids")
