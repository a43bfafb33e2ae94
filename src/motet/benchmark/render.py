"""Tables for people: Markdown for a page, LaTeX for a paper."""

from __future__ import annotations

from collections.abc import Sequence

from motet.benchmark.result_tables import SIGNIFICANCE_LEVEL, ResultTable, TableEntry


def format_number(value: float, like: float | None = None) -> str:
    """Three digits that say something: 58.3, 1,027, 0.26; a deviation has as many decimals as the mean it is `like`."""
    size = abs(value if like is None else like)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def render_legend(tables: Sequence[ResultTable], seeds: Sequence[int]) -> str:
    """What the marks mean."""
    entries = [e for t in tables for row in t.entries.values() for e in row.values()]
    said = [f"mean ± standard deviation over {len(seeds)} seeds" if len(seeds) > 1 else f"one seed ({seeds[0]})"]
    said.append("**bold**: the best method of a column")
    if any(e.p is not None for e in entries):
        said.append(f"≈: not told apart from the best (paired bootstrap over test items, p ≥ {SIGNIFICANCE_LEVEL:g})")
    if any(t.untested(c) for t in tables for c in t.columns):
        said.append("°: not tested, since nothing that is kept of test items gives it")
    if any(e.published is not None for e in entries):
        said.append("in brackets: the paper's number")
    if any(e.partial for e in entries):
        said.append("†: not all seeds, and not tested against rows that have others")
    if any(t.bounds for t in tables):
        said.append("*italic*: bounds, not ranked")
    return "; ".join(said) + "."


def render_markdown(table: ResultTable) -> str:
    heads = [_escaped(c) + (" °" if table.untested(c) else "") for c in table.columns]
    lines = [f"| method | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(table.columns)]
    for row in (*table.rows, *table.bounds):
        name = f"*{row}*" if row in table.bounds else row
        lines.append(f"| {_escaped(name)} | {' | '.join(_cell(table.entries[row][c]) for c in table.columns)} |")
    parts = [f"### {table.title}", "\n".join(lines)]
    if table.note:
        parts.append(table.note)
    if verdicts := claim_lines(table):
        parts.append("\n".join(f"- {line}" for line in verdicts))
    return "\n\n".join(parts) + "\n"


def claim_lines(table: ResultTable) -> list[str]:
    """What the paper claims, and whether it came out."""
    found = []
    for verdict in table.claims:
        if not verdict.places:
            continue
        where = "" if verdict.places == 1 else f" in {verdict.held} of {verdict.places} places"
        against = f": {'; '.join(verdict.against)}" if verdict.against else ""
        found.append(f"{'✓' if verdict.holds else '✗'} {verdict.claim}{where}{against}")
    return found


def render_latex(table: ResultTable, label: str) -> str:
    """A booktabs table."""
    heads = " & ".join(["method", *(_tex(c) + (r"$^{\circ}$" if table.untested(c) else "") for c in table.columns)])
    lines = [
        r"\begin{table}[t]", r"  \centering", f"  \\caption{{{_tex(table.title)}}}", f"  \\label{{tab:{label}}}",
        f"  \\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"    \toprule", f"    {heads} \\\\", r"    \midrule",
    ]  # fmt: skip
    lines += [f"    {_tex_row(table, row)}" for row in table.rows]
    if table.bounds:
        lines += [r"    \midrule", *(f"    {_tex_row(table, row)}" for row in table.bounds)]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _cell(entry: TableEntry) -> str:
    if entry.mean is None:
        said = "–"
    else:
        said = format_number(entry.mean) + (
            f" ± {format_number(entry.deviation, entry.mean)}" if entry.deviation is not None else ""
        )
        said = f"**{said}**" if entry.best else f"{said} ≈" if entry.tied else said
        said += " †" if entry.partial else ""
    return f"{said} ({entry.published:g})" if entry.published is not None else said


def _tex_row(table: ResultTable, row: str) -> str:
    cells = [_tex_cell(table.entries[row][c]) for c in table.columns]
    name = rf"\textit{{{_tex(row)}}}" if row in table.bounds else _tex(row)
    return " & ".join([name, *cells]) + r" \\"


def _tex_cell(entry: TableEntry) -> str:
    if entry.mean is None:
        said = "--"
    else:
        said = format_number(entry.mean).replace(",", "{,}") + (
            rf" \pm {format_number(entry.deviation, entry.mean)}" if entry.deviation is not None else ""
        )
        said += r"^{\dagger}" if entry.partial else ""
        said = rf"$\mathbf{{{said}}}$" if entry.best else rf"${said}^{{\approx}}$" if entry.tied else f"${said}$"
    return f"{said} ({entry.published:g})" if entry.published is not None else said


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "α": r"$\alpha$", "β": r"$\beta$", "→": r"$\to$", "≥": r"$\geq$", "×": r"$\times$", "–": "--", "~": r"\textasciitilde{}",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(c, c) for c in text)
