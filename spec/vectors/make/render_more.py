"""Cases of render.json that tell one reading of a sentence from another."""

from spec.vectors.make.build import sha256
from spec.vectors.make.render_build import (
    ADD,
    BOB,
    CANCELLED,
    CAT,
    END,
    INTERRUPTED,
    LENGTH,
    REFUSED,
    SYSTEM,
    TOKENIZER,
    TOOL,
    TOOL_CALLS,
    answer,
    asked,
    call,
    of,
    result,
    said,
    text,
    tool,
    vector,
)
from spec.vectors.make.rendering import Vector

FALLBACK = {"issuer": "example.com", "need": 2, "fallback_text": "he"}
CALLED = answer("", TOOL_CALLS, ids=[END], calls=(call(),))


def _turns() -> list[Vector]:
    hello, yes = said("hello"), answer("yes")
    cut, more = answer("yes", CANCELLED, ids=[*TOKENIZER.encode("yes"), END]), said("more")
    listed = answer("yes")
    listed["generation"]["request"] = sha256(b"render entry 1").hex()
    brief = said("Be brief.", speaker=SYSTEM)
    return [
        vector("interrupted", "an answer that was broken off is continued too",
               [hello, asked(), answer("yes", INTERRUPTED), asked(), answer(" sir")]),
        vector("refused-not-continued", "no other end is, of whatever number",
               [hello, asked(), answer("yes", REFUSED), asked(), answer("yes", 0), asked()]),
        vector("closed-before", "a turn whose recorded ids end with the token is closed, also where"
               " the last answer in it has none", [hello, asked(), cut, asked(),
               answer("", CANCELLED, ids=[]), more, asked()]),
        vector("closed-plain", "also by a token that is none of control",
               [hello, asked(), answer("yes!", LENGTH), more, asked()], template="closing"),
        vector("closed-typed", "but not by ids that a message has",
               [of({"tokens": {"token_ids": TOKENIZER.encode("!"),
                               "tokenizer_digest": TOKENIZER.digest.hex()}}), more, asked()],
               template="closing"),
        vector("answer-listed", "an answer behind a request that its seal does not list last opens"
               " a turn", [hello, asked(), yes, more, asked(), listed, asked()],
               last_of_seals=(1,)),
        vector("ladder", "a role that the template renders in four turns, and not in three: it is"
               " not local", [brief, hello, asked(), CALLED, of(result(text("3")), speaker=TOOL),
               asked(), yes, more, asked()], template="ladder"),
        vector("systems-apart", "two system messages without tools are two turns",
               [brief, said("Be kind.", speaker=SYSTEM), hello, asked()]),
    ]  # fmt: skip


def _contents() -> list[Vector]:
    opaque = {"opaque": FALLBACK}
    return [
        vector("unspaced-fallback", "a fallback in the first place is no text with a space",
               [of({"opaque": FALLBACK | {"fallback_text": "t"}}, text("he")), asked()],
               template="numbered"),
        vector("opaque-in-result", "the index is that of the result", [
            of(text("so"), result(text("t"), opaque, {"opaque": FALLBACK | {"need": 3}})),
            asked()]),
        vector("nested", "a call and a result in a result render as in the message", [
            of(result(call(1), result(text("t"), number=2)), speaker=TOOL), asked()]),
    ]  # fmt: skip


def _tools() -> list[Vector]:
    hello, brief = said("hello"), said("Be brief.", speaker=SYSTEM)
    offer, none = {"tools": [ADD]}, {"tools": []}
    odd = tool('\\ "é"\x7f\x85', "\b\t\n\f\r\x01\x1f/", "")
    return [
        vector("tools-next-seal", "what a later seal lists takes no system text away",
               [offer, asked(), brief, asked()], last_of_seals=(1,)),
        vector("tools-between", "the next message counts, not the next entry",
               [offer, None, none, brief, hello, asked()]),
        vector("tools-later-system", "a later message of the system does not",
               [offer, hello, brief, asked()]),
        vector("tools-own-literal", "the template's own text is a literal apart from the blank"
               " line, with control tokens", [offer, hello, asked()], template="closing"),
        vector("tools-escaped", "characters of JSON strings, escaped and not",
               [{"tools": [odd]}, hello, asked()]),
        vector("tools-none-unsupported", "an empty offer before any is refused by no template",
               [none, hello, asked()], template="bare"),
    ]  # fmt: skip


def _calls() -> list[Vector]:
    hello, offer = said("hello"), {"tools": [ADD]}
    bare = {"tool_call": {"call_id": "c5", "name": "\n", "arguments_json": ""}}
    wide = {"tool_call": {"call_id": "c6", "name": "f", "arguments_json": "{} "}}
    three, none = result(text("3")), result(text("no"), is_error=True)
    to_bob = answer("", TOOL_CALLS, ids=[END], calls=(call(),))
    to_bob["generation"]["request"] = sha256(b"render entry 1").hex()
    return [
        vector("call-bare", "text behind a call without marks is tokenised with it",
               [of(wide, text("}"), bare), asked()], template="braces"),
        vector("result-bare", "a result that has no ids has no line feed behind it",
               [of(result(), result(text("")), text("the"), result(text("he"))), asked()],
               template="braces"),
        vector("result-marks", "marks are ids: a line feed comes behind them",
               [of(result(text("")), bare, result(is_error=True)), asked()]),
        vector("error-literal", "the words before an error are a literal, also before no text",
               [of(result(text("the"), is_error=True), result(text(""), is_error=True)), asked()]),
        vector("line-behind-ids", "a line feed comes behind ids too", [
            of({"tokens": {"token_ids": TOKENIZER.encode("hello"),
                           "tokenizer_digest": TOKENIZER.digest.hex()}}, call()), asked()]),
        vector("result-requester", "the requester may give up a call with an error alone",
               [offer, hello, asked(BOB), CALLED, of(three, speaker=TOOL), of(none, speaker=TOOL),
                asked()], authors={2: CAT, 4: CAT, 5: CAT}),
        vector("result-owner-not", "an owner has no other result either",
               [offer, hello, asked(), CALLED, of(three, speaker=TOOL), asked()],
               authors={2: BOB}),
        vector("result-late", "a call that has a result takes no other of another key",
               [offer, hello, asked(), CALLED, of(three, speaker=TOOL), of(three, speaker=TOOL),
                asked()], authors={5: BOB}),
        vector("call-of-earlier", "the calls of an answer are those of its own request",
               [hello, asked(BOB), said("more"), asked(), to_bob, of(three, speaker=TOOL),
                of(three, speaker=TOOL), asked()], authors={6: BOB}),
    ]  # fmt: skip


def _refused() -> list[Vector]:
    system = said("x", speaker=SYSTEM)
    return [
        vector("role-short", "a template that renders system and user, but not four turns with a"
               " system turn, has none", [system, asked(), said("hello")], template="two-turns"),
    ]  # fmt: skip


CASES = (_turns, _contents, _tools, _calls, _refused)
