"""The Python API: load a corpus, build a federation, run an algorithm, export a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motet.codecs.chain import Channel
from motet.core.errors import ConfigError
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.data_frames import load_table
from motet.datasets.inspection.check_corpus import check_corpus
from motet.datasets.load_corpus import DataConfig, load_corpus
from motet.datasets.python_errors import explain_in_python
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.build.run_plan import AnyFederation
from motet.experiment.commands.model_export import save_model
from motet.experiment.commands.python_arguments import check_federation_options
from motet.experiment.commands.python_run import (
    build_run_config,
    build_run_plan,
    check_run_arguments,
    execute_in_process,
    open_run_folder,
)
from motet.experiment.commands.recipe_runner import FinishedRun
from motet.experiment.commands.recipe_runner import run_recipe as run_config
from motet.experiment.commands.run_folder import create_new_folder, load_config, require_no_file
from motet.experiment.loop.run_result import RunResult
from motet.experiment.recipe.config_parsing import convert_value, instantiate
from motet.experiment.recipe.recipe_files import build_recipe, merge_settings
from motet.experiment.recipe.run_config import ComponentConfig
from motet.models.model_config import ModelConfig
from motet.report.profile_files import write_profile
from motet.report.profiler import Profiler, activate
from motet.report.run_callback import RunCallback
from motet.transport.emulated_network import Network


def load(
    data: Any = None,
    *,
    path: str | Path | None = None,
    text: str | None = None,
    label: str | None = None,
    client: str | None = None,
    task: str = "auto",
    test: str | Path | None = None,
    limit: int | None = None,
    test_limit: int | None = None,
    accept: Sequence[str] = (),
    seed: int = 42,
    **options: Any,
) -> Corpus:
    """Load a corpus by name, from a file, or from a pandas or polars DataFrame or a Hugging Face Dataset.

    `text`, `label` and `client` name the columns, and `client` makes each owner of rows a client. The `task` is
    that of the columns. `test` is a file with the test rows; without it, a fifth of the rows (`test_share`) is held
    out. `limit` and `test_limit` draw so many rows. What is almost certainly a mistake in your own data raises an error,
    unless `accept` names it: accept=["leak"]. Other options are those of the recipe's `data` section.

        motet.load("movie-reviews", limit=1600)
        motet.load(path="letters.csv", text="body", label="topic", client="author")
        motet.load(frame, text="body", label="stars", task="regression")
    """
    is_table = data is not None and not isinstance(data, str)
    named = {"name": None if is_table else data, "path": path, "test": test}
    named |= {"text": text, "label": label, "client": client, "limit": limit, "test_limit": test_limit}
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in named.items() if value is not None
    }
    with explain_in_python():
        config = instantiate(DataConfig, {**given, "accept": accept, **options}, "load")
        root, goal = Seed(convert_value(seed, int, "seed")), None if task == "auto" else task
        corpus = load_table(data, config, root, goal) if is_table else load_corpus(config, root, goal)
        check_corpus(corpus, config)
    return corpus


def federation(
    corpus: Any,
    *,
    model: str | Mapping[str, Any] = "minilm",
    max_tokens: int = 128,
    freeze: str | Sequence[str] = (),
    partition: str | Mapping[str, Any] = "auto",
    task: str | Mapping[str, Any] = "auto",
    seed: int = 42,
    public_share: float = 0.0,
    dev_share: float = 0.0,
    **options: Any,
) -> Federation:
    """Divide a corpus among clients. It also takes the options of the partition (clients, alpha, beta, column).

        motet.federation(corpus, model="minilm", partition="label", clients=10, alpha=1.0)

    Without a partition, the clients are those of the corpus, or ten uniform ones if it has no client column. The corpus
    may also be a name or a table. The model is a name, or the `model` section of a recipe: {"name": "minilm", "adapter":
    {"rank": 8}}. The task is that of the corpus, or the `task` section: {"type": "classification", "class_weights":
    "balanced"}. `public_share` of the training rows become public texts for distillation, and `dev_share` are held out
    to select the best round (`RunResult.best_dev_round`).
    """
    if not isinstance(model, str | Mapping):
        raise ConfigError(f"federation: model is {model!r}; expected a name, such as 'minilm', or {{'name': …}}.")
    section = {"name": model} if isinstance(model, str) else dict(model)
    division = ComponentConfig.from_settings(partition, "auto", "partition")
    check_federation_options(options, division.type, section.get("name", "minilm"))
    DataConfig(public_share=public_share, dev_share=dev_share)  # checks them
    goal = ComponentConfig.from_settings(task, "auto", "task")
    return federate_corpus(
        instantiate(ModelConfig, {"max_tokens": max_tokens, "freeze": freeze, **section}, "model"),
        corpus if isinstance(corpus, Corpus) else load(corpus, task=goal.type, seed=seed),
        ComponentConfig(division.type, {**division.options, **options}),
        Seed(convert_value(seed, int, "seed")),
        task=goal,
        public_share=public_share,
        dev_share=dev_share,
    )


def run(
    federation: AnyFederation,
    algorithm: Algorithm | str | Mapping[str, Any],
    *,
    rounds: int,
    cohort: int | Mapping[str, Any] | None = None,
    evaluate_every: int = 1,
    patience: int | None = None,
    device: str = "auto",
    workers: int | None = None,
    callback: RunCallback | None = None,
    channel: Channel | None = None,
    network: Network | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> RunResult:
    """Run an algorithm over a federation, in this process and its workers.

        result = motet.run(federation, motet.fedavg(motet.Solver(lr=5e-5)), rounds=10)
        result = motet.run(federation, "fedprox", rounds=10, cohort=5, solver={"lr": 5e-5}, secure="secagg")

    The algorithm is an object, a name, or the `algorithm` section of a recipe: {"type": "fedprox", "mu": 0.1}. `cohort`
    is the number of clients per round (None: all). `patience` stops after so many evaluations without a better score on
    the development set. `channel` sets codecs, and `network` emulates bandwidth and latency. `out` is a folder for
    metrics and checkpoints, from which `resume=True` continues. All other settings are sections of a recipe: solver,
    server, codec, secure, privacy, robust, attack, wait_policy, evaluation, checkpoint, track, precision, transport.
    """
    evaluation = {"every": evaluate_every, "patience": patience}
    sampling = cohort if isinstance(cohort, Mapping) else {"size": cohort}
    sections = {"rounds": rounds, "cohort": sampling, "evaluation": evaluation, "device": device, "network": network}
    sections = merge_settings(sections, settings)
    if workers is not None:
        sections = merge_settings({"transport": "in_process", **sections}, {"transport": {"workers": workers}})
    check_run_arguments(federation, algorithm, callback)
    config = build_run_config(algorithm, sections)
    plan = build_run_plan(config, federation, algorithm, channel)
    folder = None if out is None else Path(out)
    with open_run_folder(config, folder, resume, callback) as tracking_callback:
        return execute_in_process(config, plan, folder, resume, tracking_callback)


def run_recipe(
    recipe: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    callback: RunCallback | None = None,
    **sections: Any,
) -> FinishedRun:
    """Run a recipe with its baselines, like `motet run`: a shipped one by name, a YAML file, or a dictionary.

    Sections override those of the recipe: `run_recipe("quickstart", rounds=4, solver={"lr": 1e-3})`. `out` is the
    folder of the run (None: runs/RECIPE-NUMBER), from which `resume=True` continues.
    """
    if resume:
        if out is None:
            raise ConfigError("run_recipe: resume needs the folder of the run; set out=FOLDER.")
        config = load_config(Path(out))
    else:
        config = build_recipe(recipe, sections)
    folder = create_new_folder(config.recipe) if out is None else Path(out)
    return run_config(config, folder, resume=resume, callback=callback)


@contextmanager
def profile(folder: str | Path | None = None) -> Iterator[Profiler]:
    """Record where the time of the block goes, and write a trace and a picture to a folder.

    `profile.breakdown()` returns the seconds of each part; they sum to `profile.seconds`.
    """
    with activate(Profiler()) as profiler:
        yield profiler
    if folder is not None:
        write_profile(profiler, Path(folder))


def export(federation: Federation, result: RunResult, path: str | Path, *, client: str | None = None) -> None:
    """Save the global model, or one client's model, as a directory that transformers can load."""
    if isinstance(federation, RunResult):
        raise ConfigError("export: the first argument is a RunResult; write motet.export(federation, result, path).")
    require_no_file(Path(path))
    if not isinstance(federation, Federation):
        raise ConfigError(
            "export: this federation has a custom trainer, and Motet does not know how to save its model. Pass the "
            "parameters to your trainer, and save the model yourself: "
            "trainer.set_parameters(result.params.tensors())"
        )
    group = federation.server if client is None else federation.group_for(client)
    save_model(group, result.params if client is None else result.model_for(client), Path(path))
