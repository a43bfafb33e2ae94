"""The command motet tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.cli.app import RESULTS, Device, Recipe, Settings, app, handle_errors
from motet.cli.terminal import create_console, echo
from motet.report.number_text import count_of

if TYPE_CHECKING:
    from motet.benchmark.cells import BenchmarkRun
    from motet.benchmark.run_store import RunStore

SearchKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--search",
        help="A setting and its values, e.g. solver.lr=1e-4,1e-3 or a range solver.lr=1e-4..1e-2; "
        "METHOD:key=… for one method. Repeat it for several settings.",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="Algorithm to tune. Repeat it for several.", show_default="the recipe's"),
]
Trials = Annotated[
    int | None, typer.Option(min=1, help="Trials of each method, drawn from the grid.", show_default="the whole grid")
]
Seeds = Annotated[int, typer.Option(min=1, help="Seeds of each trial. Trials are compared by the mean.")]
SearchSeed = Annotated[int, typer.Option(help="Random seed with which trials are drawn.")]
Out = Annotated[Path | None, typer.Option(help="Output folder.", show_default="runs/tune/RECIPE")]


@app.command(rich_help_panel=RESULTS)
@handle_errors
def tune(
    recipe: Recipe,
    settings: Settings = None,
    search: SearchKeys = None,
    method: Methods = None,
    trials: Trials = None,
    seeds: Seeds = 1,
    seed: SearchSeed = 0,
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Choose settings on the development set, with the same number of trials for every method. Finished trials are kept."""
    from motet.benchmark.run_store import RunStore
    from motet.benchmark.tuning import Search, choose, parse_methods, render_choices, write_choices
    from motet.experiment.recipe.recipe_files import build_recipe, parse_overrides

    changes = parse_overrides(settings or [])
    methods = parse_methods(method or [], search or [], build_recipe(recipe, changes).algorithm.type)
    plan = Search(recipe, changes, methods, trials=trials, seeds=seeds, seed=seed)
    all_trials = list(plan.runs(device))
    folder = out or Path("runs") / "tune" / Path(recipe).stem
    store = RunStore(folder)
    budget = count_of(plan.budget, "trial")
    echo(f"{count_of(len(methods), 'method')}, {budget}{' each' if len(methods) > 1 else ''}.")
    _run_trials({run.name: run for trial in all_trials for run in trial.runs}, store)
    choices = choose(plan, all_trials, store)
    write_choices(folder, choices)
    echo(render_choices(choices))
    echo(f"Results: {folder}/tuning.md and tuning.json. The trials were evaluated on the development set alone.")


def _run_trials(runs: dict[str, BenchmarkRun], store: RunStore) -> None:

    from motet.benchmark.cells import check_runs
    from motet.benchmark.scheduler import run_benchmark
    from motet.benchmark.shared_resources import SharedResources
    from motet.benchmark.time_estimate import estimate_time
    from motet.report.benchmark_progress import create_benchmark_progress

    check_runs(runs)
    pending = {name: run for name, run in runs.items() if not store.is_settled(name)}
    echo(f"{len(runs) - len(pending)} of {count_of(len(runs), 'run')} done.")
    if pending:
        with SharedResources() as resources:
            estimate = estimate_time(pending, resources, jobs=1)
            run_benchmark(runs, store, resources, estimate, create_benchmark_progress(create_console()))
