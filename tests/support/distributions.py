"""Metadata of the distribution in a folder, in place of that of the installed one."""

from pathlib import Path


def distribution(folder: Path, *needs: str) -> Path:
    """Write the metadata of an antiphon that needs these packages; return the folder."""
    info = folder / "antiphon-9.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: antiphon", "Version: 9"]
    lines += [f"Requires-Dist: {each}" for each in needs]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    return folder
