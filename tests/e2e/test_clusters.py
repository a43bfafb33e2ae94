"""A simulation over MPI's processes and on Ray's actors ends in the bits of one process, also when an actor dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.runs import make_plan

from motet.core.errors import ConfigError
from motet.experiment.build.component_builders import build_algorithm
from motet.experiment.build.executor_builder import InProcessOptions, create_executor, resolve_device
from motet.experiment.build.federation_builder import build_federations
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.commands.recipe_runner import run_recipe
from motet.experiment.deploy.mpi_launch import MpiOptions, choose_device
from motet.experiment.loop.run_loop import FederatedRun
from motet.experiment.recipe.recipe_files import load_recipe
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.executors.serial_executor import PrefixCache, SerialExecutor
from motet.wire import serialize

SETTINGS = ["rounds=2", "data.limit=200", "data.test_limit=40", "partition.clients=4", "device=cpu"]


def over_mpi(there: Path, *settings: str) -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip("no MPI is installed (pip install 'motet[mpi]')")
    words = ["run", "toy-classification", *settings, "--transport", "mpi", "--out", str(there)]
    command = [str(mpirun), "-n", "3", sys.executable, "-m", "motet", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


def same_bits(there: Path, here: Path, *settings: str) -> bool:
    run_recipe(load_recipe("toy-classification", [*settings, "transport.workers=0"]), here)
    one, other = (load_file(folder / "model" / "model.safetensors") for folder in (there, here))
    return all(one[name].equal(other[name]) for name in other)


def test_mpi_gives_the_same_weights_and_memories_stay_with_the_ranks(tmp_path: Path) -> None:
    there, mine = tmp_path / "there", [*SETTINGS, "baselines.alone.algorithm=isolated"]
    over_mpi(there, *mine)
    assert same_bits(there, tmp_path / "here", *mine)
    kept = [*(there / "baselines" / "alone" / "checkpoint" / "clients").glob("rank-*/*/*@isolated@client-*")]
    assert {path.parts[-3] for path in kept} == {"rank-1", "rank-2"}
    assert {path.name.rpartition("@")[2] for path in kept} == {f"client-{k}" for k in range(4)}


def test_secure_sums_under_noise_open_to_the_same_bits_over_mpi(tmp_path: Path) -> None:
    """Masks are new in each run and leave no trace; the noise is the same because it is seeded."""
    noise = ["privacy.type=distributed", "privacy.clip=1.0", "privacy.noise=0.1", "privacy.seeded=true"]
    mine = [*SETTINGS, "rounds=1", "secure.type=secagg", *noise]
    over_mpi(tmp_path / "there", *mine)
    assert same_bits(tmp_path / "there", tmp_path / "here", *mine)


def test_a_device_map_places_processes_as_fednlp_does(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text("five:\n  host-a: [2, 1]\n  host-b: [0, 2]\nother:\n  host-a: [1]\n")
    options = MpiOptions(str(path), "five")
    placed = [choose_device(rank, 5, options, "cpu") for rank in range(5)]
    assert placed == ["cuda:0", "cuda:0", "cuda:1", "cuda:1", "cuda:1"]
    assert choose_device(3, 4, MpiOptions(), "cpu") == "cpu"
    with pytest.raises(ConfigError, match="the map has 5 processes; expected 3"):
        choose_device(0, 3, options, "cpu")
    with pytest.raises(ConfigError, match="is not a device map"):
        choose_device(0, 3, MpiOptions(str(path), "sixth"), "cpu")


@pytest.fixture(scope="module")
def planned() -> tuple[RunConfig, RunPlan]:
    config = load_recipe("toy-classification", SETTINGS)
    return config, make_plan(build_federations({"": config})[""], build_algorithm(config), 2)


@pytest.fixture(scope="module")
def actors(planned: tuple[RunConfig, RunPlan]) -> Iterator[Any]:
    """A executor of two."""
    from motet.experiment.deploy.ray_executor import RayOptions, connect_ray

    os.environ["RAY_TMPDIR"] = "/tmp"  # its sockets' names may not be long
    config, plan = planned
    here = create_executor(resolve_device("cpu"), InProcessOptions(0), [plan.federation], PrefixCache())
    executor = connect_ray(RayOptions(actors=2), here, [config])
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def plain(planned: tuple[RunConfig, RunPlan]) -> FederatedRun:
    """The same run in one process."""
    running = FederatedRun(planned[1], SerialExecutor(torch.device("cpu")))
    running.run_rounds()
    return running


@pytest.fixture
def on_ray(planned: tuple[RunConfig, RunPlan], actors: Any) -> FederatedRun:
    return FederatedRun(planned[1], actors)


def test_ray_gives_the_same_bits_also_when_an_actor_dies(on_ray: FederatedRun, plain: FederatedRun) -> None:
    import ray

    executor: Any = on_ray.engine.executor
    before = executor.examples_processed
    ray.kill(executor.actors[0], no_restart=False)
    on_ray.run_rounds()
    assert serialize(on_ray.state) == serialize(plain.state)
    assert executor.examples_processed - before == plain.engine.executor.examples_processed
    assert not on_ray.engine.mailbox.failures


def test_ray_repeats_the_jobs_of_an_actor_that_died(
    on_ray: FederatedRun, plain: FederatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    executor: Any = on_ray.engine.executor
    wait_completed, killed_jobs = executor.wait_completed, []

    def wait_and_kill() -> Any:
        completed = wait_completed()
        if executor.running and not killed_jobs:  # in the middle of a round, while the actor runs a client's job
            actor, jobs = next(iter(executor.running.values()))
            ray.kill(actor, no_restart=False)
            killed_jobs.extend(jobs)
        return completed

    monkeypatch.setattr(executor, "wait_completed", wait_and_kill)
    on_ray.run_rounds()
    assert killed_jobs
    assert serialize(on_ray.state) == serialize(plain.state)
    assert not on_ray.engine.mailbox.failures
