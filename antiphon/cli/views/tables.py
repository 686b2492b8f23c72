"""Tables: a dim header, two spaces between columns, no lines."""

from collections.abc import Collection

from rich.table import Table


def plain_table(*columns: str, flexible: Collection[str] = ()) -> Table:
    """Return a table with these columns; `flexible` ones are shortened on a narrow terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=True, overflow="ellipsis" if name in flexible else "fold")
    return table
