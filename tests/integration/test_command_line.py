"""The motet command: what it prints, what it writes, and its exit status."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

TOY = ["toy-classification", "rounds=2", "data.limit=80", "data.test_limit=40", "transport.workers=0"]
COMMANDS = (
    *("run", "resume", "check", "list", "export", "report", "compare", "replay", "dashboard", "bench", "tune", "power"),
    *("data", "cache", "partition", "serve", "join", "allow", "status", "policy", "audit", "identities"),
)
Call = Callable[..., tuple[int, str, str]]


def test_a_run_writes_its_results_to_a_folder(motet: Call, tmp_path: Path) -> None:
    status, out, _ = motet("run", *TOY)
    folder = tmp_path / "runs" / "toy-classification-1"
    assert status == 0
    assert "round 2/2" in out
    assert {p.name for p in folder.iterdir()} == {
        "config.yaml", "inspection.json", "metrics.jsonl", "summary.json", "items.npz", "labels.json", "partition.json",
        "curves.png", "traffic.png", "checkpoint", "groups", "model", "version.json",
    }  # fmt: skip
    summary = json.loads((folder / "summary.json").read_text())
    assert {
        "recipe", "algorithm", "task", "model", "dataset", "partition", "clients", "cohort", "rounds", "seed", "final", "best",
        "clients_final", "bytes", "seconds", "examples_per_second", "peak_memory_bytes", "versions",
    } <= set(summary)  # fmt: skip
    assert set(summary["clients_final"]) == {"mean", "std", "worst_decile"}
    assert set(summary["bytes"]) == {"payload_up", "payload_down", "wire_up", "wire_down"}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    keys = {"round", "who", "split", "name", "value", "seconds", "bytes", "bytes_up", "network_seconds"}
    assert all(set(row) == keys for row in rows)
    last = {r["name"]: r["value"] for r in rows if r["round"] == 2 and r["who"] == "server"}
    assert last == summary["final"]
    assert yaml.safe_load((folder / "config.yaml").read_text())["solver"]["lr"] == 0.002
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    size = 4 * summary["clients"] * summary["rounds"]
    assert summary["bytes"]["payload_up"] % size == 0
    status, out, _ = motet("run", *TOY, "--profile")
    assert status == 0
    assert re.search(r"training +│ +[\d.]+ │", out)
    assert {"trace.json", "profile.png"} <= {p.name for p in (tmp_path / "runs" / "toy-classification-2").iterdir()}


def test_a_folder_with_other_files_is_not_overwritten(motet: Call, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "thesis.txt").write_text("years of work")
    status, _, err = motet("run", *TOY, "--out", "there")
    assert status == 2
    assert "'there' is not empty; choose a new folder" in err
    assert "motet resume" not in err, "the folder has no run to resume"
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["thesis.txt"]


def test_baselines_run_on_the_same_data(motet: Call, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "rounds: 2\ndata: {name: toy-classification, limit: 60, test_limit: 30}\n"
        "model: {name: tiny, max_tokens: 24}\npartition: {type: uniform, clients: 3}\nalgorithm: fedopt\n"
        "transport: {workers: 0}\nbaselines:\n  fedavg: {algorithm: fedavg}\n  alone: {algorithm: isolated}\n"
        "  all together: {algorithm: centralized, rounds: 1}\n"
    )
    status, out, _ = motet("run", "r.yaml", "--out", "o")
    assert status == 0
    assert all(name in out for name in ("fedopt", "fedavg", "alone", "all together"))
    baselines = {p.name: json.loads((p / "summary.json").read_text()) for p in (tmp_path / "o" / "baselines").iterdir()}
    main = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert {s["partition"]["digest"] for s in [*baselines.values(), main]} == {main["partition"]["digest"]}
    assert baselines["alone"]["bytes"]["payload_up"] == 0
    assert not (tmp_path / "o" / "baselines" / "alone" / "model").exists()
    assert motet("resume", "o")[0] == 0  # everything is done already


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", "rounds=0"], "rounds is 0; expected at least 1."),
        (["run", "nowhere"], "there is no recipe 'nowhere'"),
        (["run", "here"], "there is no recipe 'here', but a file 'here.yaml'. Run it by the name of the file."),
        (["data", "inspect", "mine.csv", "text=texts"], "expected only data.…, task.…. Did you mean data.text=…?"),
        (["data", "inspect", "mine.csv", "rounds=3"], "expected only data.…, task.…. Remove it."),
        (["run", "quickstrat"], "'quickstrat'. Did you mean 'quickstart'? All 27 names: motet list recipes"),
        (["run", "quickstrat.yaml"], "Did you mean 'quickstart'? Expected the .yaml file of a recipe"),
        (["run", *TOY, "algorithm.type=fedprox", "algorithm.mue=1"], "Did you mean 'mu'?"),
        (["run", *TOY, "model.name=./empty"], "no tokenizer could be loaded from './empty'"),
        (["run", *TOY, "model.freeze=[layers 9]"], "'layers 9' matches nothing in this model"),
        (["run", *TOY, "model.max_tokens=4000"], "has 128 positions. Lower it"),
        (["run", *TOY, "data.name=toy-clasification"], "Did you mean 'toy-classification'?"),
        (
            ["run", *TOY, "data.name=null", "data.path=mine.csv", "data.text=body"],
            "data.text names column 'body'; the file has texts, label",
        ),
        (
            ["run", *TOY, "data.name=null", "data.path=mine.csv"],
            "mine.csv: no task fits its columns label, texts; classification needs text, label",
        ),
        (
            ["run", *TOY, "data.name=null", "data.path=gone.csv"],
            "data.path: 'gone.csv' does not exist: there is no 'gone.csv' in",
        ),
        (["run", *TOY, "data.path=mine.csv"], "is not read from a path"),
        (["run", *TOY, "data.name=mine.csv"], "data.name is 'mine.csv', a file. For your own files, use data.path"),
        (["run", *TOY, "data.name=null", "data.path=holes.csv"], "column 'label' holds ''; expected a label"),
        (["run", *TOY, "algorithm.type=fedprox", "algorithm.mu=-1"], "mu (lam in ditto) is -1"),
        (["run", *TOY, "algorithm.type=ditto", "algorithm.lam=-1"], "mu (lam in ditto) is -1"),
        (["run", *TOY, "algorithm.type=fedsplit", "algorithm.c=6"], "is more than this model's 2 layers"),
        (["run", *TOY, "track=[mlflw]"], "Did you mean 'mlflow'?"),
        (["run", *TOY, "algorithm.type=FedOPT!"], "Did you mean 'fedopt'?"),
        (["run", *TOY, "algorithm.typ=fedavg"], "Did you mean 'type'?"),
        (["run", *TOY, "model.name=tinny"], "Did you mean 'tiny'?"),
        (["run", *TOY, "algorithm.type=adafd"], "public"),
        (["run", *TOY, "partition.clients=5000"], "partition.clients is 5000, but there are 80 training examples"),
        (["run", *TOY, "device=tpu:0"], "device"),
        (["run", *TOY, "transport.type=pigeon"], "transport.type: there is no 'pigeon'"),
        (["run", *TOY, "secure.type=secret"], "secure.type: there is no 'secret'"),
        (["list", "animals"], "there is no 'animals'; there are"),
        (["resume", "empty"], "is not a run: it has no config.yaml"),
        (["export", "empty", "--to", "x"], "is not a run"),
        (["sing"], "No such command 'sing'"),
    ],
)
def test_a_mistake_is_explained_and_ends_with_status_2(
    motet: Call, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine.csv").write_text("texts,label\nhello,a\nthere,b\n")
    (tmp_path / "holes.csv").write_text("text,label\nhello,a\nthere,\n")
    (tmp_path / "here.yaml").write_text("rounds: 1\n")
    before = sorted(tmp_path.rglob("*"))
    status, _, err = motet(*words)
    assert message in err
    assert status == 2
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before, "a rejected configuration leaves no folder behind"


def test_a_bilstm_prints_how_to_load_it(motet: Call, tmp_path: Path) -> None:
    from motet.models.bilstm import BiLSTM

    status, out, _ = motet("run", *TOY, "model.name=bilstm", "model.config={}", "--out", "o")
    assert status == 0
    assert 'motet.models.bilstm.BiLSTM.load("o/model")' in out
    status, out, _ = motet("export", "o", "--to", "m")
    assert status == 0
    assert 'BiLSTM.load("m")' in out
    exported, written = (BiLSTM.load(tmp_path / place).state_dict() for place in ("m", "o/model"))
    assert all(torch.equal(exported[name], written[name]) for name in written)


def test_a_run_may_be_evaluated_on_its_development_set_alone(motet: Call, tmp_path: Path) -> None:
    status, out, _ = motet("run", *TOY, "rounds=1", "evaluation.test=false", "data.dev_share=0.2", "--out", "o")
    best = json.loads((tmp_path / "o" / "summary.json").read_text())["dev_best"]
    assert status == 0
    assert f"{best['dev']['accuracy']:.3f} on dev (round 1)" in out and "nan" not in out
    assert motet("run", *TOY, "evaluation.test=false", "--out", "p")[2].startswith(
        "motet: evaluation.test is false, but"
    )


def test_an_export_overwrites_nothing(motet: Call, tmp_path: Path) -> None:
    assert motet("run", *TOY, "--out", "o")[0] == 0
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.txt").write_text("years of work")
    status, _, err = motet("export", "o", "--to", "m")
    assert status == 2
    assert "'m' is not empty" in err
    status, _, err = motet("run", *TOY, "--out", "o")
    assert status == 2
    assert "motet resume o" in err


def test_a_run_is_used_from_any_folder(motet: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of its recipe are those of the folder in which it was started."""
    texts = ("a good film", "a bad film", "good acting", "bad acting")
    rows = [f"{texts[i % 4]} {i},{'no' if i % 2 else 'yes'}" for i in range(40)]
    (tmp_path / "letters.csv").write_text("\n".join(["text,label", *rows]))
    own = ["data.name=null", "data.path=letters.csv", "data.limit=null", "data.test_limit=null", "partition.clients=2"]
    assert motet("run", *TOY, *own, "rounds=1", "cohort.size=2", "--out", "o")[0] == 0
    folder, elsewhere = tmp_path / "o", tmp_path / "elsewhere"
    summary = json.loads((folder / "summary.json").read_text())
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert motet("export", "../o", "--to", "m") == (0, "Model: m\n", "")
    weights = "model.safetensors"
    assert (elsewhere / "m" / weights).read_bytes() == (folder / "model" / weights).read_bytes()
    assert motet("replay", "../o", "--round", "1", "--client", "client-0")[0] == 0
    (tmp_path / "letters.csv").rename(tmp_path / "moved.csv")  # a model is made of weights, labels and a tokenizer
    assert motet("export", "../o", "--to", "without-data")[0] == 0
    for file in (elsewhere / "m").iterdir():
        assert (elsewhere / "without-data" / file.name).read_bytes() == file.read_bytes()
    (tmp_path / "moved.csv").rename(tmp_path / "letters.csv")
    assert motet("run", "../o/config.yaml", "--out", "again")[0] == 0
    assert (elsewhere / "again" / "model" / weights).read_bytes() == (folder / "model" / weights).read_bytes()
    (folder / "summary.json").unlink()
    status, out, _ = motet("resume", "../o")
    assert (status, "Results: ../o/" in out) == (0, True)
    assert json.loads((folder / "summary.json").read_text())["final"] == summary["final"]
    assert Path.cwd() == elsewhere
    for file in ("summary.json", "metrics.jsonl"):
        (folder / file).unlink()
    shutil.rmtree(folder / "checkpoint")
    assert "Continue it: motet resume ../o" in motet("export", "../o", "--to", "x")[2]
    assert "Continue it: motet resume ../o" in motet("report", "../o")[2]
    (folder / "status.json").write_text("{}")
    serve = f"cd {tmp_path} && motet serve {folder}/config.yaml --resume --out {folder}"
    assert serve in motet("resume", "../o")[2]


def test_a_failed_run_ends_with_status_1_and_keeps_its_checkpoint(motet: Call, tmp_path: Path) -> None:
    status, _, err = motet("run", *TOY, "solver.lr=1e30", "solver.clip=0", "solver.optimizer=sgd", "--out", "o")
    assert status == 1
    assert "motet: client-0, round 1: training gave" in err
    assert "lower solver.lr" in err
    assert (tmp_path / "o" / "checkpoint" / "state").exists()


def test_a_csv_file_can_be_trained_on(motet: Call, tmp_path: Path) -> None:
    rows = "\n".join(
        f"{['red round apple', 'long yellow banana'][i % 2]} number {i},{['apple', 'banana'][i % 2]},p{i % 3}"
        for i in range(60)
    )
    (tmp_path / "fruit.csv").write_text(f"body,kind,who\n{rows}\n")
    (tmp_path / "fruit.yaml").write_text(
        "rounds: 4\ndata: {path: fruit.csv, text: body, label: kind, client: who}\nmodel: {name: tiny, max_tokens: 16}\n"
        "partition: natural\nalgorithm: fedopt\nsolver: {lr: 0.003, batch: 8, epochs: 2}\ntransport: {workers: 0}\n"
    )
    status, _, err = motet("run", "fruit.yaml", "--out", "o")
    assert status == 0, err
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert summary["clients"] == 3
    assert summary["best"]["accuracy"] > 0.9


def test_the_model_loads_as_a_transformers_pipeline(
    motet: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts are cut as in training. The model card says how the model was trained."""
    from transformers import pipeline

    status, output, _ = motet("run", "toy-classification", "rounds=8", "transport.workers=0", "--out", "o")
    assert (status, ', model="o/model", truncation=True)' in output) == (0, True)
    hub = FakeHub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    status, output, _ = motet("export", "o", "--to", "again", "--push", "ward/letters")
    assert (status, "Pushed to https://hub/ward/letters" in output) == (0, True)
    assert hub.uploads == {"ward/letters": Path("again")}
    for folder in ("o/model", "again"):
        classify = pipeline("text-classification", model=str(tmp_path / folder), truncation=True)
        texts = ("the song and a violin melody was on", "a goal by the team of this coach", "goal team coach " * 5000)
        assert [classify(text)[0]["label"] for text in texts] == ["music", "sport", "sport"]
        card = (tmp_path / folder / "README.md").read_text()
        summary = json.loads((tmp_path / "o" / "summary.json").read_text())
        facts = ("data: toy-classification", "rounds: 8", f"| accuracy | {summary['final']['accuracy']:.4f} |")
        facts += (
            f"{classify.tokenizer.model_max_length} tokens",
            "differential privacy: none",
            "motet run o/config.yaml",
        )
        assert all(fact in card for fact in facts), card
        assert yaml.safe_load(card.split("---")[1])["pipeline_tag"] == "text-classification"
    hub.error = OSError("no route to host")
    status, _, err = motet("export", "o", "--to", "third", "--push", "ward/letters")
    assert (status, "no route to host. Expected a repository as USER/NAME" in err) == (1, True)


class FakeHub:
    """A hub that keeps the folders that are uploaded."""

    def __init__(self) -> None:
        self.uploads: dict[str, Path] = {}
        self.error: OSError | None = None

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> str:
        assert private and exist_ok
        return f"https://hub/{name}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        if self.error is not None:
            raise self.error
        self.uploads[repo_id] = folder_path


def test_personal_models_are_exported_per_client(motet: Call, tmp_path: Path) -> None:
    status, output, _ = motet("run", *TOY, "algorithm.type=isolated", "--out", "o")
    assert status == 0
    assert output.index("clients: mean") < output.index("accuracy, global test"), "led by what clients deploy"
    assert json.loads((tmp_path / "o" / "summary.json").read_text())["primary_metric_split"] == "local"
    assert "accuracy on clients' own test examples: +0.0000" in motet("compare", "o", "o")[1]
    status, _, err = motet("export", "o", "--to", "x")
    assert (status, "such as --client client-0" in err) == (2, True)
    for client in ("client-0", "client-3"):
        assert motet("export", "o", "--to", client, "--client", client)[0] == 0
    models = [(tmp_path / c / "model.safetensors").read_bytes() for c in ("client-0", "client-3")]
    assert models[0] != models[1]
    assert "there is no client 'zoe'" in motet("export", "o", "--to", "y", "--client", "zoe")[2]
    assert motet("export", "o", "--to", "everybody", "--all")[0] == 0
    assert (tmp_path / "everybody" / "client-3" / "model.safetensors").read_bytes() == models[1]
    assert len(list((tmp_path / "everybody").iterdir())) == 6
    assert "Use one of them" in motet("export", "o", "--to", "y", "--client", "client-0", "--all")[2]


@pytest.mark.parametrize(
    "settings",
    [
        ["algorithm.type=fedsplit", "algorithm.c=1", "server.type=yogi"],
        ["algorithm.type=ditto"],
        ["algorithm.type=fedbn"],
        ["algorithm.type=percfl"],
        ["algorithm.type=spfl_like"],
        ["algorithm.type=fedavg_st"],
    ],
    ids=lambda s: s[0].partition("=")[2],
)
def test_personal_algorithms_export_models_that_load(motet: Call, tmp_path: Path, settings: list[str]) -> None:
    from transformers import AutoModelForSequenceClassification

    status, _, err = motet("run", *TOY, *settings, "--out", "o")
    assert (status, err) == (0, "")
    assert motet("export", "o", "--to", "x", "--client", "client-1")[0] == 0
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "x").config.num_hidden_layers >= 2
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert 0 <= summary["local_test"]["accuracy"] <= 1
    assert summary["local_test"]["accuracy"] == pytest.approx(summary["clients_final"]["mean"])


def test_a_summary_has_the_traffic_to_reach_a_score(motet: Call, tmp_path: Path) -> None:
    small = [
        "rounds=2",
        "data.limit=80",
        "data.test_limit=40",
        "transport.workers=0",
        "evaluation.target_scores=[0.01, 2]",
    ]
    status, out, err = motet("run", "toy-fedsplit", *small, "--out", "o")
    assert (status, err) == (0, "")
    assert "Virtual time on the emulated network" in out
    assert (tmp_path / "o" / "traffic.png").stat().st_size > 10_000
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    plain = json.loads((tmp_path / "o" / "baselines" / "fedavg" / "summary.json").read_text())
    for cost in (summary, plain):
        total, round_ = cost["bytes"], cost["bytes_a_round"]
        assert (2 * round_["up"], 2 * round_["down"]) == (total["payload_up"], total["payload_down"])
        first = cost["reached"]["local"]["0.01"]
        assert (first["round"], first["payload_up"], first["payload_down"]) == (1, round_["up"], round_["down"])
        assert 0 < first["network_seconds"] < cost["network_seconds"]
        assert cost["reached"]["global"]["2"] is None
    assert summary["bytes"]["payload_up"] < 0.2 * plain["bytes"]["payload_up"]
    assert summary["network_seconds"] < plain["network_seconds"]


def test_parameters_that_an_algorithm_freezes_are_in_the_config(motet: Call, tmp_path: Path) -> None:
    split = ["algorithm.type=fedsplit", "algorithm.c=1"]
    assert motet("run", *TOY, *split, "rounds=1", "--out", "o")[0] == 0
    assert "- embeddings" in (tmp_path / "o" / "config.yaml").read_text()
    trained = [
        re.search(r"([\d,]+) of ([\d,]+) parameters are trained", motet("check", *TOY, *s)[1]) for s in (split, [])
    ]
    assert trained[1] is not None and trained[1][1] == trained[1][2]
    assert trained[0] is not None and trained[0][1] != trained[0][2] == trained[1][2]


@pytest.mark.parametrize("recipe", ["toy-preference", "toy-instruct"])
def test_check_trains_steps_of_every_kind_of_task(motet: Call, recipe: str) -> None:
    status, out, err = motet("check", recipe)
    assert (status, "All checks passed" in out) == (0, True), err


def test_check_does_not_call_texts_truncated_that_are_split_into_several_examples(motet: Call) -> None:
    status, out, _ = motet("check", "toy-lm")
    assert status == 0
    assert "truncated" not in out


def test_check_prints_the_cost_of_a_run(motet: Call) -> None:
    status, out, err = motet("check", *TOY, "cohort.size=100")
    assert status == 0
    assert err == "Training a few steps to estimate memory and time …\n"
    assert "warning: cohort.size is 100, but there are 6 clients; all take part in a round." in out
    for word in ("tokens", "first loss", "bytes per round", "memory", "time", "All checks passed"):
        assert word in out


@pytest.mark.parametrize(
    "kind", ["algorithms", "tasks", "datasets", "models", "partitions", "codecs", "transports", "recipes", "suites"]
)
def test_every_listed_entry_has_a_description(motet: Call, kind: str) -> None:
    status, out, _ = motet("list", kind, "--json")
    entries = json.loads(out)
    assert status == 0
    assert entries
    assert all(len(description) > 10 for description in entries.values())


def test_help_lists_every_command(motet: Call) -> None:
    status, out, _ = motet("--help")
    assert status == 0
    assert all(word in out for word in COMMANDS)


def test_a_bilstm_trains_freezes_and_exports(motet: Call, tmp_path: Path) -> None:
    status, _, err = motet("run", *TOY, "model.name=bilstm", "model.freeze=[embeddings]", "--out", "o")
    assert status == 0, err
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        p.name for p in (tmp_path / "o" / "model").iterdir()
    }


def test_a_folder_without_write_permission_is_reported_in_one_sentence(
    motet: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", deny)
    status, _, err = motet("run", *TOY, "--out", "elsewhere/run")
    assert status == 1
    assert re.match(r"motet: '.*elsewhere.*' cannot be read or written: Permission denied\. Check permissions", err)


def test_the_version_and_the_tables_are_printed(motet: Call) -> None:
    from motet import __version__

    assert motet("--version")[:2] == (0, f"motet {__version__}\n")
    status, output, _ = motet("list")
    assert status == 0
    assert "algorithms" in output and "motet list algorithms" in output and "recipes" in output
