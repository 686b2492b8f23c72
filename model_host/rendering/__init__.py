"""From context to tokens: templates, contents, tools, and the room they have (spec/07-host §2)."""

from model_host.rendering.contexts import Contexts
from model_host.rendering.listing import ContextItem, Listing
from model_host.rendering.render import RECIPE_DIGEST, Context, Rendered, Renderer
from model_host.rendering.room import Room
from model_host.rendering.template import Template, TemplateReport, check_template
from model_host.rendering.tool_formats import WHITE_SPACE, CallText, ToolFormat
from model_host.rendering.turn_bytes import Decoder, TurnBytes

__all__ = [
    "RECIPE_DIGEST",
    "WHITE_SPACE",
    "CallText",
    "Context",
    "ContextItem",
    "Contexts",
    "Decoder",
    "Listing",
    "Rendered",
    "Renderer",
    "Room",
    "Template",
    "TemplateReport",
    "ToolFormat",
    "TurnBytes",
    "check_template",
]
