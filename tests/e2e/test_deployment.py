"""Server and clients in separate processes: restarts, clients with their own files, access control and groups."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from tests.motet_process import MotetProcess, count_rounds, wait_for_rounds
from tests.networks import find_free_port

from motet.core.errors import ConfigError
from motet.experiment.commands.model_export import export_models
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.commands.replay import replay_client
from motet.experiment.commands.report_data import read_run_report
from motet.experiment.commands.run_folder import load_config
from motet.experiment.deploy.audit_log import read_audit_log
from motet.experiment.loop.checkpoint import load_checkpoint
from motet.experiment.loop.oort import DURATION, PICKS, UTILITY
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
    """Starts `motet` processes, which end with the test."""

    def __init__(self) -> None:
        self.processes: list[MotetProcess] = []

    def __call__(self, *arguments: str, token: str = "") -> MotetProcess:
        process = MotetProcess(*arguments, environment={"MOTET_TOKEN": token}, errors_to_output=True)
        self.processes.append(process)
        return process


@pytest.fixture
def motet() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    for process in processes.processes:
        process.kill()


def wait_for_success(*processes: MotetProcess) -> list[str]:
    """Wait for processes to exit with status 0, and return their output."""
    outputs = []
    for process in processes:
        outputs.append(process.communicate(timeout=240)[0])
        assert process.returncode == 0, outputs[-1]
    return outputs


def assert_same_model(first: Path, second: Path) -> None:
    first_model, second_model = (load_file(folder / "model" / "model.safetensors") for folder in (first, second))
    assert all(first_model[name].equal(second_model[name]) for name in second_model)


def test_a_stopped_or_killed_server_resumes_the_run_with_the_same_result(motet: Processes, tmp_path: Path) -> None:
    run, port = tmp_path / "run", find_free_port()
    serve = ["serve", "toy-classification", *SETTINGS, "--bind", f"127.0.0.1:{port}", "--out", str(run)]
    names = [argument for k in range(4) for argument in ("--name", f"client-{k}")]
    join = ["join", "--server", f"127.0.0.1:{port}", "--recipe", "toy-classification", *SETTINGS, *names]
    server, clients = motet(*serve), motet(*join, "--state-dir", str(tmp_path))
    wait_for_rounds(run, 1, server, clients)
    server.send_signal(signal.SIGTERM)  # as systemd and Kubernetes stop it
    output, _ = server.communicate(timeout=120)
    assert server.returncode == 130, output
    assert f"Finished work is saved. Continue with: motet serve {run}/config.yaml --resume --out {run}" in output
    assert read_status(str(run))["state"] == "stopped"
    server = motet(*serve, "--auto-resume")
    wait_for_rounds(run, 2, server, clients)
    server.kill()
    assert count_rounds(run) < 5
    wait_for_success(motet(*serve, "--resume"), clients)
    local = tmp_path / "local"
    run_recipe(load_recipe("toy-classification", [*SETTINGS, "transport.workers=0", "device=cpu"]), local)
    assert_same_model(run, local)
    summary, expected = (json.loads((folder / "summary.json").read_text()) for folder in (run, local))
    assert summary["bytes"] == expected["bytes"]
    assert summary["final"] == expected["final"]


def test_a_secure_run_over_a_network_gives_the_same_bits(motet: Processes, tmp_path: Path) -> None:
    """Keys and masks differ in each run, and do not change the model."""
    settings = [
        "rounds=1",
        "data.limit=80",
        "data.test_limit=20",
        "partition.clients=3",
        "secure.type=secagg",
        "device=cpu",
    ]
    wait_for_success(motet("run", "toy-secure", *settings, "--transport", "grpc", "--out", str(tmp_path / "remote")))
    run_recipe(load_recipe("toy-secure", [*settings, "transport.workers=0"]), tmp_path / "local")
    assert_same_model(tmp_path / "remote", tmp_path / "local")


def test_a_secure_run_survives_kills_of_its_server_and_a_client(motet: Processes, tmp_path: Path) -> None:
    run, port = tmp_path / "run", find_free_port()
    settings = [*SETTINGS, "rounds=4", "data.limit=120", "partition.clients=3", "secure.type=secagg", "device=cpu"]
    serve = ["serve", "toy-classification", *settings, "--bind", f"127.0.0.1:{port}", "--out", str(run)]

    def join(*names: str) -> MotetProcess:
        words = [word for name in names for word in ("--name", name)]
        options = ["--server", f"127.0.0.1:{port}", "--recipe", "toy-classification", "--state-dir", str(tmp_path)]
        return motet("join", *options, *settings, *words)

    server, steady, killed = motet(*serve), join("client-0", "client-1"), join("client-2")
    wait_for_rounds(run, 1, server, steady, killed)
    killed.kill()  # the server is almost always inside a sum, which begins again with the restarted client
    restarted = join("client-2")
    wait_for_rounds(run, 2, server, steady, restarted)
    server.kill()
    assert count_rounds(run) < 4
    wait_for_success(motet(*serve, "--resume"), steady, restarted)
    run_recipe(load_recipe("toy-classification", [*settings, "transport.workers=0"]), tmp_path / "local")
    assert_same_model(run, tmp_path / "local")


def test_clients_train_on_their_own_files_and_a_wrong_token_is_rejected(motet: Processes, tmp_path: Path) -> None:
    run, port, allowed = tmp_path / "run", find_free_port(), tmp_path / "allowed.yaml"
    for name, words in {"public": "plain", "north": "northsecret", "south": "southsecret"}.items():
        rows = [f"{words} {k} {'good fine' if k % 2 else 'bad poor'},{'yes' if k % 2 else 'no'}" for k in range(24)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["body,verdict", *rows]))
    output, _ = motet("allow", str(allowed), "north", "south").communicate(timeout=60)
    tokens = dict(line.split(": ") for line in output.splitlines())
    assert set(yaml.safe_load(allowed.read_text())) == {"north", "south"}
    assert tokens["north"] not in allowed.read_text()

    (tmp_path / "recipe.yaml").write_text(
        "rounds: 40\nmodel: {name: tiny, max_tokens: 16}\nalgorithm: ditto\nsolver: {lr: 0.1, batch: 8}\n"
        "cohort: {sampler: oort, oort: {report_utility: true}}\n"
        f"wait_policy: {{reconnect_timeout: 300}}\ndata: {{path: {tmp_path}/public.csv, text: body, label: verdict}}\n"
    )
    address = f"127.0.0.1:{port}"
    recipe = str(tmp_path / "recipe.yaml")
    server = motet("serve", recipe, "--bind", address, "--allow", str(allowed), "--out", str(run))

    def join(name: str, token: str, states: str = "states") -> MotetProcess:
        data = ["--data", str(tmp_path / f"{name}.csv"), "data.text=body", "data.label=verdict"]
        state = ["--state-dir", str(tmp_path / states)]
        save = ["--save", str(tmp_path / "saved")] if name == "north" else []
        options = ["--name", name, "--allow-plain-updates", "--allow-utility-reports", *data, *state, *save]
        return motet("join", "--server", address, *options, token=token)

    intruder = join("south", tokens["north"], "elsewhere")
    north, south = (join(*client) for client in tokens.items())
    wait_for_rounds(run, 1, server, north, south)
    south.kill()  # the server waits for it, up to wait_policy.reconnect_timeout
    assert count_rounds(run) < 40
    output, _ = intruder.communicate(timeout=180)
    assert intruder.returncode == 2
    assert "'south' with this token is not on the server's list" in output
    outputs = wait_for_success(server, north, join("south", tokens["south"]))
    assert not any(token in output for token in tokens.values() for output in outputs)
    assert "global test set: 24 rows of public.csv" in outputs[0]  # all of them
    assert "5 of 24 rows are held back to evaluate models" in outputs[1]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["clients"] == 2
    assert read_status(str(run))["state"] == "finished"
    assert summary["lost"] == []
    assert sum(summary["refused"].values()) == 1
    assert 0 <= summary["final"]["accuracy"] <= 1
    (inspection,) = json.loads((run / "inspection.json").read_text())
    assert inspection["corpus"]["samples"] == [], "the report of a deployment has no texts"
    assert inspection["corpus"]["test"]["rows"] == 24
    files = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert b"northsecret" not in files and b"southsecret" not in files, "texts must stay with their clients"
    check_utilities(run, tmp_path / "states")
    check_personal_models(run, tmp_path)


def check_utilities(run: Path, states: Path) -> None:
    """The server knows the utility that each client last sent, and each client has it in its audit log."""
    checkpoint = load_checkpoint(run / "checkpoint", load_config(run).digest)
    assert checkpoint is not None
    assert checkpoint.progress.oort is not None
    table = checkpoint.progress.oort.explored
    assert table[PICKS].tolist() == [40, 40]
    assert (table[DURATION] > 0).all()
    for name, utility in zip(("north", "south"), table[UTILITY], strict=True):
        entries = [entry for entry in read_audit_log(states / name / "audit.jsonl") if "utility" in entry]
        assert {entry["method"] for entry in entries} == {"ditto.train"}
        assert entries[-1]["utility"] == utility > 0


def check_personal_models(run: Path, folder: Path) -> None:
    """North has saved its model with --save, south exports it from its state, and the server invents no clients."""
    export_models(folder / "states" / "south", folder / "south")
    export_models(folder / "states" / "south", folder / "south-best", best=True)
    exported = export_models(run, folder / "global")
    assert exported.remote_clients == ["north", "south"]
    north, south, common = (
        load_file(folder / name / "model.safetensors") for name in ("saved/last", "south", "global")
    )
    assert (folder / "saved" / "best" / "config.json").exists()
    assert not all(north[name].equal(south[name]) for name in north)
    assert not all(north[name].equal(common[name]) for name in north)
    for options in ({"every": True}, {"client": "north"}):
        with pytest.raises(ConfigError, match=r"north.* on the clients' machines.*motet export .motet/north --to"):
            export_models(run, folder / "none", **options)
    with pytest.raises(ConfigError, match="there is no client 'client-0'; the clients of this run are north, south"):
        export_models(run, folder / "none", client="client-0")
    with pytest.raises(ConfigError, match="is the state of south"):
        export_models(folder / "states" / "south", folder / "none", client="north")
    with pytest.raises(ConfigError, match="texts of north are not on this machine"):
        list(replay_client(run, 1, "north"))
    report = read_run_report(run)
    assert not report["client_scores"]  # they are the clients' own
    assert report["partition"] is None
    assert report["command"].startswith("motet serve")


def test_clients_with_their_own_files_use_secure_sums_with_distributed_noise(motet: Processes, tmp_path: Path) -> None:
    """A client learns only in a sum how many clients there are, and so how much noise it must add."""
    run, address = tmp_path / "run", f"127.0.0.1:{find_free_port()}"
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
    server = motet("serve", str(tmp_path / "recipe.yaml"), "transport.clients=3", "--bind", address, "--out", str(run))
    options = ["--data", str(tmp_path / "letters.csv"), "data.text=body", "data.label=verdict"]
    names = ("hill", "lake", "wood")
    wait_for_success(motet("identities", str(tmp_path / "keys"), *names))
    options += ["--state-dir", str(tmp_path / "states"), "--identities", str(tmp_path / "keys")]
    clients = [motet("join", "--server", address, "--name", name, *options) for name in names]
    outputs = wait_for_success(*clients, server)
    assert all("secagg over at least 3 clients" in output for output in outputs[:3])
    (audit,) = wait_for_success(motet("audit", "--state-dir", str(tmp_path / "states" / "hill")))
    assert "the chain of hashes is intact" in audit
    questions = [line for line in audit.splitlines() if "  asked " in line and "fedavg.train" in line]
    assert len(questions) == 2, "one for each round"
    assert all("mechanism distributed" in line and "epsilon" in line for line in questions)
    assert "evaluate." not in audit, "there are no metrics under noise"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["clients"], summary["lost"]) == (3, [])
    assert summary["privacy"]["epsilon"] == pytest.approx(float(questions[-1].rpartition("epsilon ")[2]), rel=1e-3)
    assert count_rounds(run) == 2


def test_clients_with_different_tasks_train_the_layers_that_they_share(motet: Processes, tmp_path: Path) -> None:
    """One group classifies letters, the other tags words in reports. They share the encoder; each has its own head."""
    run, address = tmp_path / "run", f"127.0.0.1:{find_free_port()}"
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
        "evaluation": {"best_round_metric": "score"},  # the metric of all groups together
        "groups": [
            {"name": "letters", "data": {"path": f"{tmp_path}/public.csv", "text": "body", "label": "verdict"}},
            {"name": "reports", "data": {"path": f"{tmp_path}/public.conll"}},
        ],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    server = motet("serve", str(tmp_path / "recipe.yaml"), "transport.clients=3", "--bind", address, "--out", str(run))

    def join(name: str, group: list[str], *data: str) -> MotetProcess:
        state = ["--state-dir", str(tmp_path / "states")]
        options = ["--name", name, "--allow-plain-updates", *group, *state]
        return motet("join", "--server", address, *options, "--data", *data)

    columns = ("data.text=body", "data.label=verdict")
    without_group = join("lost", [], str(tmp_path / "north.csv"), *columns)
    clients = [
        join("hill", ["--group", "letters"], str(tmp_path / "north.csv"), *columns),
        join("lake", ["--group", "reports"], str(tmp_path / "north.conll")),
    ]
    output, _ = without_group.communicate(timeout=180)
    assert without_group.returncode == 2
    assert "choose one: --group letters or --group reports" in output
    clients.append(join("wood", ["--group", "reports"], str(tmp_path / "north.conll")))  # the run starts with the third
    wait_for_success(server, *clients)
    summary = json.loads((run / "summary.json").read_text())
    assert [(g["name"], g["task"], g["clients"]) for g in summary["groups"]] == [
        ("letters", "classification", 1),
        ("reports", "tagging", 2),
    ]
    assert all(0 <= g["final"]["score"] <= 1 for g in summary["groups"])
    assert summary["clients"] == 3
    assert summary["lost"] == []
