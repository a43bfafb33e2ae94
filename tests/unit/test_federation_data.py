"""A federation uses its partition: phases by round, public texts and the global test set."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tests.runs import run_rounds
from tests.sizes import SMALL

from motet.algorithms import fedavg
from motet.core.rng import Seed
from motet.datasets.corpus import Corpus
from motet.datasets.toy_corpora import toy_classification, toy_lm
from motet.experiment.build.federation import Federation
from motet.experiment.build.federation_builder import federate_corpus
from motet.experiment.recipe.run_config import ComponentConfig
from motet.learning.solver import Solver
from motet.models.model_config import ModelConfig

TOY = toy_classification(train=120, test=60, authors=6)


def build_federation(type: str, corpus: Corpus = TOY, **options: Any) -> Federation:
    config = SMALL if corpus.task == "classification" else {"n_embd": 16, "n_layer": 1, "n_head": 2}
    return federate_corpus(ModelConfig("tiny", 24, config=config), corpus, ComponentConfig(type, options), Seed(7))


def test_drift_gives_a_client_new_rows_in_every_phase() -> None:
    federation = build_federation("drift", clients=3, phases=3, rounds_per_phase=2)
    client = federation.clients[1]
    participants = [federation.context(client, r, "fedavg.train").participant for r in range(7)]
    rows = [participant.split("train").rows.tolist() for participant in participants]
    assert rows[0] == rows[1] != rows[2] == rows[3]
    assert rows[4] == rows[5] == rows[6], "the last phase does not end"
    assert sorted(rows[0] + rows[2] + rows[4]) == sorted(federation.partition.train[1].tolist())
    assert [participant.size for participant in participants] == [len(r) for r in rows]
    tests = [participant.split("test").rows.tolist() for participant in participants]
    assert sorted(tests[0] + tests[2] + tests[4]) == sorted(federation.partition.test[1].tolist())


def test_drift_changes_the_model_from_the_second_phase_on() -> None:
    federation = build_federation("drift", clients=3, phases=2, rounds_per_phase=1)
    (group,) = federation.groups
    static_group = dataclasses.replace(
        group, partition=dataclasses.replace(group.partition, rounds_per_phase=0)
    )  # stays in the first phase
    static = dataclasses.replace(federation, groups=(static_group,))
    solver = Solver(optimizer="sgd", lr=0.1, batch=8)
    after_drift, after_static = (run_rounds(f, fedavg(solver), 2).state.params.flat for f in (federation, static))
    first_drift, first_static = (run_rounds(f, fedavg(solver), 1).state.params.flat for f in (federation, static))
    assert torch.equal(first_drift, first_static), "the first phase is the same"
    assert not torch.equal(after_drift, after_static)


def test_language_modeling_groups_texts_within_a_phase_only() -> None:
    corpus = toy_lm(train=60, test=24, authors=6)
    federation = build_federation("drift", corpus, clients=2, phases=3, rounds_per_phase=1, by="domain")
    pieces, train = federation.features.columns["input_ids"], federation.groups[0].train
    phase_rows = [
        federation.participant(federation.clients[k], r).split("train").rows for k in range(2) for r in range(3)
    ]
    assert sorted(np.concatenate(phase_rows).tolist()) == sorted(train.rows[: int(train.offsets[-1])].tolist())
    tokens = sum(len(pieces[int(row)]) for row in train.rows[: int(train.offsets[-1])])
    without_phases = build_federation("label", corpus, clients=2, by="domain")
    rows, ids = without_phases.groups[0].train, without_phases.features.columns["input_ids"]
    assert tokens == pytest.approx(sum(len(ids[int(r)]) for r in rows.rows[: int(rows.offsets[-1])]), abs=6)


def test_server_and_clients_share_the_public_texts() -> None:
    federation = build_federation("multi_domain", alpha=50.0)
    for participant in (federation.participant("mail"), federation.server_participant):
        assert np.array_equal(participant.split("public").rows, federation.partition.public)
    assert federation.partition.public is not None
    assert not set(federation.participant("mail").split("train").rows) & set(federation.partition.public)
    assert federation.server_participant.size == len(federation.partition.train.rows)
    assert "public" not in build_federation("uniform", clients=3).participant("client-0").splits


def test_global_test_set_is_the_union_of_merged_local_tests() -> None:
    federation = build_federation("label", clients=3, merge=True, local_test=0.25)
    global_test = federation.server_participant.split("global").rows
    assert sorted(global_test) == sorted(federation.partition.test.rows)
    assert not set(global_test) & set(federation.partition.train.rows)
    other = build_federation("uniform", clients=3, merge=True, local_test=0.25)
    assert len(other.server_participant.split("global")) == len(global_test)
    assert other.test_digest != federation.test_digest, "runs with other test texts are not compared text by text"
    default = build_federation("label", clients=3)
    assert default.test_digest == build_federation("uniform", clients=3).test_digest
    assert default.server_participant.split("global").rows.tolist() == list(range(120, 180))
