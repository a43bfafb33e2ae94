"""What a partition says is what clients train on: phases by round, public texts, the global test set."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import RunRounds
from tests.sizes import SMALL

from motet.algorithms import fedavg
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification, toy_lm
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.solver import Solver
from motet.models.load_model import ModelConfig

TOY = toy_classification(train=120, test=60, authors=6)


def federation(type: str, corpus: Corpus = TOY, **options: Any) -> Federation:
    config = SMALL if corpus.task == "classification" else {"n_embd": 16, "n_layer": 1, "n_head": 2}
    return federate_corpus(ModelConfig("tiny", 24, config=config), corpus, ComponentConfig(type, options), Seed(7))


def test_in_a_drift_a_client_meets_other_rows_later_and_none_twice() -> None:
    found = federation("drift", clients=3, phases=3, every=2)
    client = found.clients[1]
    seen = [found.context(client, r, "fedavg.train").participant for r in range(7)]
    rows = [site.split("train").rows.tolist() for site in seen]
    assert rows[0] == rows[1] != rows[2] == rows[3]
    assert rows[4] == rows[5] == rows[6], "after the last phase nothing changes"
    assert sorted(rows[0] + rows[2] + rows[4]) == sorted(found.partition.train[1].tolist())
    assert [site.size for site in seen] == [len(r) for r in rows]
    tests = [site.split("test").rows.tolist() for site in seen]
    assert sorted(tests[0] + tests[2] + tests[4]) == sorted(found.partition.test[1].tolist())


def test_a_run_over_a_drift_ends_elsewhere_than_over_the_same_rows_at_once(rounds: RunRounds) -> None:
    found = federation("drift", clients=3, phases=2, every=1)
    (group,) = found.groups
    resting_group = dataclasses.replace(
        group, partition=dataclasses.replace(group.partition, rounds_per_phase=0)
    )  # for ever in its first phase
    still = dataclasses.replace(found, groups=(resting_group,))
    solver = Solver(optimizer="sgd", lr=0.1, batch=8)
    moving, resting = (rounds(f, fedavg(solver), 2).state.params.flat for f in (found, still))
    first, again = (rounds(f, fedavg(solver), 1).state.params.flat for f in (found, still))
    assert torch.equal(first, again), "in the first phase nothing differs"
    assert not torch.equal(moving, resting)


def test_texts_of_a_language_model_are_put_together_within_a_phase_only() -> None:
    corpus = toy_lm(train=60, test=24, authors=6)
    found = federation("drift", corpus, clients=2, phases=3, every=1, by="domain")
    pieces, train = found.features.columns["input_ids"], found.groups[0].train
    whole = [found.participant(found.clients[k], r).split("train").rows for k in range(2) for r in range(3)]
    assert sorted(np.concatenate(whole).tolist()) == sorted(train.rows[: int(train.offsets[-1])].tolist())
    tokens = sum(len(pieces[int(row)]) for row in train.rows[: int(train.offsets[-1])])
    flat = federation("label", corpus, clients=2, by="domain")
    own, all_at_once = flat.groups[0].train, flat.features.columns["input_ids"]
    assert tokens == pytest.approx(sum(len(all_at_once[int(r)]) for r in own.rows[: int(own.offsets[-1])]), abs=6)


def test_public_texts_are_there_for_everybody() -> None:
    found = federation("multi_domain", alpha=50.0)
    for site in (found.participant("mail"), found.server_participant):
        assert np.array_equal(site.split("public").rows, found.partition.public)
    assert not set(found.participant("mail").split("train").rows) & set(found.partition.public)  # type: ignore[arg-type]
    assert found.server_participant.size == len(found.partition.train.rows)
    assert "public" not in federation("uniform", clients=3).participant("client-0").splits


def test_the_global_test_set_is_the_clients_where_they_test_themselves() -> None:
    found = federation("label", clients=3, merge=True, local_test=0.25)
    held = found.server_participant.split("global").rows
    assert sorted(held) == sorted(found.partition.test.rows)
    assert not set(held) & set(found.partition.train.rows)
    plain = federation("label", clients=3)
    assert plain.server_participant.split("global").rows.tolist() == list(range(120, 180))
