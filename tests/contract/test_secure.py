"""What holds for every algorithm under every secure sum: the plain run, or a refusal before the first exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.entries import made
from tests.runs import make_plan

from motet.algorithms import ALGORITHMS, fedavg
from motet.algorithms.fedavg import FedAvg
from motet.codecs.chain import Channel
from motet.core.errors import ConfigError, PrivacyError
from motet.core.layers import Layers
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
from motet.report.progress import SilentProgress
from motet.secure import SECURE, light_secagg, secagg
from motet.wire import serialize

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
PROTOCOLS = [name for name in SECURE if name != "none"]


def after(federation: Federation, algorithm: Algorithm, rounds: int = 1, **plan: Any) -> FederatedRun:
    running = FederatedRun(
        make_plan(federation, algorithm, rounds, **plan), SerialExecutor(torch.device("cpu")), None, SilentProgress()
    )
    running.play_rounds()
    return running


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_as_good_as_plain_under_every_secure_sum_or_refused(name: str, federation: Federation) -> None:
    everybody = (
        {"groups": {"all": list(federation.clients)}} if name == "fedavg_st" else {}
    )  # a sum of two is no secret
    algorithm = made(name, solver=SOLVER, **everybody)
    if "each" in all_client_methods(algorithm).values():
        for protocol in PROTOCOLS:
            with pytest.raises(PrivacyError, match="reveals only sums"):
                build_secure(
                    RunConfig("r", secure=ComponentConfig(protocol)),
                    algorithm,
                    Channel(),
                )
        return
    plain = after(federation, algorithm).model_params()
    moved = float((plain.flat - federation.model.initial_params.flat).abs().max())
    for protocol in PROTOCOLS:
        secure = build_secure(
            RunConfig("r", secure=ComponentConfig(protocol)),
            algorithm,
            Channel(),
        )
        hidden = after(federation, algorithm, secure=secure).model_params()
        assert float((hidden.flat - plain.flat).abs().max()) <= 1e-3 * moved + 1e-6, protocol


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_learns_the_same_whoever_adds_the_noise_or_is_refused(name: str, federation: Federation) -> None:
    """So little noise that what is left of a difference is rounding; as much as is said is measured elsewhere."""
    everybody = {"groups": {"all": list(federation.clients)}} if name == "fedavg_st" else {}
    algorithm = made(name, solver=SOLVER, **everybody)
    config = RunConfig.from_settings(
        "r", {"privacy": {"type": "distributed", "clip": 10.0, "noise": 1e-9}, "secure": "secagg"}
    )
    if "each" in all_client_methods(algorithm).values():
        with pytest.raises(PrivacyError, match=r"privacy.type=distributed adds noise to sums"):
            build_privacy(config, algorithm)
        return
    server = after(federation, algorithm, privacy=central(10.0, 1e-9)).model_params()
    moved = float((server.flat - federation.model.initial_params.flat).norm())
    for protocol in PROTOCOLS:
        inside = after(federation, algorithm, privacy=distributed(10.0, 1e-9), secure=SECURE[protocol]()).model_params()
        assert float((inside.flat - server.flat).norm()) <= 0.02 * moved, protocol


def test_a_partial_model_is_summed_and_the_rest_stays_where_it_is(federation: Federation) -> None:
    algorithm = FedAvg(SOLVER, shared=Layers.parse("layers", "head"))
    plain, hidden = after(federation, algorithm, 2), after(federation, algorithm, 2, secure=secagg())
    for client in federation.clients:
        one, other = plain.memories.get("fedavg", client), hidden.memories.get("fedavg", client)
        torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-5)
        assert one.layout.size == federation.model.layout.size - hidden.state.params.layout.size
    torch.testing.assert_close(plain.state.params.flat, hidden.state.params.flat, rtol=0, atol=1e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_evaluation_under_secure_sums_is_the_mean_over_clients(protocol: str, federation: Federation) -> None:
    running = after(federation, fedavg(SOLVER), secure=SECURE[protocol]())
    assert running.look_at_clients() == {}
    mean = running.look_at_mean("test")
    running.host.behind = {}
    each = run_script(
        running.judge.evaluate_each(running.state, running.judged(), "test"), running.survey.ask, running.executor.run
    )
    assert set(mean) == set(federation.task.metric_names)
    for name, value in mean.items():
        assert value == pytest.approx(sum(r[name] for r in each.values()) / len(each), abs=1e-6)


class Interrupted:
    """Watches a run and ends it after a round."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_run_begin(self, *_: Any) -> None: ...
    def on_round_begin(self, *_: Any) -> None: ...
    def on_client_done(self, *_: Any) -> None: ...
    def on_note(self, *_: Any) -> None: ...
    def on_run_end(self) -> None: ...

    def on_round_end(self, number: int, *_: Any) -> None:
        if number == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_that_goes_on_ends_in_the_same_bits_though_its_masks_are_new(
    protocol: str, federation: Federation, tmp_path: Path
) -> None:
    def plan() -> RunPlan:
        return make_plan(
            federation, FedAvg(SOLVER, shared=Layers.parse("layers", "head")), 3, secure=SECURE[protocol]()
        )

    def executor() -> SerialExecutor:
        return SerialExecutor(torch.device("cpu"))

    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole, _ = execute_plan(plan(), executor(), folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute_plan(plan(), executor(), folder=tmp_path / "cut", callback=Interrupted(2))
    cut, _ = execute_plan(plan(), executor(), folder=tmp_path / "cut", resume=True)
    assert serialize(cut.state) == serialize(whole.state)
    assert (cut.final, cut.clients_final, cut.traffic) == (whole.final, whole.clients_final, whole.traffic)
    kept = [p.name for p in (tmp_path / "whole" / "checkpoint" / "memories").iterdir()]
    assert len(kept) == 4  # the clients' own layers, and no secret
    assert not [name for name in kept if "secure" in name]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"secure": {"type": "secagg", "treshold": 0.6}}, "Did you mean 'threshold'"),
        ({"secure": {"type": "secag"}}, "Did you mean 'secagg'"),
        ({"secure": {"type": "secagg", "threshold": 0.3}}, "at least 0.5"),
        ({"secure": {"type": "light_secagg", "privacy": 0.8}}, "more must finish than may collude"),
        ({"secure": {"type": "secagg_plus", "neighbours": 3}}, "an even number"),
        ({"secure": {"type": "secagg_plus", "dropouts": 0.6}}, "must be below 0.5"),
        ({"secure": "secagg", "codec": ["float16"]}, "float16 is not additive"),
        ({"secure": "secagg", "cohort": {"size": 2}}, "cohort.size is 2"),
        ({"secure": "secagg", "evaluation": {"clients": 2}}, "evaluation.clients is 2"),
    ],
)
def test_what_cannot_be_hidden_is_said_before_anything_runs(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config = RunConfig.from_settings("r", given)
        build_secure(config, fedavg(), build_channel(config))


def test_a_federation_too_small_to_hide_in_is_refused(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="there are 4 clients, but a secure sum needs at least 5"):
        make_plan(federation, fedavg(), 1, evaluation=EvaluationConfig(), secure=light_secagg(minimum=5))
