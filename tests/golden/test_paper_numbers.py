"""Numbers computed by hand or printed in the papers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from motet.algorithms.atc.synthetic_states import SyntheticStates
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.rng import Seed
from motet.learning.modules.model import Model
from motet.learning.objectives.atc_objectives import contrastive_loss
from motet.models.encoder_decoder import init_encoder_decoder
from motet.models.multitask import MultiTaskModel
from motet.models.parameter_roles import infer_parameter_roles
from motet.optim import SGD, Adagrad, Adam, Momentum, Yogi
from motet.partitions.dirichlet import assign_rows, sample_mixtures

ZERO = Params.from_tensors({"x": torch.zeros(2, dtype=torch.float64)})
UPDATE = Params.from_tensors({"x": torch.tensor([0.1, -0.2], dtype=torch.float64)})


# ---- server optimizers ----------------------------------------------------------------------------------------------


def test_first_step_of_fedadam() -> None:
    optimizer = Adam(lr=0.01)
    params, _ = optimizer.step(ZERO, UPDATE, optimizer.init(ZERO))
    assert params.flat.tolist() == pytest.approx([0.00905028, -0.00951261], abs=5e-9)


def test_first_steps_of_fedyogi_and_fedadagrad_follow_their_equations() -> None:
    delta, tau = np.array([0.1, -0.2]), 1e-3
    for optimizer, second_moment in (
        (Yogi(lr=0.01), tau**2 - 0.01 * delta**2 * np.sign(tau**2 - delta**2)),
        (Adagrad(lr=0.01), tau**2 + delta**2),
    ):
        params, _ = optimizer.step(ZERO, UPDATE, optimizer.init(ZERO))
        first_moment = (1 - optimizer.beta1) * delta
        expected = 0.01 * first_moment / (np.sqrt(second_moment) + tau)
        assert params.flat.tolist() == pytest.approx(expected.tolist(), rel=1e-9)


def test_server_momentum_is_the_update_in_the_first_step_and_accumulates() -> None:
    optimizer = Momentum()
    once, momentum = optimizer.step(ZERO, UPDATE, optimizer.init(ZERO))
    assert torch.equal(once.flat, UPDATE.flat)
    twice, _ = optimizer.step(once, UPDATE, momentum)
    assert twice.flat.tolist() == pytest.approx((UPDATE.flat * 2.9).tolist())


def test_sgd_with_learning_rate_one_is_the_plain_average() -> None:
    assert torch.equal(SGD().step(ZERO, UPDATE, None)[0].flat, UPDATE.flat)


# ---- parameter counts -----------------------------------------------------------------------------------------------


def make_distilbert(*freeze: str) -> Model:
    with torch.device("meta"):
        module = hf.AutoModelForSequenceClassification.from_config(hf.DistilBertConfig(num_labels=20))
    model = Model("distilbert", module, infer_parameter_roles(module).roles)
    if freeze:
        model.freeze(Layers.parse(*freeze))
    return model


@pytest.mark.parametrize(
    ("freeze", "scalars", "megabytes"),
    [
        ((), 66_968_852, 267.9),
        (("embeddings",), 43_133_204, 172.5),
        (("embeddings", "layers 0"), 36_045_332, 144.2),
        (("embeddings", "layers 0-1"), 28_957_460, 115.8),
        (("embeddings", "layers 0-2"), 21_869_588, 87.5),
        (("embeddings", "layers 0-3"), 14_781_716, 59.1),
        (("embeddings", "layers 0-4"), 7_693_844, 30.8),
        (("embeddings", "layers 0-5"), 605_972, 2.4),
    ],
)
def test_trainable_parameters_of_a_frozen_distilbert_match_fednlp(
    freeze: tuple[str, ...], scalars: int, megabytes: float
) -> None:
    layout = make_distilbert(*freeze).layout
    assert layout.size == scalars
    assert round(4 * layout.size / 1e6, 1) == megabytes


def count_by_block(module: Any) -> dict[str, int]:
    roles = infer_parameter_roles(module).roles
    counts: dict[str, int] = {}
    for name, parameter in module.named_parameters():
        block = roles[name].removesuffix(".norm")
        counts[block] = counts.get(block, 0) + parameter.numel()
    return counts


BERT_TINY = hf.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)


def test_parameter_counts_of_bert_base_and_bert_tiny() -> None:
    with torch.device("meta"):
        base, tiny = (
            count_by_block(hf.AutoModelForSequenceClassification.from_config(config))
            for config in (hf.BertConfig(), BERT_TINY)
        )
    assert (base["embeddings"], base["layers.7"], base["pooler"]) == (23_837_184, 7_087_872, 590_592)
    assert sum(base.values()) - base["head"] == 109_482_240
    assert (tiny["embeddings"], tiny["layers.1"], tiny["pooler"]) == (3_972_864, 198_272, 16_512)
    assert tiny["embeddings"] + tiny["layers.0"] + tiny["layers.1"] == 4_369_408


# ---- partitions -----------------------------------------------------------------------------------------------------


def jensen_shannon(ratios: np.ndarray) -> np.ndarray:
    """Return the Jensen-Shannon distance in nats between all pairs of rows."""
    p, q = ratios[:, None], ratios[None]
    mean = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        halves = [np.where(x > 0, x * np.log(x / mean), 0).sum(-1) for x in (p, q)]
    distances: np.ndarray = np.sqrt(np.maximum(0, (halves[0] + halves[1]) / 2))
    return distances


LABELS = np.repeat(np.arange(20), 565)  # 20 labels with 565 examples each


def label_ratios(alpha: float, mixture_seed: int, row_seed: int, rounding: Any) -> np.ndarray:
    """Divide the labels among 100 clients, and return each client's share of every label."""
    mixtures = sample_mixtures(np.full(20, 0.05), alpha, 100, np.random.default_rng(mixture_seed))
    rows = assign_rows(LABELS, mixtures, np.random.default_rng(row_seed), rounding)
    return np.stack([np.bincount(LABELS[rows[k]], minlength=20) / len(rows[k]) for k in range(100)])


def mean_distance(ratios: np.ndarray) -> float:
    return float(jensen_shannon(ratios)[np.triu_indices(100, 1)].mean())


@pytest.mark.parametrize(
    ("alpha", "distance", "largest_share", "num_labels"),
    [
        (0.1, 0.759, 0.962, 5.0),
        (0.5, 0.749, 0.662, 6.4),
        (1, 0.741, 0.556, 6.9),
        (5, 0.638, 0.299, 12.2),
        (10, 0.558, 0.221, 15.0),
        (100, 0.242, 0.097, 19.5),
        (1e6, 0.051, 0.053, 19.9),
    ],
)
def test_label_shift_has_the_statistics_of_the_specification(
    alpha: float, distance: float, largest_share: float, num_labels: float
) -> None:
    """The specification gives means over three seeds.

    At small alpha, the number of labels varies by 0.5 and the largest share by 0.05 between seeds. Two means over three
    seeds may therefore differ by more than the 3% that the specification states.
    """
    tables = [label_ratios(alpha, seed, 100 + seed, "largest_remainder") for seed in range(6)]
    assert np.mean([mean_distance(ratios) for ratios in tables]) == pytest.approx(distance, rel=0.05)
    assert np.mean([np.median(ratios.max(1)) for ratios in tables]) == pytest.approx(largest_share, rel=0.08)
    assert np.mean([(ratios > 0).sum(1).mean() for ratios in tables]) == pytest.approx(num_labels, rel=0.17)


def test_sequential_rounding_leaves_too_few_of_the_last_labels_as_published() -> None:
    ratios = label_ratios(1e6, 0, 1, "sequential")
    assert mean_distance(ratios) == pytest.approx(0.089, rel=0.05)
    assert (ratios > 0).sum(1).mean() == pytest.approx(18.2, rel=0.02)


# ---- ATC ------------------------------------------------------------------------------------------------------------


def test_contrastive_loss() -> None:
    representation, positives = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.7, 0.7]])
    negatives = torch.tensor([[[-1.0, 0.0], [0.0, 1.0]]])
    assert float(contrastive_loss(representation, positives, negatives)) == pytest.approx(0.515490, abs=1e-6)
    assert float(contrastive_loss(representation, positives, negatives[:, :0])) == 0.0, "without negatives"


def test_parameter_counts_of_the_backbone_with_bert_tiny() -> None:
    tokens = SimpleNamespace(cls_token_id=101, sep_token_id=102, pad_token_id=0)
    with torch.device("meta"):
        module = MultiTaskModel(init_encoder_decoder(BERT_TINY, tokens), "classification", ("neg", "pos"))
    model = Model("mixed", module, module.parameter_roles().roles)
    expected = {
        "encoder": 4_369_408,
        "decoder": 4_549_306,
        "encoder head": 3_954_106,
        "pooler": 16_512,
        "name:contrastive_head.*": 33_024,
    }
    assert {term: model.layout.select_layers(Layers.parse(term)).size for term in expected} == expected


def test_the_primary_client_has_half_of_the_weight_and_the_others_share_the_rest() -> None:
    weights = torch.stack(SyntheticStates(instances=200).draw_weights(18, Seed(1)))
    assert torch.allclose(weights.sum(0), torch.ones(200))
    assert ((weights == 0.5).sum(0) == 1).all()
    assert weights.min().item() == pytest.approx(0.5 / 17)
