"""Result tables as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from motet.benchmark.result_tables import ResultTable
from motet.benchmark.suite_search import describe_search
from motet.benchmark.table_entry import TableEntry, describe_difference, format_number
from motet.report.number_text import use_minus_signs
from motet.report.significance import MIN_SEEDS, SIGNIFICANCE_LEVEL

MAX_OPEN_CLAIMS = 10  # a longer list folds the claims that are not shown
VERDICT_MARKS = {"shown": "✓", "not shown": "○", "contradicted": "✗"}


def render_legend(tables: Sequence[ResultTable], seeds: Sequence[int]) -> str:
    """Explain the marks that the tables use."""
    entries = _entries(tables)
    parts = [f"Mean ± standard deviation over {len(seeds)} seeds" if len(seeds) > 1 else f"One seed ({seeds[0]})"]
    comparisons = [entry.comparison for entry in entries if entry.comparison is not None]
    if any(entry.is_best for entry in entries):
        parts.append("**bold**: best mean of the column")
    if any(c.is_about_methods for c in comparisons):
        parts.append("≈: not significantly different from the best, which does not mean equal")
    if any(not c.is_about_methods for c in comparisons):
        parts.append(
            f"fewer than {MIN_SEEDS} seeds: the differences are about these trained models, not about the methods, so "
            "no score is bold or ≈"
        )
    if _has_columns_without_examples(tables):
        parts.append("°: tested over seeds alone")
    if any(e.interval for e in entries):
        varied = "seeds and clients" if len(seeds) >= MIN_SEEDS else "clients, of these trained models"
        parts.append(f"in brackets: 95 % interval over {varied}")
    if any(e.published is not None for e in entries):
        parts.append("in parentheses: the paper's number")
    if any(e.is_partial for e in entries):
        parts.append(
            "†: the other seeds did not finish, did not reach the score or have no finite number; not compared with other "
            "rows"
        )
    if any(e.is_outdated for e in entries):
        parts.append("‡: made with another version of Motet; `motet bench SUITE --refresh` runs it anew")
    if any(table.bounds for table in tables):
        parts.append("*italic*: bounds, not ranked")
    return "; ".join(parts) + "."


def describe_tests(tables: Sequence[ResultTable]) -> str:
    """Describe the tests behind the marks, the differences and the claims; empty if there are none."""
    entries = _entries(tables)
    parts = []
    if any(e.comparison is not None and e.comparison.is_about_methods for e in entries):
        parts.append(
            "≈: t-test over seeds and test examples, Holm's correction for all pairs of methods, "
            f"p ≥ {SIGNIFICANCE_LEVEL:g}"
        )
    if _has_columns_without_examples(tables):
        parts.append("°: the number does not follow from per-example scores, or the rows have other texts")
    if any(claim.p_value is not None for table in tables for claim in table.claims):
        parts.append(
            "claims: 95 % interval of one difference, p of the verdict with Holm's correction for all claims of a table"
        )
    if any(e.is_bound and e.comparison for e in entries):
        parts.append("differences of bounds: Holm's correction for all pairs of a bound and a method")
    return f"Tests: {'; '.join(parts)}." if parts else ""


def _entries(tables: Sequence[ResultTable]) -> list[TableEntry]:
    return [entry for table in tables for row in table.entries.values() for entry in row.values()]


def _has_columns_without_examples(tables: Sequence[ResultTable]) -> bool:
    return any(table.is_without_examples(column) for table in tables for column in table.columns)


def render_markdown(
    table: ResultTable, *, legend: str = "", figure: str = "", curves: str = "", details: str = ""
) -> str:
    """Render a table with its claims. What fewer readers need is folded: tests, settings, curves and details."""
    folded = {
        _differences_title(table): _render_differences(table),
        "Settings chosen on the development set": describe_search(table.tuned) if table.tuned else "",
        "Learning curves": curves,
        "How the numbers were computed": _join([_metrics_sentence(table), details]),
    }
    parts = [
        f"### {table.title}",
        _render_scores(table),
        legend,
        _caveats_sentence(table),
        table.note,
        arrange_claims(claim_lines(table)),
        figure,
    ]
    return _join([*parts, *(fold(summary, text) for summary, text in folded.items() if text)]) + "\n"


def _join(paragraphs: Sequence[str]) -> str:
    return "\n\n".join(text for text in paragraphs if text)


def fold(summary: str, text: str) -> str:
    """Hide text behind a line to click. GitHub ignores the attribute `markdown`; the site needs it to render the text."""
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{text}\n\n</details>'


def arrange_claims(lines: Sequence[str]) -> str:
    """List the claims. If there are many, those that are not shown are folded."""
    not_shown = [line for line in lines if line.startswith(VERDICT_MARKS["not shown"])]
    if len(lines) <= MAX_OPEN_CLAIMS or not not_shown:
        return _bullets(lines)
    summary = f"{VERDICT_MARKS['not shown']} {len(not_shown)} of {len(lines)} claims are not shown"
    others = _bullets([line for line in lines if line not in not_shown])
    return _join([others, fold(summary, _bullets(not_shown))])


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _render_scores(table: ResultTable) -> str:
    headings = [_escape_markdown(c) + (" °" if table.is_without_examples(c) else "") for c in table.columns]
    lines = [f"| method | {' | '.join(headings)} |", "| --- |" + " ---: |" * len(table.columns)]
    for row in (*table.rows, *table.bounds):
        cells = " | ".join(_markdown_cell(table.entries[row][c]) for c in table.columns)
        lines.append(f"| {_row_name(table, row)} | {cells} |")
    return "\n".join(lines)


def _row_name(table: ResultTable, row: str) -> str:
    name = _escape_markdown(row)
    return f"*{name}*" if row in table.bounds else name


def _render_differences(table: ResultTable) -> str:
    """Render the difference of every method and bound to the best method of the column, with its interval."""
    rows = (*table.rows, *table.bounds)
    texts = {_row_name(table, row): [describe_difference(table.entries[row][c]) for c in table.columns] for row in rows}
    columns = [i for i in range(len(table.columns)) if any(cells[i] for cells in texts.values())]
    if not columns:
        return ""
    headings = " | ".join(_escape_markdown(table.columns[i]) for i in columns)
    lines = [f"| minus the best | {headings} |", "| --- |" + " ---: |" * len(columns)]
    for row, cells in texts.items():
        if any(cells[i] for i in columns):
            lines.append(f"| {row} | {' | '.join(cells[i] or '–' for i in columns)} |")
    return "\n".join(lines)


def _differences_title(table: ResultTable) -> str:
    comparisons = [e.comparison for row in table.rows for e in table.entries[row].values() if e.comparison]
    is_about_methods = any(c.is_about_methods for c in comparisons)
    models = "" if is_about_methods else f" of these trained models (fewer than {MIN_SEEDS} seeds)"
    return f"Differences{models} with 95 % intervals and p-values"


def _metrics_sentence(table: ResultTable) -> str:
    return f"Metrics: {table.metric_details}." if table.metric_details else ""


def _caveats_sentence(table: ResultTable) -> str:
    return f"**Compare with care.** {' '.join(table.caveats)}" if table.caveats else ""


def claim_lines(table: ResultTable) -> list[str]:
    """Describe the verdict on each claim whose cells were run."""
    return [f"{VERDICT_MARKS[result.verdict]} {result.describe()}" for result in table.claims if result.compared]


def render_latex(table: ResultTable, label: str, legend: str = "") -> str:
    """Render a booktabs table. The legend is Markdown, and is printed below the numbers."""
    headings = [_escape_latex(c) + (r"$^{\circ}$" if table.is_without_examples(c) else "") for c in table.columns]
    lines = [
        r"\begin{table}[t]",
        r"  \centering",
        f"  \\caption{{{_escape_latex(table.title)}}}",
        f"  \\label{{tab:{label}}}",
        f"  \\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"    \toprule",
        f"    {' & '.join(['method', *headings])} \\\\",
        r"    \midrule",
    ]
    lines += [f"    {_latex_row(table, row)}" for row in table.rows]
    if table.bounds:
        lines += [r"    \midrule", *(f"    {_latex_row(table, row)}" for row in table.bounds)]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    legend = _join([legend, _caveats_sentence(table)]).replace("\n\n", " ")
    if legend:
        lines += [r"  \par\medskip", f"  \\parbox{{\\linewidth}}{{\\footnotesize {_latex_from_markdown(legend)}}}"]
    return "\n".join([*lines, r"\end{table}", ""])


def _markdown_cell(entry: TableEntry) -> str:
    if entry.mean is None:
        text = "–"
    else:
        std = f" ± {format_number(entry.std, entry.mean)}" if entry.std is not None else ""
        text = format_number(entry.mean) + std
        text = f"**{text}**" if entry.is_best else f"{text} ≈" if entry.is_tied else text
        text = use_minus_signs(text + _render_interval(entry))
        text += entry.partial_mark + (" ‡" if entry.is_outdated else "")
    return f"{text} ({entry.published:g})" if entry.published is not None else text


def _render_interval(entry: TableEntry) -> str:
    if entry.interval is None:
        return ""
    low, high = (format_number(end, entry.mean) for end in entry.interval)
    return f" [{low}, {high}]"


def _latex_row(table: ResultTable, row: str) -> str:
    cells = [_latex_cell(table.entries[row][c]) for c in table.columns]
    name = rf"\textit{{{_escape_latex(row)}}}" if row in table.bounds else _escape_latex(row)
    return " & ".join([name, *cells]) + r" \\"


def _latex_cell(entry: TableEntry) -> str:
    if entry.mean is None:
        text = "--"
    else:
        std = rf" \pm {format_number(entry.std, entry.mean)}" if entry.std is not None else ""
        text = format_number(entry.mean).replace(",", "{,}") + std + (r"^{\dagger}" if entry.is_partial else "")
        text += r"^{\ddagger}" if entry.is_outdated and not entry.is_partial else ""
        text = rf"$\mathbf{{{text}}}$" if entry.is_best else rf"${text}^{{\approx}}$" if entry.is_tied else f"${text}$"
        text += _render_interval(entry)
    return f"{text} ({entry.published:g})" if entry.published is not None else text


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|")


_LATEX_CHARACTERS = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "×": r"$\times$",
    "ε": r"$\varepsilon$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "°": r"$^{\circ}$",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "–": "--",
    "~": r"\textasciitilde{}",
}


_LATEX_MARKUP = {r"\*\*(.+?)\*\*": r"\\textbf{\1}", r"\*(.+?)\*": r"\\textit{\1}", r"`(.+?)`": r"\\texttt{\1}"}


def _latex_from_markdown(text: str) -> str:
    """Return a sentence with bold, italic and code as LaTeX."""
    text = _escape_latex(text)
    for pattern, replacement in _LATEX_MARKUP.items():
        text = re.sub(pattern, replacement, text)
    return text


def _escape_latex(text: str) -> str:
    return "".join(_LATEX_CHARACTERS.get(c, c) for c in text)
