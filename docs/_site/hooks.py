"""Add spec/ to the site, which MkDocs alone reads from one folder only."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
MACHINE = re.compile(r"^```sh (\w+)$", re.MULTILINE)
OUTSIDE = re.compile(r"\[([^]]*)\]\((?:\.\./|vectors/)[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page per chapter, and an index of them."""
    chapters = sorted((ROOT / "spec").glob("[01][0-9]-*.md"))
    suites = sorted((ROOT / "spec").glob("conform-*.md"))
    for chapter in (*chapters, *suites, ROOT / "spec" / "CHANGELOG.md"):
        name = f"spec/{chapter.name}"
        files.append(File.generated(config, name, content=_page(chapter.read_text())))
    listed = "".join(f"- [{_title(path)}]({path.name})\n" for path in chapters)
    listed += "".join(f"- [{_title(path)}]({path.name})\n" for path in suites)
    index = f"# Specification\n\n{_ABOUT}\n\n{listed}- [Changes](CHANGELOG.md)\n"
    files.append(File.generated(config, "spec/index.md", content=index))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into spec/, which in the repository lies beside docs/, and take out the others.

    The word behind `sh` says whose machine runs the commands; it becomes a title.
    """
    del page, config, files  # MkDocs passes them by name
    titled = MACHINE.sub(lambda found: f'```sh title="{found[1].title()}"', markdown)
    return OUTSIDE.sub(r"\1", titled.replace("](../spec/", "](spec/"))


_ABOUT = (
    "The protocol, for implementers: chapters with requirement ids, each of which a test covers, "
    "and test vectors in `spec/vectors/`. Version 1 is a draft until it is declared stable."
)


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")


def _page(text: str) -> str:
    """Return the text without links to files that are no pages."""
    return OUTSIDE.sub(r"\1", text)
