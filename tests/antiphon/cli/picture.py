"""A screen as a picture: an SVG with one text element per line, for the README."""

from html import escape

MARGIN, LINE, CELL, BAR = 18, 20, 8.4, 34
"""Pixels: around the text, from line to line, per column, of the title bar."""
_STYLE = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d8dee9;"
    "white-space:pre}.you{fill:#88c0d0}.other{fill:#a3be8c}.note{fill:#7b8494}"
)


def svg_of(screen: str, title: str, columns: int, speakers: tuple[str, ...]) -> str:
    """Return a picture of a terminal; a line that begins with a speaker's name is theirs."""
    lines = screen.rstrip("\n").split("\n")
    width = round(2 * MARGIN + columns * CELL)
    height = BAR + 2 * MARGIN + LINE * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#242933"/>',
        *(
            f'<circle cx="{MARGIN + 18 * n + 4}" cy="{BAR // 2}" r="5" fill="{colour}"/>'
            for n, colour in enumerate(("#bf616a", "#ebcb8b", "#a3be8c"))
        ),
        f'<text x="{width // 2}" y="{BAR // 2 + 5}" text-anchor="middle" class="note">'
        f"{escape(title)}</text>",
    ]
    kind = ""
    for number, line in enumerate(lines):
        kind = _kind(line, kind, speakers)
        y = BAR + MARGIN + LINE * number + 12
        parts.append(f'<text x="{MARGIN}" y="{y}"{kind}>{escape(line)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _kind(line: str, before: str, speakers: tuple[str, ...]) -> str:
    """Return the class attribute of a line; an indented one goes on with the line before."""
    if line.startswith("  "):
        return before
    if line.startswith("> "):
        return ' class="you"'
    if line.startswith(speakers):
        return ' class="other"'
    return ' class="note"' if " · " in line else ""
