"""The inspection of data on the command line, in the folder of a run, and in the report."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from tests.integration.conftest import Call

from motet.experiment.commands.data_inspection import read_inspections
from motet.experiment.commands.report_data import read_run_report

SETTINGS = [
    "rounds=1", "device=cpu", "model.name=tiny", "model.max_tokens=12", "data.name=null", "partition.type=uniform",
    "partition.clients=2", "transport.workers=0",
]  # fmt: skip


def write_letters(path: Path, rows: int = 60, copies: int = 0) -> Path:
    """Write letters with a topic; the last `copies` of them are in the file twice."""
    lines = [
        f"the {('bread', 'choir')[k % 2]} of day {k} was for you and me,{('food', 'music')[k % 2]}" for k in range(rows)
    ]
    path.write_text("\n".join(["text,label", *lines, *lines[rows - copies :]]) + "\n")
    return path


def test_check_shows_the_inspection_first(motet: Call, tmp_path: Path) -> None:
    letters = write_letters(tmp_path / "letters.csv")
    status, out, _ = motet("check", "toy-classification", f"data.path={letters}", *SETTINGS)
    assert status == 0
    lines = {line[:18].strip(): line[18:] for line in out.splitlines()}
    assert next(iter(lines)) == "corpus"
    assert lines["rows"] == "48 for training, 12 for testing"
    assert lines["in both splits"] == "0 test texts are also in training (0.0 %)"
    assert lines["sample 1"].startswith("text: the bread of day")
    assert "truncated at model.max_tokens=12" in lines["tokens"]


def test_a_leak_stops_check_build_and_run_unless_it_is_accepted(motet: Call, tmp_path: Path) -> None:
    letters = write_letters(tmp_path / "letters.csv", copies=40)
    recipe = ("toy-classification", f"data.path={letters}", *SETTINGS)
    build = ("data", "build", str(letters), "--to", "letters.h5")
    for command in (("check", *recipe), ("run", *recipe), build):
        status, out, errors = motet(*command)
        assert status == 2
        assert "test texts are also training texts" in errors
        assert "data.accept=[leak]" in errors
        assert ("in both splits" in out) == (command[0] != "run")
    assert not Path("runs").exists()
    assert not Path("letters.h5").exists()
    assert motet(*build, "data.accept=[leak]")[0] == 0
    assert motet("check", *recipe, "data.accept=[leak]")[0] == 0


def test_a_run_and_its_report_say_which_rows_were_left_out(motet: Call, tmp_path: Path) -> None:
    """A question without an answer in its passage is left out."""
    passage = {
        "context": "The boat left at noon and came back in the night.",
        "qas": [{"id": "a", "question": "When did it leave?", "answers": [{"text": "noon", "answer_start": 17}]}],
    }
    paragraphs = [{**passage, "context": f"{passage['context']} It was day {day}."} for day in range(20)]
    broken = {"id": "b", "question": "Who?", "answers": [{"text": "the captain", "answer_start": 3}]}
    paragraphs[3] = {**paragraphs[3], "qas": [*paragraphs[3]["qas"], broken]}
    Path("own.json").write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    settings = [each for each in SETTINGS if "max_tokens" not in each]
    status, out, errors = motet("run", "toy-qa", "data.path=own.json", *settings, "--out", "run")
    assert (status, errors) == (0, "")
    assert "data: 1 of 21 rows were left out (4.8 %)" in out
    (inspection,) = read_inspections(Path("run"))
    assert inspection.corpus.report.num_dropped == 1
    (table,) = read_run_report(Path("run"))["inspections"]
    assert dict(table["rows"])["left out"].startswith("1 ")
    assert table["findings"][0].startswith("1 of 21 rows were left out")
    assert "sample 1" in dict(table["rows"])


def test_inspect_finds_mistakes_and_proposes_a_recipe_that_works(motet: Call, tmp_path: Path) -> None:
    letters = write_letters(tmp_path / "letters.csv", copies=40)
    status, out, _ = motet("data", "inspect", str(letters), "data.accept=[leak]", "--to", "letters.yaml")
    assert status == 0
    assert "accepted (leak): " in out
    assert "A run stops" not in out
    recipe = yaml.safe_load(Path("letters.yaml").read_text())
    assert recipe["data"] == {"path": str(letters), "accept": ["leak"]}
    assert recipe["model"]["max_tokens"] == 16
    assert motet("check", "letters.yaml", "model.name=tiny", "device=cpu")[0] == 0
    status, _, errors = motet("data", "inspect", str(letters), "--to", "letters.yaml")
    assert status == 2
    assert "exists already" in errors


def test_inspect_proposes_no_recipe_for_data_that_stops_a_run(motet: Call, tmp_path: Path) -> None:
    letters = write_letters(tmp_path / "letters.csv", copies=40)
    status, out, _ = motet("data", "inspect", str(letters))
    assert status == 0
    last = out.rstrip().splitlines()[-1]
    assert last.startswith(
        "A run stops for mistakes, so no recipe is proposed. Fix them and inspect the data again, or"
    )
    assert "data.accept=[leak]" in last
    status, _, errors = motet("data", "inspect", str(letters), "--to", "letters.yaml")
    assert (status, Path("letters.yaml").exists()) == (2, False)
    assert "--to: letters.yaml was not written. A run stops for mistakes" in errors
