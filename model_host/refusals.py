"""Why a host refuses a request: logged as a generation that is REFUSED (spec/10-errors)."""

from replica.errors import HostError


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
    """Token ids of another tokenizer."""

    reason = "TOKENS_FOREIGN"
    next_step = "Send the text instead of ids, or ask a host with that tokenizer."


class ObligationsOpen(GenerationRefused):
    """Tool calls have no result yet."""

    reason = "OBLIGATIONS_OPEN"
    next_step = "Append a tool_result for each call named, an is_error one if need be."


class ProfileUnknown(GenerationRefused):
    """The host does not offer the profile asked for."""

    reason = "PROFILE_UNKNOWN"
    next_step = "Leave the profile out, or choose one the host describes."


class BodyUnavailable(GenerationRefused):
    """A body of the context is missing here."""

    reason = "BODY_UNAVAILABLE"
    next_step = "Sync a replica that holds the body, then ask again."


class ContextTooLong(GenerationRefused):
    """The context leaves no room for an answer."""

    reason = "CONTEXT_TOO_LONG"
    next_step = "Branch off earlier, or choose a profile with a longer context."
