"""Federated tuning of language models end to end: killed runs, clients with their own chats, secure sums, noise, codecs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.e2e.test_deployment import Processes, motet, wait_for_success
from tests.e2e.test_interrupted_runs import read_results, run_motet
from tests.motet_process import MotetProcess, wait_for_rounds
from tests.networks import find_free_port
from tests.unit.test_adapter_export import save_base

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe

__all__ = ["motet"]  # a fixture
SMALL = [
    "rounds=3",
    "data.limit=60",
    "data.test_limit=12",
    "partition.clients=3",
    "solver.epochs=1",
    "evaluation.samples=2",
]


def test_a_killed_run_resumes_to_the_same_adapters_and_samples(tmp_path: Path) -> None:
    settings = ["run", "toy-instruct", *SMALL, "evaluation.every=1", "checkpoint.seconds=0"]
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    assert run_motet(*settings, "--out", str(uninterrupted)) == (0, "")
    process = MotetProcess(*settings, "--out", str(interrupted))
    wait_for_rounds(interrupted, 1, process)
    process.kill()
    assert not (interrupted / "summary.json").exists()
    assert run_motet("resume", str(interrupted)) == (0, "")
    assert read_results(interrupted) == read_results(uninterrupted)
    samples = [json.loads((folder / "samples.json").read_text()) for folder in (interrupted, uninterrupted)]
    assert samples[0] == samples[1]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (interrupted, uninterrupted)]
    assert summaries[0]["initial"] == summaries[1]["initial"] != {}


def test_clients_with_their_own_chats_send_adapters_and_never_the_base(motet: Processes, tmp_path: Path) -> None:
    base, run, address = save_base(tmp_path / "base"), tmp_path / "run", f"127.0.0.1:{find_free_port()}"
    chats = [("name the topic of song tune", "music"), ("name the topic of garlic onion", "food")] * 6
    forms = {
        "server": [{"prompt": p, "completion": c} for p, c in chats],
        "north": [
            {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": c}]} for p, c in chats
        ],
        "south": [{"instruction": p, "input": "", "output": c} for p, c in chats],
    }
    for name, rows in forms.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "rounds": 2,
        "data": {"path": f"{tmp_path}/server.jsonl"},
        "model": {"name": str(base), "max_tokens": 32, "adapter": {"rank": 2}, "dtype": "bfloat16"},
        "task": {"max_new_tokens": 4},
        "algorithm": "fedavg",
        "solver": {"lr": 0.01, "batch": 4},
        "codec": {"up": ["int8"]},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    server = motet("serve", str(tmp_path / "recipe.yaml"), "transport.clients=2", "--bind", address, "--out", str(run))
    clients = [
        motet(
            "join", "--server", address, "--name", name, "--data", str(tmp_path / f"{name}.jsonl"),
            "--state-dir", str(tmp_path / "states"), "--allow-plain-updates", "--allow-model", str(base),
        )
        for name in ("north", "south")
    ]  # fmt: skip
    wait_for_success(*clients, server)
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["clients"], summary["rounds"], summary["lost"]) == (2, 2, [])
    adapters = (run / "model" / "adapter_model.safetensors").stat().st_size
    weights = (base / "model.safetensors").stat().st_size
    assert summary["bytes"]["payload_up"] < 2 * 2 * adapters / 2 < 2 * 2 * weights
    assert summary["bytes"]["payload_down"] <= 2 * 2 * adapters


@pytest.mark.parametrize(
    "settings",
    [
        ["secure=secagg_plus"],
        ["algorithm=ffa_lora", "secure=secagg", "privacy.type=distributed", "privacy.clip=1.0", "privacy.noise=0.5"],
        ["privacy.type=central", "privacy.clip=1.0", "privacy.noise=0.5"],
    ],
    ids=["masks", "distributed noise", "central noise"],
)
def test_adapters_are_trained_under_masks_and_noise(settings: list[str], tmp_path: Path) -> None:
    finished = run_recipe(load_recipe("toy-instruct", [*SMALL, "rounds=1", *settings]), tmp_path / "run")
    assert finished.summary["rounds"] == 1
    assert finished.summary["final"].keys() == {"score", "exact_match", "rougeL", "choice_accuracy", "loss"}
    assert ("epsilon" in finished.summary["privacy"]) == (len(settings) > 1)
