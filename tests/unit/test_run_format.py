"""Run folders of other versions: this Motet resumes them, or says why not and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.benchmarks import make_summary
from typer.testing import CliRunner

import motet
from motet.cli import app
from motet.core.errors import ConfigError, RunError
from motet.experiment.commands.run_folder import create_run_folder, load_config, load_summary
from motet.experiment.commands.run_format import RUN_FORMAT
from motet.experiment.loop.checkpoint import Checkpoint, RunProgress, load_checkpoint, save_checkpoint
from motet.experiment.loop.metrics_log import read_metrics
from motet.experiment.loop.metrics_tail import MetricsTail
from motet.experiment.recipe.run_config import RunConfig
from motet.experiment.recipe.start_folder import VERSION_FILE
from motet.transport.admission import PROTOCOL_VERSION, Admission, JoinAccepted, JoinRequest
from motet.transport.traffic import Traffic
from motet.wire import format as wire_format


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    create_run_folder(folder, {"": RunConfig.from_settings("toy", {"rounds": 4})})
    return folder


def test_a_run_has_the_version_that_wrote_it(run: Path) -> None:
    record = {"format": RUN_FORMAT, "motet": motet.__version__, "started_in": str(Path.cwd())}
    assert json.loads((run / VERSION_FILE).read_text()) == record
    assert load_config(run).rounds == 4


def test_a_run_from_before_there_were_versions_can_be_resumed(run: Path) -> None:
    (run / VERSION_FILE).unlink()
    assert load_config(run).rounds == 4


def test_a_run_with_former_names_of_keys_can_be_resumed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its checkpoint has the digest that the version with these names computed. Nobody can change its names."""
    settings = {
        "wait_policy": {"quorum": 0.8, "eager": True},
        "secure": {"type": "secagg", "outside": "clip", "minimum": 4, "largest_weight": 9.0, "privacy": 0.4},
        "network": {"work": [1.0, 2.0]},
        "partition": {"type": "natural", "held_out": ["mail"]},
        "cohort": {"sampler": "oort"},
        "server": {"type": "apply"},
    }
    (run / "config.yaml").write_text(json.dumps(settings))
    config = load_config(run)
    assert config.wait_policy.stop_at_quorum
    assert config.network is not None
    assert config.network.compute_seconds == (1.0, 2.0)
    assert config.digest == "b5b596d55bcc79c5"
    assert capsys.readouterr().err == ""


def test_the_summary_of_an_older_run_gets_the_current_names(run: Path) -> None:
    summary = make_summary(groups=[{"primary_metric": "f1"}])
    text = json.dumps(summary).replace("primary_metric_split", "headline_split").replace("primary_metric", "headline")
    (run / "summary.json").write_text(text)
    assert load_summary(run) == summary


def save_without_last_fields(folder: Path, missing: int) -> None:
    """Save a checkpoint as an older version did, in which the last fields did not exist."""
    progress = RunProgress(rounds=3, state=None, traffic=Traffic(), noisy_sums=0, sums_by_client={})
    names = wire_format._field_names
    old_names = {Checkpoint: names(Checkpoint)[:-missing]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_format, "_field_names", lambda cls: old_names.get(cls) or names(cls))
        save_checkpoint(folder, Checkpoint(progress, {}, 5, 1.0, "d", failures=((1, "ann", "no memory"),)))


def test_a_checkpoint_without_the_fields_that_were_added_since_is_loaded(tmp_path: Path) -> None:
    save_without_last_fields(tmp_path, 1)
    checkpoint = load_checkpoint(tmp_path, "d")
    assert checkpoint is not None
    assert (checkpoint.progress.rounds, checkpoint.metrics_bytes, checkpoint.failures) == (3, 5, ())
    save_without_last_fields(tmp_path, 4)  # one of them is needed
    with pytest.raises(RunError, match="Checkpoint has 4 fields; expected 8"):
        load_checkpoint(tmp_path, "d")


@pytest.mark.parametrize(
    ("number", "version", "advice"),
    [
        (RUN_FORMAT + 1, "9.9.0", "Finish the run with Motet 9.9.0 or a newer one"),
        (0, "0.0.1", "Finish the run with Motet 0.0.1 and export its model there"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "run", "resume"])
def test_a_run_of_another_format_is_refused_and_left_as_it_is(
    command: str, number: int, version: str, advice: str, run: Path
) -> None:
    (run / VERSION_FILE).write_text(json.dumps({"format": number, "motet": version}))
    files = {path: path.read_bytes() for path in run.iterdir()}
    arguments = [str(run)] if command == "resume" else ["toy-classification", "--resume", "--out", str(run)]
    result = CliRunner().invoke(app, [command, *arguments])
    assert result.exit_code == 2
    assert f"was written by Motet {version} (format {number}), and this is Motet {motet.__version__}" in result.output
    assert advice in result.output
    assert {path: path.read_bytes() for path in run.iterdir()} == files


def test_a_folder_with_runs_names_them(run: Path) -> None:
    with pytest.raises(ConfigError, match=rf"is not a run.* It has runs, such as {run}\. Choose one of them\."):
        load_config(run.parent)


def test_a_damaged_version_is_explained(run: Path) -> None:
    (run / VERSION_FILE).write_text("{}")
    with pytest.raises(RunError, match=r"version.json' is damaged: format is missing\. Restore it"):
        load_config(run)


def test_a_client_of_another_version_is_told_which_one_the_server_has() -> None:
    admission = Admission(JoinAccepted("run", "session", "", {}, {}), expected=["north"])
    request = JoinRequest(protocol=PROTOCOL_VERSION + 1, clients=("north",), digest="", token="")
    reason = admission.rejection_reason(request)
    assert reason is not None
    assert (
        f"the server uses protocol {PROTOCOL_VERSION} (Motet {motet.__version__}), you use {PROTOCOL_VERSION + 1}"
        in reason
    )


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b"[" * 100_000, b"\xff\xfe\xfd"], ids=["cut", "list", "deep", "bytes"]
)
@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl"])
def test_a_damaged_file_of_a_run_is_named(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content + b"\n")
    with pytest.raises(RunError, match=rf"run/{name}' is damaged"):
        load_summary(run) if name == "summary.json" else read_metrics(run)
    assert list(MetricsTail(run).read()) == []
