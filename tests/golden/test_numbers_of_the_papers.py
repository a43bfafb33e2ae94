"""Numbers computed by hand or printed in the papers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as hf

from motet.algorithms.atc.synthetic_states import Between
from motet.core.layers import Layers
from motet.core.params import Params
from motet.core.rng import Seed
from motet.learning.modules.model import Model
from motet.learning.objectives.atc_objectives import contrastive_loss
from motet.models.encoder_decoder import init_encoder_decoder
from motet.models.multitask import MultiTaskModel
from motet.models.parameter_roles import infer_parameter_roles
from motet.optim import Adagrad, Adam, Apply, Momentum, Yogi
from motet.partitions.dirichlet import assign_rows, sample_mixtures

ZERO = Params.from_tensors({"x": torch.zeros(2, dtype=torch.float64)})
UPDATE = Params.from_tensors({"x": torch.tensor([0.1, -0.2], dtype=torch.float64)})


def test_fedadams_first_step() -> None:
    rule = Adam(lr=0.01)
    moved, _ = rule.step(ZERO, UPDATE, rule.init(ZERO))
    assert moved.flat.tolist() == pytest.approx([0.00905028, -0.00951261], abs=5e-9)


def test_fedyogis_and_fedadagrads_first_steps_follow_their_equations() -> None:
    delta, tau = np.array([0.1, -0.2]), 1e-3
    for rule, second in (
        (Yogi(lr=0.01), tau**2 - 0.01 * delta**2 * np.sign(tau**2 - delta**2)),
        (Adagrad(lr=0.01), tau**2 + delta**2),
    ):
        moved, _ = rule.step(ZERO, UPDATE, rule.init(ZERO))
        first = (1 - rule.beta1) * delta
        assert moved.flat.tolist() == pytest.approx((0.01 * first / (np.sqrt(second) + tau)).tolist(), rel=1e-9)


def test_server_momentum_starts_with_the_update_and_remembers() -> None:
    rule = Momentum()
    once, speed = rule.step(ZERO, UPDATE, rule.init(ZERO))
    assert torch.equal(once.flat, UPDATE.flat)
    twice, _ = rule.step(once, UPDATE, speed)
    assert twice.flat.tolist() == pytest.approx((UPDATE.flat * 2.9).tolist())


def test_applying_with_rate_one_is_the_plain_average() -> None:
    assert torch.equal(Apply().step(ZERO, UPDATE, None)[0].flat, UPDATE.flat)


def distilbert(*freeze: str) -> Model:
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
def test_freezing_distilbert_leaves_what_fednlp_counts(freeze: tuple[str, ...], scalars: int, megabytes: float) -> None:
    layout = distilbert(*freeze).layout
    assert layout.size == scalars
    assert round(4 * layout.size / 1e6, 1) == megabytes


def sizes(model: Model) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, p in model.module.named_parameters():
        part = model.roles[name].removesuffix(".norm")
        found[part] = found.get(part, 0) + p.numel()
    return found


def test_parameter_counts_of_bert_base_and_bert_tiny() -> None:
    with torch.device("meta"):
        base = hf.AutoModelForSequenceClassification.from_config(hf.BertConfig())
        tiny = hf.AutoModelForSequenceClassification.from_config(
            hf.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
        )
    found = sizes(Model("base", base, infer_parameter_roles(base).roles))
    assert (found["embeddings"], found["layers.7"], found["pooler"]) == (23_837_184, 7_087_872, 590_592)
    assert sum(found.values()) - found["head"] == 109_482_240
    small = sizes(Model("tiny", tiny, infer_parameter_roles(tiny).roles))
    assert (small["embeddings"], small["layers.1"], small["pooler"]) == (3_972_864, 198_272, 16_512)
    assert small["embeddings"] + small["layers.0"] + small["layers.1"] == 4_369_408


def jensen_shannon(ratios: np.ndarray) -> np.ndarray:
    """All pairs of rows; the distance, in nats."""
    p, q = ratios[:, None], ratios[None]
    mean = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        halves = [np.where(x > 0, x * np.log(x / mean), 0).sum(-1) for x in (p, q)]
    found: np.ndarray = np.sqrt(np.maximum(0, (halves[0] + halves[1]) / 2))
    return found


@pytest.mark.parametrize(
    ("alpha", "distance", "share", "present"),
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
def test_label_skew_has_the_statistics_of_the_specification(
    alpha: float, distance: float, share: float, present: float
) -> None:
    """20 labels × 565 examples over 100 clients.

    The specification gives means of three seeds. From seed to seed the number of labels deviates by 0.5 and the largest
    share by 0.05 at small alpha, so two means of three seeds may differ by more than the specified 3%.
    """
    ids = np.repeat(np.arange(20), 565)
    statistics = []
    for seed in range(6):
        q = sample_mixtures(np.full(20, 0.05), alpha, 100, np.random.default_rng(seed))
        clients = assign_rows(ids, q, np.random.default_rng(100 + seed), "largest_remainder")
        ratios = np.stack([np.bincount(ids[clients[k]], minlength=20) / len(clients[k]) for k in range(100)])
        gaps = jensen_shannon(ratios)[np.triu_indices(100, 1)]
        statistics.append((gaps.mean(), np.median(ratios.max(1)), (ratios > 0).sum(1).mean()))
    gap, largest, labels = np.mean(statistics, axis=0)
    assert gap == pytest.approx(distance, rel=0.05)
    assert largest == pytest.approx(share, rel=0.08)
    assert labels == pytest.approx(present, rel=0.17)


def test_sequential_rounding_starves_the_last_labels_as_published() -> None:
    ids = np.repeat(np.arange(20), 565)
    q = sample_mixtures(np.full(20, 0.05), 1e6, 100, np.random.default_rng(0))
    clients = assign_rows(ids, q, np.random.default_rng(1), "sequential")
    ratios = np.stack([np.bincount(ids[clients[k]], minlength=20) / len(clients[k]) for k in range(100)])
    assert jensen_shannon(ratios)[np.triu_indices(100, 1)].mean() == pytest.approx(0.089, rel=0.05)
    assert (ratios > 0).sum(1).mean() == pytest.approx(18.2, rel=0.02)


# ---- ATC ------------------------------------------------------------------------------------------------------------


def test_atcs_contrastive_loss() -> None:
    mine, near = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.7, 0.7]])  # the mean of (.8, .6) and (.6, .8)
    far = torch.tensor([[[-1.0, 0.0], [0.0, 1.0]]])
    assert float(contrastive_loss(mine, near, far)) == pytest.approx(0.515490, abs=1e-6)
    assert float(contrastive_loss(mine, near, far[:, :0])) == 0.0  # no negatives


def test_the_parts_of_atcs_backbone_on_a_bert_of_two_layers_and_128() -> None:
    tokens = SimpleNamespace(cls_token_id=101, sep_token_id=102, pad_token_id=0)
    config = hf.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    with torch.device("meta"):
        module = MultiTaskModel(init_encoder_decoder(config, tokens), "classification", ("neg", "pos"))
    model = Model("mixed", module, module.parameter_roles().roles)
    sizes = {
        "encoder": 4_369_408,
        "decoder": 4_549_306,
        "encoder head": 3_954_106,
        "pooler": 16_512,
        "name:contrastive_head.*": 33_024,
    }
    assert {term: model.layout.select_layers(Layers.parse(term)).size for term in sizes} == sizes


def test_the_primary_client_counts_half_and_seventeen_share_the_rest() -> None:
    weights = torch.stack(Between(instances=200).weights(18, Seed(1)))
    assert torch.allclose(weights.sum(0), torch.ones(200))
    assert ((weights == 0.5).sum(0) == 1).all()
    assert weights.min().item() == pytest.approx(0.5 / 17)
