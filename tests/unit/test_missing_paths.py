"""Wherever a command takes a path, a missing file is named with the folder that was searched and with similar names."""

from __future__ import annotations

from pathlib import Path

import pytest

from motet.cli import app
from motet.missing_paths import describe_missing, is_hub_name, is_path

TOY = ("run", "toy-classification")
DIVISION = ("partition.type=uniform", "partition.clients=2")
JOIN = ("join", "--name", "north", "--server", "127.0.0.1:1", "--data", "reviews.csv")
INIT_SERVER = ("init", "server", "new", "--host", "h", "--silo", "a", "--silo", "b", "--silo", "c")
COMMANDS = [
    *[(name, "revews.csv") for name in ("run", "check", "tune", "serve", "bench")],
    *[(name, "recip.yaml") for name in ("run", "check", "tune", "serve", "bench")],
    *[(name, "folder/recipe") for name in ("run", "bench")],
    (*TOY, "data.name=revews.csv"),
    (*TOY, "data.name=null", "data.path=revews.csv"),
    (*TOY, "data.name=null", "data.path=reviews.csv", "data.test=revews.csv"),
    (*TOY, "data.name=20news", "data.path=./original"),
    (*TOY, "model.name=./modl"),
    (*TOY, "model.name=bert2bert:./modl"),
    (*TOY, "partition.type=file", "partition.path=clints.h5"),
    (*TOY, "network.traces=[revews.csv]"),
    *[(name, "runs/toy-11") for name in ("resume", "chat", "report", "power", "dashboard", "status")],
    ("export", "runs/toy-11", "--to", "model2"),
    ("compare", "runs/toy-11", "runs/toy-1"),
    ("power", "runs/toy-11", "runs/toy-1"),
    ("replay", "runs/toy-11", "--round", "1", "--client", "north"),
    ("audit", "privacy", "runs/toy-11"),
    ("bench", "toy", "--quick", "--dry-run", "--into", "tabels.md"),
    ("advise", "revews.csv"),
    ("advise", "revews.csv", *DIVISION),
    ("advise", "reviews.csv", *DIVISION, "--results", "advise.json"),
    ("data", "build", "revews.csv", "--to", "x.h5"),
    ("data", "build", "20news", "--from", "original", "--to", "x.h5"),
    ("data", "show", "revews.csv"),
    ("data", "inspect", "folder/revews.csv.gz"),
    ("partition", "make", "revews.csv"),
    ("partition", "show", "clints.h5"),
    ("partition", "figure", "labels", "revews.csv"),
    ("serve", "toy-classification", "--allow", "clints.yaml"),
    ("serve", "toy-classification", "--cert", "servr.pem", "--key", "servr.pem"),
    (*JOIN[:-1], "revews.csv"),
    ("join", "--name", "north", "--server", "127.0.0.1:1", "--recipe", "recip.yaml"),
    (*JOIN, "--token", "@tokn.txt"),
    (*JOIN, "--ca", "servr.pem"),
    (*JOIN, "--policy", "polcy.yaml"),
    (*JOIN, "--state-key", "@state.ky"),
    (*INIT_SERVER, "--data", "revews.csv"),
    ("init", "silo", "new", "--invitation", "invit.yaml"),
    ("policy", "init", "policy2.yaml", "--model", "./modl"),
    ("audit", "--state-dir", "folder/clients"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files whose names are close to the missing ones."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("folder", "model", "originals", "runs/toy-1"):
        (folder / name).mkdir(parents=True)
    (folder / "reviews.csv").write_text(
        "text,label,author\n" + "".join(f"text {i},{i % 2},{i % 3}\n" for i in range(30))
    )
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_missing_path_is_named_with_the_folder_that_was_searched(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exit_status:
        app(args=list(command), prog_name="motet", standalone_mode=False)
    error = capsys.readouterr().err
    assert exit_status.value.code in (1, 2), error
    assert "does not exist: there is no '" in error
    assert f"in {folder}" in error


def test_names_in_the_folder_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reviews.csv").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert describe_missing("data/revews.csv") == (
        f"'data/revews.csv' does not exist: there is no 'revews.csv' in {tmp_path}/data. Did you mean 'data/reviews.csv'?"
    )
    assert describe_missing("dat/reviews.csv") == (
        f"'dat/reviews.csv' does not exist: there is no 'dat' in {tmp_path}. Did you mean 'data'?"
    )
    assert describe_missing("quickstrat.yaml", ["quickstart"]).endswith(f"in {tmp_path}. Did you mean 'quickstart'?")
    assert describe_missing("zebra") == f"'zebra' does not exist: there is no 'zebra' in {tmp_path}."
    assert describe_missing("data/reviews.csv/x").endswith(f"{tmp_path}/data/reviews.csv is not a folder.")
    assert describe_missing("link").endswith(f"{tmp_path}/link is a link to nowhere, which is missing.")
    assert describe_missing("~/x").endswith("~ is not expanded here. Write the whole path.")


def test_paths_are_told_from_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert [
        word for word in ("20news", "glue:mrpc", "squad1.1", "Qwen2.5-0.5B", "a.csv", "a/b", ".") if is_path(word)
    ] == [
        "a.csv",
        "a/b",
        ".",
    ]
    words = ("user/name", "user/Qwen2.5", "./name", "/name", "models/name", "a/b/c", "name")
    assert [word for word in words if is_hub_name(word)] == ["user/name", "user/Qwen2.5"]
