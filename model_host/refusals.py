"""Refusals of requests, logged as generations that are REFUSED (spec/10-errors).

    GenerationRefused
    ├── TemplateUnsupported    the model's template can't render the context
    ├── ToolsUnsupported       tools, for a template without system turns
    ├── MediaUnsupported       media, for a text model
    ├── OpaqueRequired         a required opaque part that only its issuer can open
    ├── TokensForeign          ids or an answer of another tokenizer, template or recipe
    ├── TokensControl          ids of control tokens in a message
    ├── TokenizerBytesMissing  a byte of the text without a token
    ├── ObligationsOpen        tool calls without a result
    ├── RequestExpired         a turn after the time the requester set
    ├── CallRepeated           the second request of one call under a key
    ├── NothingToContinue      a request for the rest of an answer, behind another turn
    ├── HostBusy               more waiting requests of one owner than the host holds
    ├── ProfileUnknown         a profile that the host doesn't offer
    ├── ProfileUnavailable     a profile that the host offers and can't load
    ├── BodyUnavailable        a body of the context that is missing
    ├── ContextTooLong         more tokens than the model's context holds
    ├── SealTooLarge           more entries than one seal holds
    ├── SamplingInvalid        a sampling parameter out of its range
    ├── StopInvalid            a stop string or stop token out of its range
    ├── GrammarInvalid         a form of the answer that can't be compiled
    └── ToolChoiceInvalid      a choice of tools that makes no sense here

The other errors of the host are in model_host/errors.py.
"""

from typing import Any

from replica.errors import AntiphonError, HostError


def finish_detail(error: AntiphonError) -> str:
    """Return the finish detail of a generation that was refused or interrupted.

    It is signed into the log, where all members read it.
    """
    told = error.for_peer()
    return f"{told.reason}: {told.detail.removesuffix('.')}. {told.next_step}"


def cleaned(words: str, characters_max: int) -> str:
    """Return the words of a foreign program as a line of printable text for a detail, cut."""
    line = " ".join(words[: 4 * characters_max].split())
    return "".join(char if char.isprintable() else "?" for char in line)[:characters_max]


class GenerationRefused(HostError):
    """The host can't answer this request."""

    reason = "GENERATION_REFUSED"
    next_step = "Change the conversation or the request, and send it again."


class TemplateUnsupported(GenerationRefused):
    """The model's template can't render this context."""

    reason = "TEMPLATE_UNSUPPORTED"
    next_step = "Choose another model, or branch off before the entry that its template refuses."

    def __init__(self, detail: str = "", *, is_costly: bool = False, **recovery: Any) -> None:
        """`is_costly`: it takes more than this host gives; another one may render the context."""
        super().__init__(detail, **recovery)
        self.is_costly = is_costly


class ToolsUnsupported(GenerationRefused):
    """The model's template has no system turns, in which tools are offered."""

    reason = "TOOLS_UNSUPPORTED"
    next_step = "Ask a host whose profile has tools, or branch off before the tool entries."


class MediaUnsupported(GenerationRefused):
    """The model accepts text only."""

    reason = "MEDIA_UNSUPPORTED"
    next_step = "Ask a host whose profile accepts media, or branch off before the media part."


class OpaqueRequired(GenerationRefused):
    """The host can't open a required opaque part."""

    reason = "OPAQUE_REQUIRED"
    next_step = "Ask the issuer's host, or branch off before the part."


class TokensForeign(GenerationRefused):
    """Token ids, or an answer, of another tokenizer, template or rendering recipe."""

    reason = "TOKENS_FOREIGN"
    next_step = "Branch off before them and send their text, or ask a host with the same rendering."


class TokensControl(GenerationRefused):
    """A message has ids of control tokens, which only templates and models may write."""

    reason = "TOKENS_CONTROL"
    next_step = "Send the text instead of ids, or leave the control tokens out."


class SealTooLarge(GenerationRefused):
    """The entries since the last answer don't fit in one seal."""

    reason = "SEAL_TOO_LARGE"
    next_step = "Branch off earlier, and send the request with fewer entries since the last answer."


class TokenizerBytesMissing(GenerationRefused):
    """The vocabulary has no token for some bytes of the text, which the detail lists."""

    reason = "TOKENIZER_BYTES_MISSING"
    next_step = "Remove these bytes from the text, or choose a model with tokens for them."

    def __init__(self, detail: str = "", *, bytes_missing: bytes = b"", **recovery: Any) -> None:
        """Set the byte values, sorted, without repetition."""
        words = f"The model's vocabulary lacks the bytes {bytes_missing.hex(' ')}."
        super().__init__(detail or words, **recovery)
        self.bytes_missing = bytes_missing


class ObligationsOpen(GenerationRefused):
    """Tool calls have no result."""

    reason = "OBLIGATIONS_OPEN"
    next_step = "Append a tool_result for each call named, with is_error if the call failed."


class RequestExpired(GenerationRefused):
    """The turn of the request came after the time its author set."""

    reason = "REQUEST_EXPIRED"
    next_step = (
        "Send the request again if the answer is still wanted. If it was sent just now, compare "
        "the clock of this machine with the host's."
    )


class CallRepeated(GenerationRefused):
    """An earlier request makes the same call under the same key."""

    reason = "CALL_REPEATED"
    next_step = "Read the answer to the earlier request of this key."


class NothingToContinue(GenerationRefused):
    """Another turn follows the cut answer whose rest is asked for."""

    reason = "NOTHING_TO_CONTINUE"
    next_step = "Send a message, or ask for the rest beside that turn, with a request that forks."


class HostBusy(GenerationRefused):
    """Too many requests in conversations of one owner wait for this host."""

    reason = "HOST_BUSY"
    next_step = "Send the request again once earlier ones are answered, or ask another host."


class ProfileUnknown(GenerationRefused):
    """The host doesn't offer the profile that the request names."""

    reason = "PROFILE_UNKNOWN"
    next_step = "Leave the profile out, or name one that the host offers."


class ProfileUnavailable(GenerationRefused):
    """The host offers the profile, and can't load it."""

    reason = "PROFILE_UNAVAILABLE"
    next_step = "Let the host's operator look into its log; requests may name another profile."


class BodyUnavailable(GenerationRefused):
    """A body of the context is missing on the host."""

    reason = "BODY_UNAVAILABLE"
    next_step = "Sync a replica that holds the body, then send the request again."


class ContextTooLong(GenerationRefused):
    """The tokens, with one more for the answer, don't fit in the model's context."""

    reason = "CONTEXT_TOO_LONG"
    next_step = "Branch off earlier, or choose a profile with a longer context."


class SamplingInvalid(GenerationRefused):
    """A sampling parameter is out of its range."""

    reason = "SAMPLING_INVALID"
    next_step = "Correct the sampling parameters of the request."


class StopInvalid(GenerationRefused):
    """A stop string is empty or too long, a stop token unknown, or there are too many."""

    reason = "STOP_INVALID"
    next_step = "Correct the stop strings and stop tokens of the request."


class GrammarInvalid(GenerationRefused):
    """The form that the answer shall have can't be compiled, or not within the host's limits."""

    reason = "GRAMMAR_INVALID"
    next_step = "Correct or simplify the schema, expression or grammar, and ask again behind it."

    def __init__(self, detail: str = "", *, is_costly: bool = False, **recovery: Any) -> None:
        """`is_costly`: compiling it takes more than this host gives; another one may compile it."""
        super().__init__(detail, **recovery)
        self.is_costly = is_costly


class ToolChoiceInvalid(GenerationRefused):
    """The choice of tools doesn't fit the tools in effect, or the form of the answer."""

    reason = "TOOL_CHOICE_INVALID"
    next_step = "Name a tool that is in effect, or leave the choice to the model."
