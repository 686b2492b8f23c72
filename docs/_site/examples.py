"""Show the examples of docstrings as code, which Markdown takes for quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*\n(?:.*\S.*(?:\n|$))*", re.MULTILINE)
"""From a prompt to the next empty line."""


class Examples(griffe.Extension):  # type: ignore[misc]  # griffe has no types here
    """Fences the examples."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, a class, a function or an attribute."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
