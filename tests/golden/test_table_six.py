"""FedSplitBERT's Table VI, number by number, and what it leaves out."""

from __future__ import annotations

import pytest
import torch
import transformers as hf

from motet.algorithms import fedadam, fedavg, fedprox, fedsplit
from motet.algorithms.fedavg import FedAvg
from motet.codecs import CODECS, Channel, CodecChain
from motet.core.layers import Layers
from motet.core.params import Layout
from motet.experiment.build.traffic_estimate import round_bytes
from motet.learning.modules.model import Model
from motet.models.parameter_roles import infer_parameter_roles

LAYER, POOLER, HEAD, EMBEDDINGS = 7_087_872, 590_592, 1_538, 23_837_184
HALF = Channel(*[CodecChain((CODECS["float16"](),))] * 2)


@pytest.fixture(scope="module")
def bert() -> Model:
    with torch.device("meta"):
        module = hf.AutoModelForSequenceClassification.from_config(hf.BertConfig(num_labels=2))
    return Model("bert-base", module, infer_parameter_roles(module).roles)


@pytest.fixture(scope="module")
def frozen(bert: Model) -> Layout:
    return bert.layout.select_layers(~Layers.parse("embeddings"))


# method, channel, scalars that travel one way a client, bytes the table counts, gigabytes it prints, rounds to 84 % on MRPC
ROWS = {
    "fedavg": (fedavg(), Channel(), 12 * LAYER + POOLER + HEAD, 3 * 4 * (12 * LAYER + POOLER + HEAD), 1.03, 6, 1.0),
    "fedprox": (fedprox(), Channel(), 12 * LAYER + POOLER + HEAD, 3 * 4 * (12 * LAYER + POOLER + HEAD), 1.03, 6, 1.0),
    "fedadam": (fedadam(), Channel(), 12 * LAYER + POOLER + HEAD, 5 * 4 * 12 * LAYER, 1.7, 2, 1.8),
    "fedsplit": (fedsplit(c=6), Channel(), 6 * LAYER, 3 * 4 * 6 * LAYER, 0.51, 2, 6.1),
    "fedsplit, 16 bit": (fedsplit(c=6), HALF, 6 * LAYER, 3 * 2 * 6 * LAYER, 0.26, 2, 11.9),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_table_comes_out_as_printed_and_the_truth_stands_beside_it(name: str, frozen: Layout) -> None:
    algorithm, channel, scalars, counted, printed, rounds, gain = ROWS[name]
    cost = round_bytes(algorithm, frozen, 3, channel)
    assert cost.table_six == counted
    digits = 1 if name == "fedadam" else 2
    assert round(cost.table_six / 1e9, digits) == printed
    # The gains are those of the rounded numbers: 6·1.03 GB of FedAvg against so many rounds of the printed value.
    assert round(6 * 1.03 / (rounds * printed), 1) == gain
    width = 2 if channel is HALF else 4
    assert cost.up == cost.down == 3 * width * scalars


def test_fedadam_really_costs_what_fedavg_costs(frozen: Layout) -> None:
    first, second = (round_bytes(a, frozen, 3) for a in (fedavg(), fedadam()))
    assert (first.up, first.down) == (second.up, second.down)


@pytest.mark.parametrize(("c", "megabytes"), [(4, 340.2), (6, 510.3), (8, 680.4), (10, 850.5)])
def test_megabytes_by_critical_layer_are_those_of_the_figures(c: int, megabytes: float, frozen: Layout) -> None:
    assert round(round_bytes(fedsplit(c=c), frozen, 3).table_six / 1e6, 1) == megabytes


def test_shared_embeddings_are_paid_for_though_the_table_does_not_count_them(bert: Model) -> None:
    split: FedAvg = fedsplit(c=6, embeddings="global")
    cost = round_bytes(split, bert.layout, 3)
    assert cost.up == 3 * 4 * (6 * LAYER + EMBEDDINGS)
    assert round(cost.up / 1e9, 2) == 0.80
    assert cost.table_six == 3 * 4 * 6 * LAYER


def test_all_twelve_layers_bring_pooler_and_classifier_along(frozen: Layout) -> None:
    assert round_bytes(fedsplit(c=12), frozen, 3) == round_bytes(fedavg(), frozen, 3)
