"""Simulations over MPI processes and on Ray actors give the same bits as one process, even if an actor dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from motet.core.errors import ConfigError, RunError
from motet.experiment.build.component_builders import build_components
from motet.experiment.build.executor_builder import create_executor, resolve_device
from motet.experiment.build.federation_builder import build_federation
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.build.run_plan import RunPlan, build_plan
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.deploy.mpi_launch import choose_device
from motet.experiment.deploy.network_options import MpiOptions
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.recipe_files import load_recipe
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.wire import serialize

SETTINGS = ["rounds=2", "data.limit=200", "data.test_limit=40", "partition.clients=4", "device=cpu"]


NOISE = {"type": "distributed", "clip": 1.0, "noise": 0.1, "seeded": True}  # masks do not change the model


def run_with_mpi(folder: Path, *settings: str) -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip("MPI is not installed (pip install 'motet[mpi]')")
    arguments = ["run", "toy-classification", *settings, "--transport", "mpi", "--out", str(folder)]
    command = [str(mpirun), "-n", "3", sys.executable, "-m", "motet", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr


def test_mpi_gives_the_same_weights_also_under_masks_and_client_states_stay_with_the_ranks(tmp_path: Path) -> None:
    masked = json.dumps({"rounds": 1, "secure": {"type": "secagg"}, "privacy": NOISE})
    settings = [*SETTINGS, "baselines.alone.algorithm=isolated", f"baselines.masked={masked}"]
    folder, local = tmp_path / "mpi", tmp_path / "local"
    run_with_mpi(folder, *settings)
    run_recipe(load_recipe("toy-classification", [*settings, "transport.workers=0"]), local)
    for run in (".", "baselines/masked"):
        model, expected = (load_file(path / run / "model" / "model.safetensors") for path in (folder, local))
        assert all(model[name].equal(expected[name]) for name in expected)
    states = folder / "baselines" / "alone" / "checkpoint" / "clients"
    files = list(states.glob("rank-*/*/*@isolated@client-*"))
    assert {path.parts[-3] for path in files} == {"rank-1", "rank-2"}
    assert {path.name.rpartition("@")[2] for path in files} == {f"client-{k}" for k in range(4)}


def test_a_device_map_in_the_format_of_fednlp_assigns_gpus_to_ranks(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text("five:\n  host-a: [2, 1]\n  host-b: [0, 2]\nother:\n  host-a: [1]\n")
    options = MpiOptions(str(path), "five")
    devices = [choose_device(rank, 5, options, "cpu") for rank in range(5)]
    assert devices == ["cuda:0", "cuda:0", "cuda:1", "cuda:1", "cuda:1"]
    assert choose_device(3, 4, MpiOptions(), "cpu") == "cpu"
    with pytest.raises(ConfigError, match="the map has 5 processes; expected 3"):
        choose_device(0, 3, options, "cpu")
    with pytest.raises(ConfigError, match="is not a device map"):
        choose_device(0, 3, MpiOptions(str(path), "sixth"), "cpu")


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_recipe("toy-classification", SETTINGS)


@pytest.fixture(scope="module")
def stateful_config() -> RunConfig:
    changes = ["rounds=3", "algorithm=ditto", "solver.keep_state=true", "codec.up=[{top_k: {share: 0.5}}]"]
    return load_recipe("toy-classification", [*SETTINGS, *changes])


@pytest.fixture(scope="module")
def plan(config: RunConfig) -> RunPlan:
    return build_plan(config, build_federation(config), build_components(config))


@pytest.fixture(scope="module")
def ray_executor(config: RunConfig, stateful_config: RunConfig, plan: RunPlan) -> Iterator[Any]:
    """An executor with two actors."""
    from motet.experiment.deploy.ray_executor import RayOptions, connect_ray

    os.environ["RAY_TMPDIR"] = "/tmp"  # names of sockets must be short
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own name; actors would wait for all other tests
    federation: Any = plan.federation
    local = create_executor(resolve_device("cpu"), InProcessOptions(workers=0), [federation])
    executor = connect_ray(RayOptions(actors=2), local, [config, stateful_config])
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def local_run(plan: RunPlan) -> FederatedRun:
    """The same run in one process."""
    run = FederatedRun(plan, SerialExecutor(torch.device("cpu")))
    run.run_rounds()
    return run


@pytest.fixture
def ray_run(config: RunConfig, plan: RunPlan, ray_executor: Any) -> FederatedRun:
    """The same run on actors, which also sum the replies."""
    from motet.experiment.deploy.ray_transport import connect_actors

    federation: Any = plan.federation
    return FederatedRun(plan, ray_executor, connect=connect_actors(config, federation, ray_executor))


def kill_once_busy(executor: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Kill the first actor that gets a task. Return a list that then has its tasks."""
    import ray

    send, killed_tasks = executor.pool._send, list[Any]()

    def send_and_kill(actor: Any, tasks: list[Any]) -> None:
        send(actor, tasks)
        if not killed_tasks:
            ray.kill(actor, no_restart=False)
            killed_tasks.extend(tasks)

    monkeypatch.setattr(executor.pool, "_send", send_and_kill)
    return killed_tasks


def test_a_sum_on_actors_has_the_same_bits_after_one_of_them_died(
    ray_run: FederatedRun, local_run: FederatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor: Any = ray_run.engine.executor
    examples_before, received_before = executor.examples_processed, executor.pool.bytes_received
    killed_tasks = kill_once_busy(executor, monkeypatch)
    monkeypatch.setattr(executor.pool, "capacity", 4)  # actors get several clients at once, as on a GPU
    ray_run.run_rounds()
    assert killed_tasks
    assert serialize(ray_run.state) == serialize(local_run.state)
    assert executor.examples_processed - examples_before == local_run.engine.executor.examples_processed
    assert not ray_run.engine.mailbox.failures
    assert ray_run.engine.progress.traffic == local_run.engine.progress.traffic
    model_bytes = ray_run.state.params.flat.nbytes
    assert executor.pool.bytes_received - received_before < 3 * model_bytes  # two rounds with four clients each


def test_jobs_on_actors_give_the_same_bits(plan: RunPlan, ray_executor: Any, local_run: FederatedRun) -> None:
    """Without sums on the actors, clients run in the driver, and only their jobs on actors."""
    run = FederatedRun(plan, ray_executor)
    run.run_rounds()
    assert serialize(run.state) == serialize(local_run.state)
    assert not run.engine.mailbox.failures


def test_client_states_stay_with_the_actors_while_one_dies_and_the_run_is_resumed(
    stateful_config: RunConfig, plan: RunPlan, ray_executor: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client has a personal model, the optimizers of two trainings, and the residual of a codec."""
    from motet.experiment.deploy.ray_transport import connect_actors

    federation: Any = plan.federation
    stateful_plan = build_plan(stateful_config, federation, build_components(stateful_config))
    connect = connect_actors(stateful_config, federation, ray_executor)
    local = FederatedRun(stateful_plan, SerialExecutor(torch.device("cpu")))
    for _ in range(3):
        local.engine.run_round()
    remote = FederatedRun(stateful_plan, ray_executor, folder=tmp_path, connect=connect)
    remote.engine.run_round()
    states, pool = remote.storage.client_states, ray_executor.pool
    assert len(states.remote) == 4 * 4
    received_before, killed_tasks = pool.bytes_received, kill_once_busy(ray_executor, monkeypatch)
    remote.engine.run_round()  # repeated tasks begin with the states before the round
    assert killed_tasks
    assert pool.bytes_received - received_before < 2 * len(serialize(remote.state))
    assert not states.values
    assert len(states.remote) == 4 * 4
    remote.save()
    resumed = FederatedRun(stateful_plan, ray_executor, folder=tmp_path, connect=connect)
    assert resumed.resume()
    resumed.engine.run_round()
    assert serialize(resumed.state) == serialize(local.state)
    assert resumed.engine.progress.traffic == local.engine.progress.traffic
    resumed.storage.client_states.recall()  # as at the end of a run
    kept, expected = (run.storage.client_states.values for run in (resumed, local))
    assert {key: serialize(state) for key, state in kept.items()} == {k: serialize(s) for k, s in expected.items()}


def test_a_client_state_is_read_from_its_second_node_and_a_lost_one_ends_the_run(
    ray_executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from motet.experiment.deploy.ray_actor import load_first, pack

    pool, actor = ray_executor.pool, ray_executor.pool.idle[0]
    first, *_ = actor.take_states.options(num_returns=2).remote("no such run", [])  # its results are errors
    second = ray.put(pack({"w": torch.ones(3)}))
    assert load_first([first, second])["w"].equal(torch.ones(3))
    assert pool.load_state([("node-1", first), ("node-2", second)])["w"].equal(torch.ones(3))
    with pytest.raises(RunError, match="motet resume"):
        pool.load_state([("node-1", first)])
    copies = [("node-1", "first"), ("node-2", "second"), ("node-3", "third")]
    monkeypatch.setattr(pool, "nodes", {"left": "node-1", "actor": "node-3"})
    monkeypatch.setattr(pool, "restarting", {"answer": "left"})  # its node may be gone
    assert pool._order(copies, "actor") == ["third", "second", "first"]
