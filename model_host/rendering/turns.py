"""The turns that a template has room for, asked once, at load (spec/07-host §2 and §8). Pure."""

from contextlib import suppress
from dataclasses import dataclass

from model_host.refusals import TemplateUnsupported
from model_host.rendering.template import ROLES, Template, has_system_turns
from model_host.rendering.tool_formats import ToolFormat, format_of
from replica.log import Speaker


@dataclass(frozen=True, slots=True)
class TurnRules:
    """The turns of one template, and its format of tools."""

    format: ToolFormat
    has_system: bool
    """Whether there are system turns; tools are offered in these."""
    default_system: str
    """The system text that the template writes where a context begins without any; or nothing."""
    joins_user: bool
    """Whether turns of the user continue the one right before, since two in a row are refused."""
    result_role: str
    """The role of results: tool, or user where the template has no such role."""
    marks_results: bool
    """Whether the format marks results, since the template does not."""


def turn_rules_of(template: Template) -> TurnRules:
    """Ask a template for its turns."""
    known = format_of(template)
    _, user, assistant, tool = ROLES.values()
    opening = _opening(template, user, assistant, tool)
    mark = known.result_begins
    is_marked = opening is not None and mark.strip() in opening
    return TurnRules(
        known,
        has_system=has_system_turns(template),
        default_system=_default_system(template),
        joins_user=_opening(template, user, user) is None,
        result_role=tool if opening is not None else user,
        marks_results=not is_marked,
    )


def _opening(template: Template, *roles: str) -> str | None:
    """Return the literal that opens the last of some turns; None where it is refused.

    Some templates want a system turn before them.
    """
    for turns in (roles, (ROLES[Speaker.SYSTEM], *roles)):
        with suppress(TemplateUnsupported):
            return template.literals(turns, header=False)[-2]
    return None


def _default_system(template: Template) -> str:
    """Return the text with which a system turn before the user's renders as the user's alone."""
    system, user, _, _ = ROLES.values()
    try:
        alone, _ = template.literals([user], header=False)
        before, behind, _ = template.literals([system, user], header=False)
    except TemplateUnsupported:
        return ""
    end = len(alone) - len(behind)
    is_alike = alone.startswith(before) and alone.endswith(behind)
    return alone[len(before) : end] if is_alike else ""
