"""The Python API."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.codecs import Channel, CodecChain, int8, top_k
from motet.core.errors import ConfigError, MotetError, RunError
from motet.datasets.corpus import Corpus
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.solver import Solver

Points = list[tuple[float, float]]


def test_a_global_model_is_trained_and_exported(tmp_path: Path) -> None:
    corpus = motet.load("toy-classification", limit=240, test_limit=60)
    clients = motet.federation(corpus, model="tiny", max_tokens=24, partition="label", clients=4, alpha=5.0)
    result = motet.run(clients, motet.fedopt(motet.Solver(lr=0.003, batch=8, epochs=2)), rounds=6, workers=0)
    assert result.best["accuracy"] > 0.6
    assert len(result.metrics.curve("accuracy")) == 6
    motet.export(clients, result, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_personal_models_are_trained_with_codecs_and_exported(tmp_path: Path) -> None:
    corpus = motet.load("toy-classification", limit=160, test_limit=60)
    clients = motet.federation(
        corpus, model="tiny", max_tokens=24, partition="label", clients=3, alpha=0.5, freeze=["embeddings"]
    )
    algorithm = motet.fedsplit(motet.Solver(lr=0.003, batch=8), c=1)
    channel = Channel(up=CodecChain((top_k(0.2), int8())))
    result = motet.run(clients, algorithm, rounds=2, workers=0, channel=channel)
    assert result.traffic.payload_up < 0.3 * result.traffic.payload_down
    assert result.local_test["accuracy"] == pytest.approx(result.client_spread["mean"])
    assert repr(result).startswith(f"RunResult(rounds=2, local_test_accuracy={result.local_test['accuracy']:.4f}")
    assert f"global_test_accuracy={result.final['accuracy']:.4f}" in repr(result)
    for client in clients.clients:
        motet.export(clients, result, tmp_path / client, client=client)
    models = {(tmp_path / client / "model.safetensors").read_bytes() for client in clients.clients}
    assert len(models) == 3


def test_the_clients_of_the_data_are_the_default(tmp_path: Path) -> None:
    path = tmp_path / "letters.csv"
    rows = [f"letter {i},{'ab'[i % 2]},{('ann', 'bo', 'cy')[i % 3]}" for i in range(36)]
    path.write_text("\n".join(["body,topic,author", *rows]))
    names = {"text": "body", "label": "topic", "client": "author"}
    corpus = motet.load(path=path, **names)
    from_python = motet.federation(corpus, model="tiny", max_tokens=8)
    settings = {"data": {"path": str(path), **names}, "model": {"name": "tiny", "max_tokens": 8}}
    from_recipe = build_federation(RunConfig.from_settings("letters", settings))
    for federation in (from_python, from_recipe):
        assert list(federation.clients) == ["ann", "bo", "cy"]
        assert federation.partition.train.rows.tolist() == from_python.partition.train.rows.tolist()
    uniform = motet.federation(corpus, model="tiny", max_tokens=8, clients=2)
    assert list(uniform.clients) == ["client-0", "client-1"]
    without_clients = motet.load(path=path, text="body", label="topic")
    assert len(motet.federation(without_clients, model="tiny", max_tokens=8).clients) == 10


def make_rows(count: int = 40) -> dict[str, list[str]]:
    words = ("bad poor", "good fine")
    return {
        "text": [f"{words[k % 2]} letter {k}" for k in range(count)],
        "label": [("no", "yes")[k % 2] for k in range(count)],
    }


def test_tables_in_memory_are_corpora_and_have_the_split_of_a_file(tmp_path: Path) -> None:
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    frame = pandas.DataFrame(make_rows())
    frame.to_csv(tmp_path / "letters.csv", index=False)
    expected = motet.load(path=tmp_path / "letters.csv")
    for table in (frame, datasets.Dataset.from_dict(make_rows())):
        corpus = motet.load(table)
        assert list(corpus.columns["text"]) == list(expected.columns["text"])
        assert corpus.num_train == expected.num_train == 32
    assert motet.load(frame.set_index("label")).task == "classification", "the index is a column, too"
    with pytest.raises(MotetError, match=r"the data is a list; expected .* DataFrame"):
        motet.load([1, 2])


def test_everything_that_a_recipe_says_can_be_said_in_python(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = {"name": "tiny", "max_tokens": 16}
    clients = motet.federation(pandas.DataFrame(make_rows()), model=model, clients=3)
    options = {"workers": 0, "solver": {"lr": 0.05, "batch": 8}}
    result = motet.run(clients, "fedavg", rounds=2, codec="float16", out=tmp_path / "run", **options)
    by_object = motet.run(
        clients, motet.fedavg(motet.Solver(optimizer="sgd", lr=0.05, batch=8)), rounds=2, workers=0, codec="float16"
    )
    assert result.final == by_object.final
    rows = result.to_pandas()
    assert {"round", "who", "split", "name", "value"} <= set(rows.columns)
    assert list(result.clients_to_pandas()["client"]) == ["client-0", "client-1", "client-2"]
    again = motet.run(clients, "fedavg", rounds=2, codec="float16", out=tmp_path / "run", resume=True, **options)
    assert again.final == result.final
    assert "letter" not in f"{clients!r} {clients.corpus!r} {clients.features!r} {clients.groups!r} {result!r}"
    secure = motet.run(clients, {"type": "fedprox", "mu": 0.1}, rounds=1, secure="secagg", **options)
    assert secure.rounds == 1
    sampled = motet.run(
        clients, "fedavg", rounds=1, cohort={"size": 2}, network={"up": 10}, attack="label_flip", **options
    )
    assert sampled.traffic.network_seconds > 0


def test_a_run_resumes_only_with_the_data_clients_model_seed_and_algorithm_that_it_began_with(tmp_path: Path) -> None:
    def make_corpus(count: int = 40) -> Corpus:
        return Corpus("letters", "classification", make_rows(count), 32)

    def resume(
        corpus: Any = make_corpus(), lr: float = 0.1, resume: bool = True, clients: int = 3, **options: Any
    ) -> Any:
        options = {"model": {"name": "tiny", "max_tokens": 16}, **options}
        federation = motet.federation(corpus, clients=clients, **options)
        out = tmp_path / "run"
        return motet.run(federation, motet.fedavg(Solver(lr=lr)), rounds=1, workers=0, out=out, resume=resume).final

    expected = resume(resume=False)
    changes: list[tuple[str, dict[str, Any]]] = [
        ("other data", {"corpus": make_corpus(44)}),
        ("other clients", {"clients": 2}),
        ("other model", {"model": {"name": "tiny", "max_tokens": 16, "freeze": ["embeddings"]}}),
        ("other clients, model, seed", {"seed": 7}),
        ("other settings", {"lr": 0.2}),
    ]
    for message, change in changes:
        with pytest.raises(RunError, match=message):
            resume(**change)
    assert resume() == expected


def test_a_recipe_does_not_resume_with_a_file_that_has_changed(tmp_path: Path) -> None:
    rows, letters = make_rows(), tmp_path / "letters.csv"
    lines = [",".join(row) for row in zip(*rows.values(), strict=True)]
    letters.write_text("\n".join([",".join(rows), *lines]))
    recipe = {"data": {"path": str(letters)}, "model": {"name": "tiny", "max_tokens": 16}, "rounds": 1}
    options = {"partition": {"type": "uniform", "clients": 3}, "transport": {"workers": 0}}
    motet.run_recipe(recipe, out=tmp_path / "run", **options)
    (tmp_path / "run" / "summary.json").unlink()  # as if the run had been killed before its end
    letters.write_text(letters.read_text() + "\n" + lines[0])
    with pytest.raises(RunError, match=r"other data, .* restore the files as they were when the run started"):
        motet.run_recipe("ignored", out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fedagv"}, "Did you mean 'fedavg'"),
        ({"algorithm": "fedavg", "model": "tiny"}, "'model' belongs to the federation"),
        (
            {"algorithm": "fedavg", "learning_rate": 1},
            r"unknown argument 'learning_rate'. Did you mean solver={'lr': …}",
        ),
        ({"algorithm": "fedavg", "num_clients": 1}, r"'num_clients'. It belongs to the federation"),
        ({"algorithm": "fedavg", "transport": "grpc"}, "a federation in memory is simulated in this process"),
        ({"algorithm": "fedavg", "track": ["tensorboard"]}, "track needs a folder"),
        ({"algorithm": "fedavg", "resume": True}, "resume needs a folder"),
    ],
)
def test_mistakes_in_python_are_explained(options: dict[str, Any], message: str) -> None:
    clients = motet.federation(motet.load("toy-classification", limit=40, test_limit=20), model="tiny", clients=2)
    with pytest.raises(MotetError, match=message):
        motet.run(clients, options.pop("algorithm"), rounds=1, **options)


@pytest.mark.parametrize("maker", ["pandas.DataFrame", "polars.DataFrame", "datasets.Dataset.from_dict"])
@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"body": ["a"], "topic": ["b"]}, {}, "its columns are body, topic.* for example text=…, label=…"),
        ({"body": ["a"], "label": ["b"]}, {"text": "boody"}, "text names column 'boody'; it has body, label.* 'body'"),
        ({"text": [f"t{k}" for k in range(80)], "label": [f"l{k}" for k in range(80)]}, {}, r"accept=\['labels'\]"),
        ({"text": ["a"], "label": ["b"]}, {"txt": "text"}, "load: unknown option 'txt'.*Did you mean 'text'"),
    ],
)
def test_errors_about_a_table_speak_of_the_table(
    columns: dict[str, Any], options: dict[str, str], message: str, maker: str
) -> None:
    package, _, path = maker.partition(".")
    make = operator.attrgetter(path)(pytest.importorskip(package))
    with pytest.raises(MotetError, match=message) as error:
        motet.load(make(columns), **options)
    assert not re.search(r"parquet|arrow|data\.|/tmp", str(error.value)), str(error.value)


@functools.cache
def small() -> Federation:
    return motet.federation(motet.load("toy-classification", limit=30, test_limit=20), model="tiny", clients=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: motet.load(small()), "the data is a Federation; expected the name of a corpus"),
        (lambda: motet.federation("toy-classification", model=None), "model is None; expected a name"),  # type: ignore[arg-type]
        (lambda: motet.federation("toy-classification", model="tiny", dev_share=2), "dev_share is 2; expected a share"),
        (lambda: motet.federation("toy-classification", seed=[1, 2]), "seed is .1, 2.; expected a whole number"),  # type: ignore[arg-type]
        (lambda: motet.load("toy-classification", seed="x"), "seed is 'x'; expected a whole number"),  # type: ignore[arg-type]
        (lambda: motet.federation("toy-classification", partition="dirichlet"), "Did you mean 'label'"),
        (
            lambda: motet.federation("toy-classification", model="tiny", lora=4),
            r"federation: .*'lora'. Did you mean model={'name': 'tiny', 'adapter': {'rank': 4}}\?",
        ),
        (
            lambda: motet.federation("toy-classification", model="tiny", dtype="bfloat16"),
            "Did you mean model={'name': 'tiny', 'dtype': 'bfloat16'}",
        ),
        (lambda: motet.federation("toy-classification", model="tiny", max_token=9), r"Did you mean max_tokens=9\?"),
        (
            lambda: motet.federation("toy-classification", beta=1),
            "partition auto: unknown option 'beta'; these types have it: quantity",
        ),
        (
            lambda: motet.run(small(), "fedavg", rounds=1, privacy={"noise": 1.0}),
            "privacy none: unknown option 'noise'; these types have it: central",
        ),
        (lambda: motet.fedavg({"lr": 1.0}), r"expected an object: motet.Solver\(lr=…\)"),  # type: ignore[arg-type]
        (lambda: motet.fedprox(moo=1.0), "unknown option 'moo'; it takes solver, mu"),  # type: ignore[call-arg]
        (lambda: motet.fedprox(mu=[1.0]), r"algorithm.mu is \[1.0\]; expected a number"),  # type: ignore[arg-type]
        (lambda: motet.adafd(exchange="sums"), "algorithm.exchange is 'sums'; it must be one of .* Did you mean 'sum'"),  # type: ignore[arg-type]
        (lambda: motet.fedopt(server="adam"), "algorithm.server is 'adam'; expected a ServerOptimizer of motet.optim"),  # type: ignore[arg-type]
        (lambda: motet.run(small(), "fedavg", rounds=1, callback=print), "a subclass of motet.RunCallback"),  # type: ignore[arg-type]
        (
            lambda: motet.run(small(), "fedavg", rounds=1, lora=4),
            r"motet.federation\(…, model={'name': 'tiny', 'adapter': {'rank': …}}\)",
        ),
        (lambda: motet.run(small().corpus, "fedavg", rounds=1), r"is a Corpus; .* motet.federation"),  # type: ignore[arg-type]
        (lambda: motet.run("fedavg", small(), rounds=1), "are str and Federation; the federation comes first"),  # type: ignore[arg-type]
        (lambda: motet.run({"type": "fedavg"}, small(), rounds=1), "the federation comes first"),  # type: ignore[arg-type]
        (lambda: motet.run(motet.fedavg, small(), rounds=1), "the federation comes first"),  # type: ignore[arg-type]
        (lambda: motet.run(small(), "fedavg", rounds=1, privacy={"typ": "local"}), r"it takes type\. .*mean 'type'"),
        (lambda: motet.run(small(), motet.fedavg, rounds=1), r"call it, fedavg\(\), or pass its name"),  # type: ignore[arg-type]
        (lambda: motet.run(small(), "fedavg", rounds=1, evaluation=2), "evaluation is 2; expected options"),
        (lambda: motet.export(small(), None, __file__), "is a file; expected a folder"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_explained(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(MotetError, match=message):
        call()


def test_a_table_with_numbers_as_labels_may_be_for_regression() -> None:
    rows = {"text": [f"text number {k}" for k in range(60)], "label": [k / 7 for k in range(60)]}
    frame = pytest.importorskip("pandas").DataFrame(rows)
    with pytest.raises(MotetError, match="or for numbers set task=regression"):
        motet.load(frame)
    assert motet.load(frame, task="regression").column("score")[0] == 0.0
    clients = motet.federation(frame, task="regression", model="tiny", clients=2, freeze="embeddings")
    assert clients.corpus.task == "regression"
    motet.run(clients, "fedavg", rounds=1, workers=0)


def test_sections_may_be_objects_and_dictionaries() -> None:
    clients = motet.federation(small().corpus, model="tiny", partition={"type": "label", "alpha": 9.0}, clients=2)
    assert len(clients.clients) == 2
    first = motet.run(clients, "fedavg", rounds=1, workers=0, solver=Solver(lr=0.01, batch=8))
    second = motet.run(clients, "fedavg", rounds=1, workers=0, solver={"lr": 0.01, "batch": 8})
    assert first.final == second.final


def test_patience_stops_a_run_early() -> None:
    clients = motet.federation(small().corpus, model="tiny", clients=2, dev_share=0.2)
    result = motet.run(clients, "fedavg", rounds=9, workers=0, patience=1, solver={"lr": 1e-12})
    assert result.rounds == 2  # the score of the first round is not improved


def test_a_table_that_arrow_cannot_hold_is_explained() -> None:
    with pytest.raises(MotetError, match=r"the DataFrame cannot be converted to Arrow .*values of one type"):
        motet.load(pytest.importorskip("pandas").DataFrame({"text": ["a", 1], "label": ["x", "y"]}))


def test_results_are_frames_and_figures() -> None:
    corpus = motet.load("toy-classification", limit=80, test_limit=40)
    clients = motet.federation(corpus, model="tiny", max_tokens=16, clients=2, dev_share=0.1)
    options: Any = {"rounds": 2, "workers": 0, "evaluation": {"initial": True}}
    result = motet.run(clients, "fedavg", **options)
    confusion = result.confusion_to_pandas()
    assert confusion.to_numpy().sum() == 40
    assert confusion.to_numpy().trace() == round(40 * result.final["accuracy"])
    labels = result.labels_to_pandas()
    assert list(labels["label"]) == list(confusion.index) == list(clients.groups[0].task.labels)
    assert labels["f1"].mean() == pytest.approx(result.final["f1_macro"])
    axes = result.plot("accuracy", "loss").axes[0]
    assert {tuple(line.get_xdata()) for line in axes.lines} == {(0, 1, 2), (1, 2)}
    assert len(result.plot_clients().axes[0].patches) == 2
    assert len(result.plot_confusion().axes[0].texts) == 16
    pytest.importorskip("plotly")
    figures = [plot(engine="plotly") for plot in (result.plot, result.plot_clients, result.plot_confusion)]
    assert [figure.data[0].type for figure in figures] == ["scatter", "bar", "heatmap"]
    with pytest.raises(ConfigError, match="there is no curve of f2; the metrics are accuracy"):
        result.plot("f2")
    personal = motet.run(clients, "isolated", **{**options, "rounds": 1})
    assert personal.confusion_to_pandas().to_numpy().sum() == 40


def test_a_recipe_runs_from_python(tmp_path: Path) -> None:
    recipe = {
        "data": {"name": "toy-classification", "limit": 60, "test_limit": 20},
        "model": {"name": "tiny", "max_tokens": 16},
        "partition": {"clients": 2},
        "baselines": {"isolated": {"algorithm": "isolated"}},
        "transport": {"workers": 0},
    }
    finished = motet.run_recipe(recipe, rounds=1, out=tmp_path / "run", task={"class_weights": "balanced"})
    assert set(finished.to_pandas()["method"]) == {"fedavg", "isolated"}
    assert "fedavg: accuracy" in repr(finished)
    labels = json.loads((tmp_path / "run" / "labels.json").read_text())[""]
    assert sum(map(sum, labels["counts"])) == 20
    assert labels["scores"] == finished.summary["labels"][""]
    again = motet.run_recipe("ignored", out=tmp_path / "run", resume=True)
    assert again.summary["final"] == finished.summary["final"]


def test_the_model_of_a_custom_trainer_is_not_exported() -> None:
    with pytest.raises(MotetError, match=r"custom trainer.*save the model yourself"):
        motet.export(object(), object(), "model")  # type: ignore[arg-type]
