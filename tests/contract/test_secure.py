"""Every algorithm gives the same result in every secure sum as without, or is rejected before the first exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests import entries
from tests.runs import advance, make_plan, start_run

from motet.algorithms import ALGORITHMS, fedavg
from motet.algorithms.fedavg import FedAvg
from motet.codecs.chain import Channel
from motet.core.errors import ConfigError, PrivacyError
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.program import Algorithm
from motet.core.script import all_client_methods, run_script
from motet.experiment.build.component_builders import build_channel, build_privacy, build_secure
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.experiment.loop.run_loop import FederatedRun, execute_plan
from motet.experiment.recipe.run_config import ComponentConfig, EvaluationConfig, RunConfig
from motet.learning.executors.serial_executor import SerialExecutor
from motet.learning.solver import Solver
from motet.privacy import central, distributed
from motet.report.run_callback import RunCallback
from motet.secure import SECURE, light_secagg, secagg
from motet.wire import serialize

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
PROTOCOLS = [name for name in SECURE if name != "none"]
PARTIAL_MODEL = FedAvg(SOLVER, shared=Layers.parse("layers", "head"))


def run_rounds(federation: Federation, algorithm: Algorithm, rounds: int = 1, **plan: Any) -> FederatedRun:
    running = FederatedRun(make_plan(federation, algorithm, rounds, **plan), SerialExecutor(torch.device("cpu")))
    running.run_rounds()
    return running


def train(federation: Federation, algorithm: Algorithm, **plan: Any) -> Params:
    """Return the model after a round, without an evaluation."""
    return advance(start_run(federation, algorithm, 1, **plan)).model_for()


def make_algorithm(name: str, federation: Federation) -> Algorithm:
    # FedAvg-ST sums within groups. One group of all clients, because a sum over two would hide nothing.
    options = {"groups": {"all": list(federation.clients)}} if name == "fedavg_st" else {}
    return entries.make_algorithm(name, solver=SOLVER, **options)


def reveals_single_replies(algorithm: Algorithm) -> bool:
    return "each" in all_client_methods(algorithm).values()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_learns_the_same_in_every_secure_sum_or_is_rejected(name: str, federation: Federation) -> None:
    algorithm = make_algorithm(name, federation)
    configs = {protocol: RunConfig("r", secure=ComponentConfig(protocol)) for protocol in PROTOCOLS}
    if reveals_single_replies(algorithm):
        for config in configs.values():
            with pytest.raises(PrivacyError, match="reveals only sums"):
                build_secure(config, algorithm, Channel())
        return
    plain = train(federation, algorithm)
    largest_change = float((plain.flat - federation.model.initial_params.flat).abs().max())
    for protocol, config in configs.items():
        hidden = train(federation, algorithm, secure=build_secure(config, algorithm, Channel()))
        assert float((hidden.flat - plain.flat).abs().max()) <= 1e-3 * largest_change + 1e-6, protocol


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_learns_the_same_with_distributed_and_central_noise_or_is_rejected(
    name: str, federation: Federation
) -> None:
    """The noise is so small that the difference is rounding. Other tests measure the size of the noise."""
    algorithm = make_algorithm(name, federation)
    if reveals_single_replies(algorithm):
        options = {"type": "distributed", "clip": 10.0, "noise": 1e-9}
        config = RunConfig.from_settings("r", {"privacy": options, "secure": "secagg"})
        with pytest.raises(PrivacyError, match=r"privacy.type=distributed adds noise to sums"):
            build_privacy(config, algorithm)
        return
    with_central = train(federation, algorithm, privacy=central(10.0, 1e-9))
    change = float((with_central.flat - federation.model.initial_params.flat).norm())
    for protocol in PROTOCOLS:
        privacy, secure = distributed(10.0, 1e-9), SECURE[protocol]()
        with_distributed = train(federation, algorithm, privacy=privacy, secure=secure)
        assert float((with_distributed.flat - with_central.flat).norm()) <= 0.02 * change, protocol


def test_only_the_shared_layers_are_summed(federation: Federation) -> None:
    plain, hidden = (run_rounds(federation, PARTIAL_MODEL, 2, secure=secure) for secure in (None, secagg()))
    for client in federation.clients:
        plain_state, hidden_state = (
            plain.storage.client_states.get("fedavg", client),
            hidden.storage.client_states.get("fedavg", client),
        )
        torch.testing.assert_close(plain_state.flat, hidden_state.flat, rtol=0, atol=1e-5)
        assert plain_state.layout.size == federation.model.layout.size - hidden.state.params.layout.size
    torch.testing.assert_close(plain.state.params.flat, hidden.state.params.flat, rtol=0, atol=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_evaluation_in_a_secure_sum_gives_the_mean_over_clients(protocol: str, federation: Federation) -> None:
    running = run_rounds(federation, fedavg(SOLVER), secure=SECURE[protocol]())
    assert running.evaluator.evaluate_clients().scores == {}
    mean = running.evaluator.evaluate_clients().mean
    running.engine.runtime.required_wrappers = {}
    script = running.evaluator.program.evaluate_each(running.state, running.evaluator.clients, "test")
    by_client = run_script(script, running.engine.evaluation_mailbox.run_exchange, running.engine.executor.run)
    assert set(mean) == set(federation.task.metric_names)
    for name, value in mean.items():
        assert value == pytest.approx(sum(scores[name] for scores in by_client.values()) / len(by_client), abs=1e-6)


class InterruptAfter(RunCallback):
    """A callback that interrupts the run after a round."""

    def __init__(self, round_number: int) -> None:
        self.round_number = round_number

    def on_round_end(self, number: int, *_: Any) -> None:
        if number == self.round_number:
            raise KeyboardInterrupt


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_resumed_run_gives_the_same_bits_although_its_masks_are_new(
    protocol: str, federation: Federation, tmp_path: Path
) -> None:
    def make_secure_plan() -> RunPlan:
        return make_plan(federation, PARTIAL_MODEL, 3, secure=SECURE[protocol]())

    def make_executor() -> SerialExecutor:
        return SerialExecutor(torch.device("cpu"))

    for name in ("uninterrupted", "resumed"):
        (tmp_path / name).mkdir()
    uninterrupted = execute_plan(make_secure_plan(), make_executor(), folder=tmp_path / "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        execute_plan(make_secure_plan(), make_executor(), folder=tmp_path / "resumed", callback=InterruptAfter(2))
    resumed = execute_plan(make_secure_plan(), make_executor(), folder=tmp_path / "resumed", resume=True)
    assert serialize(resumed.state) == serialize(uninterrupted.state)
    assert (resumed.final, resumed.client_spread) == (uninterrupted.final, uninterrupted.client_spread)
    assert resumed.traffic == uninterrupted.traffic


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_secret_is_written_to_disk(protocol: str, federation: Federation, tmp_path: Path) -> None:
    plan = make_plan(federation, PARTIAL_MODEL, 1, secure=SECURE[protocol]())
    execute_plan(plan, SerialExecutor(torch.device("cpu")), folder=tmp_path)
    files = [path.name for path in (tmp_path / "checkpoint" / "client_states").iterdir()]
    assert len(files) == 4  # each client's local layers
    assert not [name for name in files if "secure" in name]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"secure": {"type": "secagg", "treshold": 0.6}}, "Did you mean 'threshold'"),
        ({"secure": {"type": "secag"}}, "Did you mean 'secagg'"),
        ({"secure": {"type": "secagg", "threshold": 0.3}}, "at least 0.5"),
        ({"secure": {"type": "light_secagg", "colluders": 0.8}}, "more must finish than may collude"),
        ({"secure": {"type": "secagg_plus", "neighbors": 3}}, "an even number"),
        ({"secure": {"type": "secagg_plus", "dropouts": 0.6}}, "must be below 0.5"),
        ({"secure": "secagg", "codec": ["float16"]}, "float16 is not additive"),
        ({"secure": "secagg", "cohort": {"size": 2}}, "cohort.size is 2"),
        ({"secure": "secagg", "evaluation": {"clients": 2}}, "evaluation.clients is 2"),
    ],
)
def test_invalid_settings_are_rejected_before_a_run(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config = RunConfig.from_settings("r", settings)
        build_secure(config, fedavg(), build_channel(config))


def test_a_federation_below_the_minimum_is_rejected(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="there are 4 clients, but a secure sum needs at least 5"):
        make_plan(federation, fedavg(), 1, evaluation=EvaluationConfig(), secure=light_secagg(min_clients=5))
