"""What a reader must know before comparing the rows of a table: other corpora or budgets, and rounds chosen on the test set.

A suite can give one method more rounds, more texts or a larger model than the others. Sometimes that is the question, and
sometimes it is a mistake. A table says so, whatever its author had in mind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from motet.benchmark.cells import Cell
from motet.benchmark.column_significance import have_one_corpus
from motet.benchmark.run_store import RunStore
from motet.benchmark.table_metrics import TableMetric
from motet.experiment.commands.unequal_settings import join_settings, list_unequal_settings
from motet.experiment.loop.example_scores import read_example_scores
from motet.experiment.recipe.flat_settings import flatten_settings
from motet.report.number_text import count_of
from motet.report.significance import MIN_EXAMPLES

_KINDS_WITH_A_ROUND = ("best", "dev-best", "rounds to", "MB to", "virtual seconds to")


def find_caveats(
    cells: Sequence[Cell], methods: Sequence[str], metrics: Mapping[str, Sequence[TableMetric]], store: RunStore
) -> tuple[str, ...]:
    """Return sentences about a table. `metrics` are those of each column."""
    columns_by_caveat: dict[str, list[str]] = {}
    for column in metrics:
        here = [cell for cell in cells if cell.column == column and cell.row in methods]
        for caveat in _find_in_column(here, metrics[column], store):
            columns_by_caveat.setdefault(caveat, []).append(column)
    return tuple(_name_columns(caveat, names, len(metrics)) for caveat, names in columns_by_caveat.items())


def _find_in_column(cells: Sequence[Cell], metrics: Sequence[TableMetric], store: RunStore) -> Iterator[str]:
    if not have_one_corpus((cell.run.name for cell in cells), store):
        yield "The rows have other corpora, so their scores are not compared."
    also = ["evaluation.every"] if any(m.spec.kind in _KINDS_WITH_A_ROUND for m in metrics) else []
    configs = {cell.row: cell.run.config for cell in cells}
    settings = {row: flatten_settings(config.to_dict()) for row, config in configs.items()}
    if unequal := list_unequal_settings(settings, *also):
        yield f"The rows differ in more than the method: {join_settings(unequal)}."
    if any(metric.spec.kind == "best" for metric in metrics):
        yield (
            "The round was chosen on the test set, so the numbers are too high, most of all for methods that vary from "
            "round to round or are evaluated often."
        )
    count = next(filter(None, (_count_test_examples(cell.run.name, store) for cell in cells)), MIN_EXAMPLES)
    if count < MIN_EXAMPLES:
        yield f"The test set has {count_of(count, 'example')}: with fewer than {MIN_EXAMPLES}, p-values are rough."


def _count_test_examples(run: str, store: RunStore) -> int:
    """Return the size of the global test set, or of all test sets of clients; 0 if it is not known."""
    scores = read_example_scores(store.run_folder(run))
    return len(scores[""]) if "" in scores else sum(map(len, scores.values()))


def _name_columns(caveat: str, names: Sequence[str], count: int) -> str:
    return caveat if len(names) == count else f"{', '.join(names)}: {caveat[0].lower()}{caveat[1:]}"
