"""Simulated attacks do what they say, to the data and updates of lying clients alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import advance, start_run

from motet.algorithms import fedavg
from motet.core.errors import ConfigError
from motet.core.params import Params
from motet.core.rng import Seed
from motet.core.weighted import Weighted
from motet.experiment.build.data_poisoning import TRIGGER_POSITION, build_attack, poison_federation
from motet.experiment.build.federation import Federation
from motet.experiment.recipe.run_config import RunConfig
from motet.learning.data.features import Ragged
from motet.learning.solver import Solver
from motet.robust import median
from motet.robust.attacks import ATTACKS, backdoor, collusion, label_flip, noise, sign_flip

SOLVER = Solver(optimizer="sgd", lr=0.1, batch=8)
UPDATE = Weighted(Params.from_tensors({"w": torch.tensor([3.0, 4.0])}), 7.0)
SEED = Seed(3)


def tampered(attack: Any, client: str, round: int = 0) -> Params:
    reply: Weighted = attack.tamper(UPDATE, SEED, client, round)
    assert reply.weight == UPDATE.weight
    return reply.value


def test_the_attacks_on_updates_follow_their_definitions() -> None:
    assert tampered(sign_flip(scale=2.0), "a").flat.tolist() == [-6.0, -8.0]
    for attack in (noise(scale=2.0), collusion(scale=2.0)):
        assert tampered(attack, "a").norm() == pytest.approx(10.0)
        assert not torch.equal(tampered(attack, "a").flat, tampered(attack, "a", round=1).flat)
    assert not torch.equal(tampered(noise(), "a").flat, tampered(noise(), "b").flat)
    assert torch.equal(tampered(collusion(), "a").flat, tampered(collusion(), "b").flat), "colluders send the same"
    assert tampered(backdoor(scale=5.0), "a").flat.tolist() == [15.0, 20.0]
    counts = Weighted(Params.from_scalars(count=3.0), 1.0)
    assert sign_flip().tamper(counts, SEED, "a", 0) is counts


def test_the_attackers_are_a_share_of_the_clients_and_the_same_for_every_attack() -> None:
    clients: Any = [f"c{k}" for k in range(10)]
    attackers = sign_flip(share=0.25).choose_attackers(clients, SEED)
    assert len(attackers) == 3
    assert (
        label_flip(share=0.25).choose_attackers(clients, SEED) == attackers < noise(0.5).choose_attackers(clients, SEED)
    )


def label_column(federation: Federation) -> np.ndarray:
    return np.asarray(federation.features.columns["labels"])


def test_flipped_labels_are_those_of_the_training_rows_of_attackers(federation: Federation) -> None:
    attack = label_flip(share=0.25)
    poisoned = poison_federation(federation, attack)
    changed = np.flatnonzero(label_column(poisoned) != label_column(federation))
    (attacker,) = attack.choose_attackers(federation.clients, federation.seed)
    assert set(changed) <= set(poisoned.participant(attacker).split("train").rows)
    assert len(changed)
    others = (label_flip(share=0.5), backdoor(share=0.25))
    keys = {each.features.key for each in (federation, poisoned, *(poison_federation(federation, a) for a in others))}
    assert len(keys) == 4, "runs that share caches and workers would read each other's rows"
    old, new = label_column(federation)[changed], label_column(poisoned)[changed]
    assert (old + new == label_column(federation).max()).all()


def test_a_backdoor_puts_a_trigger_into_training_rows_and_into_a_test_set_of_its_own(federation: Federation) -> None:
    attack = backdoor(share=0.25, rows=0.5, target=1)
    poisoned = poison_federation(federation, attack)
    old_ids, ids = federation.features.columns["input_ids"], poisoned.features.columns["input_ids"]
    assert isinstance(ids, Ragged) and isinstance(old_ids, Ragged)
    trigger = old_ids.max_value
    test = poisoned.server_context(0).participant.split("backdoor").rows
    assert len(test) and (label_column(poisoned)[test] == 1).all()
    assert all(ids[row][TRIGGER_POSITION] == trigger for row in test)
    changed = [row for row in range(len(federation.features)) if not np.array_equal(ids[row], old_ids[row])]
    (attacker,) = attack.choose_attackers(federation.clients, federation.seed)
    own = poisoned.participant(attacker).split("train").rows
    assert changed and set(changed) <= set(own) and len(changed) <= len(own)
    assert (label_column(poisoned)[changed] == 1).all()
    global_rows = poisoned.server_context(0).participant.split("global").rows
    assert np.array_equal(global_rows, federation.server_context(0).participant.split("global").rows)


def test_a_run_with_a_backdoor_logs_how_often_it_works(federation: Federation) -> None:
    attack = backdoor(share=0.25)
    run = start_run(poison_federation(federation, attack), fedavg(SOLVER), 1, attack=attack)
    run.run_rounds()
    assert {row["split"] for row in run.storage.metrics.rows} >= {"global", "backdoor"}


def test_a_liar_decides_the_mean_and_not_the_median(federation: Federation) -> None:
    honest = advance(start_run(federation, fedavg(SOLVER), 1)).state.params

    def distance(**options: Any) -> float:
        run = start_run(federation, fedavg(SOLVER), 1, attack=sign_flip(share=0.25, scale=100.0))
        run.engine.plan = replace(run.plan, components=replace(run.plan.components, **options))
        return float((advance(run).state.params - honest).norm())

    assert distance() > 20 * distance(robust=median())


def test_attacks_are_only_for_simulations(federation: Federation) -> None:
    with pytest.raises(ConfigError, match="is for simulations in one process"):
        start_run(federation, fedavg(SOLVER), 1, attack=sign_flip(), is_remote=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"type": "noise", "share": 1.5}, r"attack\.share is 1\.5"), ({"type": "nois"}, "Did you mean 'noise'")],
)
def test_invalid_attacks_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_attack(RunConfig.from_settings("r", {"attack": settings}))


def test_a_recipe_without_an_attack_keeps_its_digest() -> None:
    assert RunConfig.from_settings("r", {"attack": "none"}).digest == RunConfig.from_settings("r", {}).digest
    assert set(ATTACKS) == {"none", "sign_flip", "noise", "collusion", "label_flip", "backdoor"}
