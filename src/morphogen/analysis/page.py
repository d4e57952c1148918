"""The report as one HTML file: pictures inside, no script, nothing from outside."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from morphogen.analysis.console import format_number
from morphogen.analysis.tables import Row

MAX_ROWS = 60  # of a table that are shown
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; background: #fff; margin: 2rem auto; max-width: 1120px;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .3rem; border-top: 1px solid #ddd; padding-top: 1rem; }
p { margin: .3rem 0 .8rem; max-width: 60rem; } img { width: 100%; height: auto; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; margin: .6rem 0; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } .none { color: #666; font-style: italic; }
nav a { margin-right: .9rem; } footer { color: #555; font-size: 13px; margin: 3rem 0 1rem; }
"""
CONTENT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class Section:
    """A plot on the page."""

    name: str
    title: str
    text: str
    image: bytes | None  # None: no data
    tables: Mapping[str, Sequence[Row]]  # caption -> rows


def render_page(facts: Mapping[str, Mapping[str, str]], sections: Sequence[Section]) -> str:
    """The whole page.  facts: run -> fact -> text."""
    title = f"morphogen: {', '.join(facts)}"
    links = "".join(f'<a href="#{section.name}">{escape(section.title)}</a> ' for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{_facts_table(facts)}
<nav>{links}</nav>
{"".join(map(_section_html, sections))}
<footer>Pictures are saved beside this file as NAME.png, their numbers as NAME.csv.</footer>
</body>
</html>
"""


def _facts_table(facts: Mapping[str, Mapping[str, str]]) -> str:
    """A row per fact, a column per run."""
    names = dict.fromkeys(name for texts in facts.values() for name in texts)
    head = "".join(f"<th>{escape(run)}</th>" for run in facts)
    rows = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(texts[name])}</td>' for texts in facts.values())}</tr>\n"
        for name in names
    )
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>\n{rows}</table></div>'


def _section_html(section: Section) -> str:
    image = f'<p class="none" id="{section.name}-none">no data</p>'
    if section.image is not None:
        data = base64.b64encode(section.image).decode("ascii")
        image = f'<img src="data:image/png;base64,{data}" alt="{escape(section.title)}. {escape(section.text)}">'
    tables = "".join(_table_html(caption, rows) for caption, rows in section.tables.items())
    head = f'<h2 id="{section.name}">{escape(section.title)}</h2>\n<p>{escape(section.text)}</p>'
    return f"<section>\n{head}\n{image}\n{tables}</section>\n"


def _table_html(caption: str, rows: Sequence[Row]) -> str:
    """The first rows; the columns are those of the first one."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(_cell_html(row[name]) for name in rows[0])}</tr>\n" for row in rows[:MAX_ROWS])
    more = f'<p class="none">and {len(rows) - MAX_ROWS} more</p>' if len(rows) > MAX_ROWS else ""
    return f'<h3>{escape(caption)}</h3><div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>{more}'


def _cell_html(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{format_number(value)}</td>'
    return f"<td>{escape('-' if value is None else str(value))}</td>"
