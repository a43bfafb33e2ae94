"""Server and clients in processes of their own: killed and started again, with their own files, and no strangers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from tests.networks import find_free_port

from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.recipe.recipe_files import load_recipe
from motet.report.run_status import read_status

SETTINGS = [
    "rounds=5",
    "data.limit=300",
    "data.test_limit=40",
    "partition.clients=4",
    "wait_policy.reconnect_timeout=300",
]


class Processes:
    """Everything a test starts, and ends when the test does."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str, token: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "motet", *words]
        environment = {**os.environ, "MOTET_TOKEN": token}
        self.started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        )
        return self.started[-1]


@pytest.fixture
def motet() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    for process in processes.started:
        process.kill()
        process.wait()


def until(true: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 180
    while not true():
        for process in processes:
            assert process.poll() in (None, 0), process.communicate()[0]
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.02)


def rounds(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []
    return max((row["round"] for row in rows), default=0)


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_run_whose_server_was_killed_ends_as_if_it_had_not_been(motet: Processes, tmp_path: Path) -> None:
    run, port = tmp_path / "run", find_free_port()
    serve = ["serve", "toy-classification", *SETTINGS, "--bind", f"127.0.0.1:{port}", "--out", str(run)]
    join = [
        "join",
        "--server",
        f"127.0.0.1:{port}",
        "--recipe",
        "toy-classification",
        *SETTINGS,
        "--state-dir",
        str(tmp_path),
    ]
    server, clients = motet(*serve), motet(*join, *(word for k in range(4) for word in ("--name", f"client-{k}")))
    until(lambda: rounds(run) >= 1, server, clients)
    killed(server)
    assert rounds(run) < 5
    server = motet(*serve, "--resume")
    for process in (server, clients):
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said
    run_recipe(load_recipe("toy-classification", [*SETTINGS, "transport.workers=0", "device=cpu"]), tmp_path / "whole")
    there, here = (load_file(folder / "model" / "model.safetensors") for folder in (run, tmp_path / "whole"))
    assert all(there[name].equal(here[name]) for name in here)
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in (run, tmp_path / "whole"))
    assert one["bytes"] == other["bytes"]
    assert one["final"] == other["final"]


def test_secure_sums_over_a_network_open_to_the_same_bits(motet: Processes, tmp_path: Path) -> None:
    """Keys and masks are new in each run, and leave no trace in its model."""
    settings = [
        "rounds=1",
        "data.limit=80",
        "data.test_limit=20",
        "partition.clients=3",
        "secure.type=secagg",
        "device=cpu",
    ]
    far = motet("run", "toy-secure", *settings, "--transport", "grpc", "--out", str(tmp_path / "far"))
    said, _ = far.communicate(timeout=240)
    assert far.returncode == 0, said
    run_recipe(load_recipe("toy-secure", [*settings, "transport.workers=0"]), tmp_path / "near")
    there, here = (load_file(tmp_path / where / "model" / "model.safetensors") for where in ("far", "near"))
    assert all(there[name].equal(here[name]) for name in here)


def test_silos_learn_together_from_their_own_files_and_strangers_stay_out(motet: Processes, tmp_path: Path) -> None:
    run, port, allowed = tmp_path / "run", find_free_port(), tmp_path / "allowed.yaml"
    for name, words in {"public": "plain", "north": "northsecret", "south": "southsecret"}.items():
        rows = [f"{words} {k} {'good fine' if k % 2 else 'bad poor'},{'yes' if k % 2 else 'no'}" for k in range(24)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["body,verdict", *rows]))
    said, _ = motet("allow", str(allowed), "north", "south").communicate(timeout=60)
    tokens = dict(line.split(": ") for line in said.splitlines())
    assert set(yaml.safe_load(allowed.read_text())) == {"north", "south"}
    assert tokens["north"] not in allowed.read_text()

    (tmp_path / "recipe.yaml").write_text(
        "rounds: 40\nmodel: {name: tiny, max_tokens: 16}\nalgorithm: fedavg\nsolver: {lr: 0.1, batch: 8}\n"
        f"wait_policy: {{reconnect_timeout: 300}}\ndata: {{path: {tmp_path}/public.csv, text: body, label: verdict}}\n"
    )
    at = f"127.0.0.1:{port}"
    server = motet("serve", str(tmp_path / "recipe.yaml"), "--bind", at, "--allow", str(allowed), "--out", str(run))

    def joined(name: str, token: str) -> subprocess.Popen[str]:
        own = [
            "--data",
            str(tmp_path / f"{name}.csv"),
            "data.text=body",
            "data.label=verdict",
            "--state-dir",
            str(tmp_path / "m"),
        ]
        return motet("join", "--server", at, "--name", name, *own, token=token)

    stranger, north, south = (joined(*who) for who in (("south", tokens["north"]), *tokens.items()))
    until(lambda: rounds(run) >= 1, server, north, south)
    killed(south)  # it is waited for, as wait_policy.reconnect_timeout says, and comes back
    assert rounds(run) < 40
    said, _ = stranger.communicate(timeout=180)
    assert stranger.returncode == 2
    assert "'south' with this token is not on the server's list" in said
    south = joined("south", tokens["south"])
    for process in (server, north, south):
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said
        assert not any(token in said for token in tokens.values())
    summary = json.loads((run / "summary.json").read_text())
    assert summary["clients"] == 2
    assert read_status(str(run))["state"] == "finished"
    assert summary["lost"] == []
    assert sum(summary["refused"].values()) == 1
    assert 0 <= summary["final"]["accuracy"] <= 1
    kept = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert b"northsecret" not in kept and b"southsecret" not in kept  # the texts stayed where they are


def test_silos_with_their_own_files_add_up_in_secret_under_noise_they_make_together(
    motet: Processes, tmp_path: Path
) -> None:
    """A silo knows of no other before a sum begins; how many there are, and how much noise that is, it hears there."""
    run, at = tmp_path / "run", f"127.0.0.1:{find_free_port()}"
    rows = [f"letter {k} {'good fine' if k % 2 else 'bad poor'},{'yes' if k % 2 else 'no'}" for k in range(24)]
    (tmp_path / "letters.csv").write_text("\n".join(["body,verdict", *rows]))
    recipe = {
        "rounds": 2,
        "model": {"name": "tiny", "max_tokens": 16},
        "algorithm": "fedavg",
        "solver": {"lr": 0.05, "batch": 8},
        "data": {"path": f"{tmp_path}/letters.csv", "text": "body", "label": "verdict"},
        "secure": "secagg",
        "privacy": {"type": "distributed", "clip": 1.0, "noise": 1.0},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    server = motet("serve", str(tmp_path / "recipe.yaml"), "transport.clients=3", "--bind", at, "--out", str(run))
    own = [
        "--data",
        str(tmp_path / "letters.csv"),
        "data.text=body",
        "data.label=verdict",
        "--state-dir",
        str(tmp_path / "m"),
    ]
    silos = [motet("join", "--server", at, "--name", name, *own) for name in ("hill", "lake", "wood")]
    for process in (*silos, server):
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["clients"], summary["lost"]) == (3, [])
    assert rounds(run) == 2


def test_silos_with_different_tasks_learn_what_they_have_in_common(motet: Processes, tmp_path: Path) -> None:
    """One classifies letters, the other tags words in reports: they share the encoder, and each has its own head."""
    run, at = tmp_path / "run", f"127.0.0.1:{find_free_port()}"
    letters = [f"letter {k} {'good fine' if k % 2 else 'bad poor'},{'yes' if k % 2 else 'no'}" for k in range(24)]
    reports = "\n\n".join(f"Anna B-PER\nsaw O\nward{k % 3} O" for k in range(24)) + "\n"
    for name in ("public", "north"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["body,verdict", *letters]))
        (tmp_path / f"{name}.conll").write_text(reports)
    recipe = {
        "rounds": 3,
        "model": {"name": "tiny", "max_tokens": 16},
        "algorithm": "fedavg",
        "solver": {"lr": 0.05, "batch": 8},
        "evaluation": {"choose": "score"},  # of all groups together, which no single one knows
        "groups": [
            {"name": "letters", "data": {"path": f"{tmp_path}/public.csv", "text": "body", "label": "verdict"}},
            {"name": "reports", "data": {"path": f"{tmp_path}/public.conll"}},
        ],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    server = motet("serve", str(tmp_path / "recipe.yaml"), "transport.clients=3", "--bind", at, "--out", str(run))

    def joined(name: str, group: list[str], *data: str) -> subprocess.Popen[str]:
        return motet(
            "join", "--server", at, "--name", name, *group, "--state-dir", str(tmp_path / "m"), "--data", *data
        )

    columns = ("data.text=body", "data.label=verdict")
    lost = joined("lost", [], str(tmp_path / "north.csv"), *columns)
    silos = [
        joined("hill", ["--group", "letters"], str(tmp_path / "north.csv"), *columns),
        joined("lake", ["--group", "reports"], str(tmp_path / "north.conll")),
    ]
    said, _ = lost.communicate(timeout=180)
    assert lost.returncode == 2
    assert "choose one: --group letters or --group reports" in said
    silos.append(joined("wood", ["--group", "reports"], str(tmp_path / "north.conll")))  # only now can the run begin
    for process in (server, *silos):
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
    summary = json.loads((run / "summary.json").read_text())
    assert [(g["name"], g["task"], g["clients"]) for g in summary["groups"]] == [
        ("letters", "classification", 1),
        ("reports", "tagging", 2),
    ]
    assert all(0 <= g["final"]["score"] <= 1 for g in summary["groups"])
    assert summary["clients"] == 3
    assert summary["lost"] == []
