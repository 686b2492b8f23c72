"""Why a host refuses a request: logged as a generation that is REFUSED (spec/10-errors).

    GenerationRefused
    ├── TemplateUnsupported    the model's template can't render the context
    ├── ToolsUnsupported       tools, which the template renders none of
    ├── MediaUnsupported       media, for a model of text
    ├── OpaqueRequired         a required opaque part that only its issuer opens
    ├── TokensForeign          ids or an answer of another tokenizer, template or recipe
    ├── TokensControl          ids of control tokens in a message
    ├── TokenizerBytesMissing  a byte of the text that the vocabulary lacks
    ├── ObligationsOpen        tool calls without a result
    ├── RequestExpired         its turn came after the time the requester set
    ├── ProfileUnknown         a profile the host doesn't offer
    ├── BodyUnavailable        a body that is missing here
    ├── ContextTooLong         more tokens than the model's context holds
    ├── SealTooLarge           more entries than one seal holds
    ├── SamplingInvalid        a sampling parameter out of its range
    └── StopInvalid            a stop string out of its range

The other errors of the host are in model_host/errors.py.
"""

from replica.errors import AntiphonError, HostError


def finish_detail(error: AntiphonError) -> str:
    """Return what a generation says of why it was refused or interrupted."""
    return f"{error.reason}: {error.detail} {error.next_step}"


class GenerationRefused(HostError):
    """The host can't answer this request as it stands."""

    reason = "GENERATION_REFUSED"
    next_step = "Change the conversation or the request, and ask again."


class TemplateUnsupported(GenerationRefused):
    """The model's template can't render this context."""

    reason = "TEMPLATE_UNSUPPORTED"
    next_step = "Choose another model, or leave out what its template refuses."


class ToolsUnsupported(GenerationRefused):
    """The model's template renders no tools."""

    reason = "TOOLS_UNSUPPORTED"
    next_step = "Ask a host whose profile has tools, or branch off before the tool entries."


class MediaUnsupported(GenerationRefused):
    """The model takes text only."""

    reason = "MEDIA_UNSUPPORTED"
    next_step = "Ask a host whose profile takes media, or branch off before the media part."


class OpaqueRequired(GenerationRefused):
    """A required opaque part can't be opened here."""

    reason = "OPAQUE_REQUIRED"
    next_step = "Ask the issuer's own host, or branch off before the part."


class TokensForeign(GenerationRefused):
    """Token ids, or an answer, of another tokenizer, template or rendering recipe."""

    reason = "TOKENS_FOREIGN"
    next_step = "Branch off before them and send their text, or ask a host that renders as theirs."


class TokensControl(GenerationRefused):
    """A message holds ids of control tokens, which templates and models alone may write."""

    reason = "TOKENS_CONTROL"
    next_step = "Send the text instead of ids, or leave the control tokens out."


class SealTooLarge(GenerationRefused):
    """The entries since the last answer do not fit one seal."""

    reason = "SEAL_TOO_LARGE"
    next_step = "Branch off earlier, and ask again with fewer entries since the last answer."


class TokenizerBytesMissing(GenerationRefused):
    """The vocabulary has no token for some byte of the text; `bytes_missing` has them."""

    reason = "TOKENIZER_BYTES_MISSING"
    next_step = "Remove these bytes from the text, or choose a model that knows them."

    def __init__(self, bytes_missing: bytes) -> None:
        """Name the byte values, sorted, without repetition."""
        super().__init__(f"The model's vocabulary lacks the bytes {bytes_missing.hex(' ')}.")
        self.bytes_missing = bytes_missing


class ObligationsOpen(GenerationRefused):
    """Tool calls have no result yet."""

    reason = "OBLIGATIONS_OPEN"
    next_step = "Append a tool_result for each call named, an is_error one if need be."


class RequestExpired(GenerationRefused):
    """The request's turn came after the time its author set for it."""

    reason = "REQUEST_EXPIRED"
    next_step = "Ask again if the answer is still wanted."


class ProfileUnknown(GenerationRefused):
    """The host does not offer the profile asked for."""

    reason = "PROFILE_UNKNOWN"
    next_step = "Leave the profile out, or choose one the host describes."


class BodyUnavailable(GenerationRefused):
    """A body of the context is missing here."""

    reason = "BODY_UNAVAILABLE"
    next_step = "Sync a replica that holds the body, then ask again."


class ContextTooLong(GenerationRefused):
    """The model's context has no room for the tokens, or for one token more."""

    reason = "CONTEXT_TOO_LONG"
    next_step = "Branch off earlier, or choose a profile with a longer context."


class SamplingInvalid(GenerationRefused):
    """A sampling parameter is out of its range."""

    reason = "SAMPLING_INVALID"
    next_step = "Correct the sampling parameters of the request."


class StopInvalid(GenerationRefused):
    """A stop string is empty or too long, or there are too many."""

    reason = "STOP_INVALID"
    next_step = "Correct the stop strings of the request."
