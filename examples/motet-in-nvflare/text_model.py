"""The model of the job: Motet's, with Motet's training. NVFlare's server creates it too, for the first weights."""

from dataclasses import replace

import torch

import motet
from motet.core.rng import Seed

SITES = 3
SOLVER = {"optimizer": "adamw", "lr": 0.002, "batch": 16, "epochs": 2}


def keep_client(federation, index):
    """Return the federation with one of its clients."""
    [group] = federation.groups
    clients = replace(group.clients, start=index, stop=index + 1)
    return replace(federation, groups=(replace(group, clients=clients),))


class TextModel(torch.nn.Module):
    """A tiny Transformer that classifies texts, and the share of a toy corpus that belongs to one site.

    All sites need the same labels and the same tokenizer. The vocabulary of `tiny` comes from the corpus, so every site
    loads the whole corpus and trains on its share. With `minilm` and texts of its own, a site writes in place of both lines:
    motet.federation(motet.load(path="reviews.csv"), model="minilm", clients=1)
    """

    def __init__(self, site: int = 0):
        super().__init__()
        everyone = motet.federation(
            "toy-classification", model="tiny", max_tokens=32, partition="uniform", clients=SITES
        )
        self.federation = keep_client(everyone, site)
        self.module = self.federation.model.module

    @property
    def examples(self):
        return int(self.federation.groups[0].sizes.sum())

    def train_locally(self, round):
        """Train from the weights of the module for a round, change them, and return the scores on the test rows."""
        model = self.federation.model
        model.to_device(torch.device("cpu"))  # also takes over the weights that load_state_dict has written
        shuffled = replace(self.federation, seed=Seed(round))  # another order of the rows in each round
        result = motet.run(shuffled, "fedavg", rounds=1, solver=SOLVER, device="cpu", workers=0)
        with torch.no_grad():
            for name, value in result.params.tensors().items():
                model.trainable[name].copy_(value)
        return result.final
