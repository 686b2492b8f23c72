"""What every answer of a host states about itself: it follows from its tokens and its context."""

from itertools import chain

from antiphon.conformance.cases import Violation, equal
from replica.conversation import Conversation, extend_digest, start_digest
from replica.ids import EntryId
from replica.log import FinishReason, Generation, Text
from replica.order import SealNode

_CUT_SHORT = frozenset({FinishReason.CANCELLED, FinishReason.INTERRUPTED})


def check_answer(held: Conversation, answer: EntryId) -> None:
    """Raise Violation where an answer, or a refusal, states what its own contents contradict."""
    body = held.log.body(answer)
    if not isinstance(body, Generation):
        raise Violation("the body of an answer does not parse")
    (parent,) = held.log.entries[answer].header.parents
    node = held.order.nodes.get(parent)
    if node is None:
        equal(body.token_ids, (), "the tokens of a refusal")
        return
    text = "".join(part.text for part in body.parts if isinstance(part, Text))
    equal(body.visible_bytes, len(text.encode()), "the visible bytes of an answer")
    drafts = extend_digest(start_digest(node.seal.request, body.run), body.token_ids)
    equal(body.draft_digest, drafts, "the draft digest of an answer")
    _check_counts(body, node)


def _check_counts(body: Generation, node: SealNode) -> None:
    usage = body.usage
    equal(usage.output_tokens, len(body.token_ids), "the output tokens of an answer")
    found = usage.cached_tokens + usage.restored_tokens + usage.prefilled_tokens
    equal(found, usage.prompt_tokens, "the sum of cached, restored and prefilled tokens")
    listed = sum(chain.from_iterable(one.seal.tokens_per_entry for one in node.chain()))
    # Of a prefill that was cut short no prompt token is counted (spec/07-host §5).
    if usage.prompt_tokens or body.finish_reason not in _CUT_SHORT:
        equal(usage.prompt_tokens, listed, "the prompt tokens of an answer")
