"""Results that print as tables: text of at most 80 columns in a terminal, HTML in a notebook, and dicts."""

from __future__ import annotations

import dataclasses
import html
import math
import textwrap
from typing import Any, Dict, List, NamedTuple, Sequence, Union

_COLUMNS = 80


class Table(NamedTuple):
    """Cells as texts; the first column is a name, the others are numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Part = Union[str, Table]  # a paragraph, or a table


class Printable:
    """What a result's dataclass inherits. ``_parts`` says what is shown."""

    def _parts(self) -> List[Part]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n\n".join(
            _text_table(part) if isinstance(part, Table) else textwrap.fill(part, _COLUMNS)
            for part in self._parts()
        )

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return "".join(
            _html_table(part) if isinstance(part, Table) else f"<p>{html.escape(part)}</p>"
            for part in self._parts()
        )

    def to_dict(self) -> Dict[str, Any]:
        """All that is known, as a dict of numbers, texts, arrays, lists and dicts."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]


def _text_table(table: Table) -> str:
    cells = [table.head, *table.rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(table.head))]
    lines = [
        "  ".join(row[k].rjust(width) if k else row[k].ljust(width) for k, width in enumerate(widths))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _html_table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    return f"<table><thead>{row(table.head, 'th')}</thead><tbody>{body}</tbody></table>"


def number(value: float, digits: int = 4) -> str:
    """With so many significant digits; a dash for what is not known."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def p_value(log10_p: float) -> str:
    """From its logarithm, since a small p is no double.

    >>> p_value(-0.30103), p_value(-5.0), p_value(-412.25)
    ('0.5', '1e-05', '5.6e-413')
    """
    if math.isnan(log10_p):
        return "-"
    if log10_p > -300:
        return f"{10**log10_p:.2g}"
    exponent = math.floor(log10_p)
    return f"{10 ** (log10_p - exponent):.2g}e{exponent}"
