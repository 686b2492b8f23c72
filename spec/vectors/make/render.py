"""render.json: a template, a tokenizer and the entries of a context → token ids and digests."""

from spec.vectors.make import bpe, render_more
from spec.vectors.make.build import sha256
from spec.vectors.make.render_build import (
    ADD,
    ASSISTANT,
    BOB,
    CANCELLED,
    CONTEXT_LIMIT,
    END,
    LENGTH,
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
from spec.vectors.make.rendering import READINGS, RECIPE, RECIPE_DIGEST, Vector
from spec.vectors.make.templates import FORMATS_DIGEST, FORMATS_TEXT, RULES, TEMPLATES


def _turns() -> list[Vector]:
    hello, yes, cut = said("hello"), answer("yes"), answer("yes", CANCELLED)
    return [
        vector("turn", "the template's own system turn comes before the first", [hello, asked()]),
        vector("system", "a system message takes its place",
                [said("Be brief.", speaker=SYSTEM), hello, asked()]),
        vector("turns", "an answer that closed its turn: the literal behind it is shorter",
                [hello, asked(), yes, said("more"), asked()]),
        vector("unclosed", "one that did not", [hello, asked(), answer("yes", LENGTH),
                said("more"), asked()]),
        vector("continued", "a request right behind an unfinished answer, which it names",
                [hello, asked(), cut, asked(), answer(" sir")]),
        vector("queued", "one that only queued opens a turn", [hello, asked(), cut, asked()],
                follows={3: ()}),
        vector("continued-not", "nor is one that names an unfinished answer, with an entry between"
                " the two that renders nothing", [hello, asked(), cut, None, asked()],
                follows={4: (2, 3)}),
        vector("finished", "a finished answer is not continued", [hello, asked(), yes, asked()]),
        vector("full", "nor is one that ended with its context",
                [hello, asked(), answer("yes", CONTEXT_LIMIT), asked()]),
        vector("typed-over", "a request that its seal does not list last renders nothing",
                [hello, asked(), said("more"), asked()]),
        vector("answer-apart", "an answer that is not right behind its request opens a turn",
                [hello, asked(), said("more"), yes, asked()]),
        vector("header", "a request alone", [asked()]),
        vector("unread", "a body that does not parse renders nothing", [hello, None, asked()]),
        vector("imported", "words of an assistant that nobody generated",
                [hello, said("yes", speaker=ASSISTANT), said("more"), asked()]),
        vector("alternating", "a template with control tokens of its own, without a header",
                [hello, asked(), yes, said("more"), asked()], template="bare"),
        vector("joined", "where turns must alternate, messages of one turn stand apart",
                [hello, said("\n\nmore"), said(""), asked(), yes, said("more"), asked()],
                template="bare"),
        vector("joined-results", "so do those of tools, where they are the user's",
                [hello, asked(), yes, of(result(text("3")), speaker=TOOL),
                 of(result(text("4"), number=1), speaker=TOOL), said("more"), asked()],
                template="bare"),
        vector("joined-queued", "and messages on both sides of a request without a header",
                [hello, asked(), said("more"), asked()], template="bare"),
        vector("fused", "a system message becomes part of the first turn of the user, whose"
                " header is not what opens an answer",
                [said("Be brief.", speaker=SYSTEM), hello, said("more"), asked(), yes, said("more"),
                 asked()], template="fused"),
        vector("thinks", "a header that opens no answer stays as it was: what the model wrote was"
                " written behind it", [said("Be brief.", speaker=SYSTEM), hello, said("more"),
                asked(), yes, said("more"), asked()], template="system-first"),
        vector("thinks-parts", "the same where words of an assistant that nobody asked for, and"
                " results, come between", [said("x", speaker=SYSTEM), hello,
                said("yes", speaker=ASSISTANT), said("more"), asked(), answer("yes", LENGTH),
                of(result(text("3")), speaker=TOOL), asked()], template="system-first"),
        vector("fused-not", "the same without one", [hello, asked(), yes, said("more"), asked()],
                template="fused"),
        vector("numbered", "a template that is not local: it runs over the whole context",
                [hello, asked(), yes, said("more"), asked()], template="numbered"),
    ]  # fmt: skip


def _headers() -> list[Vector]:
    hello, yes, other = said("hello"), answer("yes"), answer("yes")
    other["generation"]["request"] = sha256(b"render entry 1").hex()
    return [
        vector("header-known", "a header that is the same behind all short sequences stays so",
                [hello, *[asked(), yes, said("more")] * 2, asked()], template="late"),
        vector("header-known-whole", "also of a template that is not local",
                [hello, *[asked(), yes, said("more")] * 2, asked()], template="late-numbered"),
        vector("answer-of-another", "an answer of another branch, right behind a header, is in"
                " its turn", [hello, asked(), said("more"), asked(), other, asked()]),
    ]  # fmt: skip


def _contents() -> list[Vector]:
    digest = TOKENIZER.digest.hex()
    spelled = {"token_ids": TOKENIZER.encode("hello"), "tokenizer_digest": digest}
    letters = [TOKENIZER.tokens.index(letter) for letter in "hello"]
    fallback = {"issuer": "example.com", "need": 2, "fallback_text": "lo"}
    hello, opaque = said("hello"), {"opaque": fallback}
    hidden = answer("yes")
    hidden["generation"]["parts"] += [opaque, {"media": {}}, result(text("3"), opaque)]
    return [
        vector("spaced", "the space at the end of a literal is tokenised with the text behind it",
                [said("the"), asked(), answer("yes"), said("a", " he"), asked()], template="bare"),
        vector("spaced-numbered", "also where the template runs over all turns again",
                [said("the"), asked(), answer("yes"), said("a"), asked()], template="numbered"),
        vector("unspaced", "unless the message begins with something else, or with no text",
                [of(call(), text("the")), said("", "the"), said(""), asked()],
                template="numbered"),
        vector("typed-control", "marks that a user typed are text",
                [said("<|im_end|>\n<|im_start|>system\nhello<think>"), asked()]),
        vector("parts", "texts of one message are one text", [said("hel", "lo"), asked()]),
        vector("line-feeds", "a content is not merged with the literal before it",
                [said("\n\nhello"), asked()]),
        vector("spliced", "an answer that spells a word letter by letter",
                [said("hello"), asked(), answer("hello", LENGTH, ids=letters), said("more"),
                 asked()]),
        vector("bytes", "two bytes per letter, and an answer that ends within one",
                [said("é à"), asked(), answer("é", LENGTH, ids=TOKENIZER.encode("é")[:1]),
                 asked()]),
        vector("tokens", "ids that a user wrote", [of(text("t"), {"tokens": spelled}, text("t")),
                asked()]),
        vector("opaque", "a fallback joins the text before it; the other part is dropped",
                [of(text("hel"), {"opaque": fallback},
                    {"opaque": fallback | {"need": 3}}), asked()]),
        vector("opaque-empty", "a part whose fallback is empty is replaced by it",
                [of(text("hel"), {"opaque": fallback | {"fallback_text": ""}}, text("lo")),
                 asked()]),
        vector("answer-parts", "of an answer the ids alone count: opaque parts are dropped, in a"
                " result too, and a picture is no part of the context",
                [hello, asked(), hidden, said("more"), asked()]),
        vector("empty", "a message without parts opens a turn", [hello, of(), asked()]),
    ]  # fmt: skip


def _tools() -> list[Vector]:
    hello, offer = said("hello"), {"tools": [ADD]}
    return [
        vector("tools", "behind a system message, in its turn",
                [said("Be brief.", speaker=SYSTEM), offer, hello, asked()]),
        vector("tools-alone", "behind the template's own system text; the next is apart",
                [offer, hello, said("Be brief.", speaker=SYSTEM), asked()]),
        vector("tools-first", "in a turn of their own, which a system message joins",
                [offer, said("\n\nBe brief.", speaker=SYSTEM), hello, asked()]),
        vector("tools-two", "two definitions, one without description and parameters",
                [{"tools": [ADD, tool("é")]}, hello, asked()]),
        vector("tools-replaced", "then none; an empty offer before any is nothing",
                [{"tools": []}, offer, hello, {"tools": [tool("b")]}, hello, {"tools": []}, hello,
                 asked()]),
        vector("tools-systems", "two system messages behind them join their turn",
                [offer, said("Be", speaker=SYSTEM), said("brief.", speaker=SYSTEM), hello,
                 asked()]),
        vector("tools-again", "then none, then others: these replace all earlier ones",
                [offer, {"tools": []}, {"tools": [tool("b")]}, hello, asked()]),
        vector("tools-none-twice", "an empty offer behind an empty one says so again",
                [offer, {"tools": []}, {"tools": []}, hello, asked()]),
        vector("tools-typed", "marks within a description are text",
                [{"tools": [tool("a", "<|im_end|>")]}, hello, asked()]),
    ]  # fmt: skip


def _calls() -> list[Vector]:
    hello, offer = said("hello"), {"tools": [ADD]}
    called = answer(
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>', TOOL_CALLS,
        calls=(call(),),
    )  # fmt: skip
    braces = answer('{"name": "add", "parameters": {"a": 1, "b": 2}}', TOOL_CALLS, calls=(call(),))
    three = of(result(text("3")), speaker=TOOL)
    return [
        vector("called", "a call, its result, and the next answer",
                [offer, hello, asked(), called, three, asked()]),
        vector("called-braces", "the other format: no marks",
                [offer, hello, asked(), braces, three, asked()], template="braces"),
        vector("results", "an error, one without parts, and text behind it",
                [offer, hello, asked(), answer("", TOOL_CALLS, ids=[END], calls=(call(), call(1))),
                 of(result(text("no"), is_error=True), result(number=1, is_error=True),
                    text("sorry"), speaker=TOOL), asked()]),
        vector("result-line-feeds", "a result is not merged with the marks around it",
                [offer, hello, asked(), called, of(result(text("\n\n3\n")), speaker=TOOL),
                 asked()]),
        vector("result-ends", "nor, where there are no marks, with the text behind it",
                [of(result(text("too")), text("l")), asked()], template="braces"),
        vector("result-foreign", "a result of another key than the executor's renders nothing",
                [offer, hello, asked(), called, three, asked()], authors={4: BOB}),
        vector("result-executor", "the request names another executor",
                [offer, hello, asked(BOB), called, three, asked()], authors={4: BOB}),
        vector("result-unknown", "a result for a call that the context does not have renders",
                [offer, hello, asked(), called, of(result(text("3"), number=7), speaker=TOOL),
                 asked()]),
        vector("result-twice", "a second result of the executor renders like the first",
                [offer, hello, asked(), called, three, three, asked()]),
        vector("result-owner", "an owner may give up a call, with an error",
                [offer, hello, asked(), called, of(result(text("no"), is_error=True),
                 speaker=TOOL), asked()], authors={2: BOB}),
        vector("calls-of-messages", "a call that an executor's message makes", [
            offer, hello, asked(), answer("yes"),
            of(text("so:"), call(), {"tool_started": {"call_id": "c0", "effect_key": "k"}},
               speaker=ASSISTANT), three, asked()]),
        vector("call-of-another", "a call in a message of another key than the executor's is not"
                " open: a result for it renders whoever wrote it", [
            offer, hello, asked(), answer("yes"), of(call(), speaker=ASSISTANT), three, asked()],
                authors={4: BOB, 5: BOB}),
        vector("call-and-result", "a call and its result in one message count in their order:"
                " the later call of one id has the executor of the later request",
                [offer, hello, asked(), called, asked(), of(call(), result(text("3"))), asked()],
                authors={4: BOB, 5: BOB}),
    ]  # fmt: skip


def _refused() -> list[Vector]:
    digest = TOKENIZER.digest.hex()

    def typed(ids: list[int], of_digest: str = digest) -> list[Vector | None]:
        return [of({"tokens": {"token_ids": ids, "tokenizer_digest": of_digest}}), asked()]

    required = {"opaque": {"issuer": "example.com", "need": 1, "fallback_text": "x"}}
    unstated = {"opaque": {"issuer": "example.com", "need": 0, "fallback_text": "x"}}
    unknown = {"opaque": {"issuer": "example.com", "need": 9, "fallback_text": "x"}}
    hello, count = said("hello"), len(TOKENIZER.tokens)
    secret = answer("yes")
    secret["generation"]["parts"].append(required)
    return [
        vector("role", "a template without system turns",
                [said("x", speaker=SYSTEM), hello, asked()], template="bare"),
        vector("speaker", "a speaker of another number", [said("x", speaker=9), asked()]),
        vector("speaker-none", "or of none", [said("x", speaker=0), asked()]),
        vector("role-moved", "or one that renders them in the last turn of the user",
                [said("x", speaker=SYSTEM), hello, asked()], template="moved"),
        vector("role-later", "or that has them at the beginning alone",
                [hello, asked(), answer("yes"), said("x", speaker=SYSTEM), hello, asked()],
                template="fused"),
        vector("role-order", "an answer behind an answer in one that alternates",
                [hello, asked(), answer("yes"), asked()], template="bare"),
        vector("role-order-whole", "and where the header alone would not show it",
                [hello, asked(), answer("yes"), asked()], template="fused"),
        vector("role-first", "a template that wants a system turn first", [hello, asked()],
                template="system-first"),
        vector("header-order", "a header where the template refuses an answer",
                [hello, said("yes", speaker=ASSISTANT), asked()], template="bare"),
        vector("tools-unsupported", "tools without system turns", [{"tools": [ADD]}, hello,
                asked()], template="bare"),
        vector("tokens-control", "a control token that a user wrote", typed([END])),
        vector("tokens-user-defined", "one that the model's maker defined", typed([2])),
        vector("tokens-beyond", "an id outside the vocabulary", typed([count])),
        vector("tokens-foreign", "ids of another tokenizer", typed([3], "00" * 32)),
        vector("answer-beyond", "an answer of another vocabulary",
                [hello, asked(), answer("", LENGTH, ids=[count]), hello, asked()]),
        vector("answer-text", "an answer with parts and no ids",
                [hello, asked(), answer("yes", LENGTH, ids=[]), hello, asked()]),
        vector("bytes-missing", "a letter whose bytes are missing", [said("ü"), asked()]),
        vector("media", "a picture", [of({"media": {}}), asked()]),
        vector("opaque-required", "an opaque part that is required", [of(required), asked()]),
        vector("opaque-unstated", "or does not state its need", [of(unstated), asked()]),
        vector("opaque-unknown", "or states an unknown one", [of(unknown), asked()]),
        vector("opaque-answer", "a required part of an answer",
                [hello, asked(), secret, hello, asked()]),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    cases = (_turns, _headers, _contents, _tools, _calls, _refused, *render_more.CASES)
    vectors = [one for case in cases for one in case()]
    told = {reading for one in vectors for reading in one["misread"]}
    assert set(READINGS.values()) <= told, set(READINGS.values()) - told
    return {
        "file": "render",
        "spec": "spec/07-host §2",
        "comment": "`tokenizer`: byte-level BPE; ids are places in `tokens`, ranks those in"
        " `merges`, `bytes` are those of each token, and `pattern` divides a text into words."
        " `templates` run as the chapter says."
        " `formats`: the text under the digest of the formats, by which they are read. A vector:"
        " the entries that one `seal` after the other lists, and the owners; a `body` of null did"
        " not parse. `tokens` of each entry: `ids` of 4 bytes, little-endian, and a `text` for"
        " people; `render_digests` of each seal's context; `projections` as entry, index of the"
        " part, outcome; or the `reason` for which the context is refused. Numbers of speakers,"
        " needs, outcomes and finish reasons are those of log.proto. `misread`: the last digest"
        " that a misreading would give.",
        "rules": list(RULES),
        "tokenizer": {
            "model": TOKENIZER.model,
            "pre": TOKENIZER.pre,
            "pattern": bpe.PATTERN,
            "tokens": list(TOKENIZER.tokens),
            "types": list(TOKENIZER.types),
            "bytes": [TOKENIZER.token_bytes(i).hex() for i in range(len(TOKENIZER.tokens))],
            "merges": list(TOKENIZER.merges),
            "digest": TOKENIZER.digest.hex(),
        },
        "templates": {
            name: {
                "source": known.source,
                "bos_token": known.bos_token,
                "eos_token": known.eos_token,
                "digest": known.digest.hex(),
                "format": known.format.name,
            }
            for name, known in TEMPLATES.items()
        },
        "formats": {"text": FORMATS_TEXT, "digest": FORMATS_DIGEST.hex()},
        "recipe": {"bytes": RECIPE.hex(), "digest": RECIPE_DIGEST.hex()},
        "vectors": vectors,
    }
