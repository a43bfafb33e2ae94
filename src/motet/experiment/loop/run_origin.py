"""What a run begins with, apart from its settings. It resumes only with the same data, clients, model and seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from motet.core.errors import RunError
from motet.experiment.build.federation import Federation
from motet.experiment.build.run_plan import RunPlan
from motet.learning.custom_trainer import CustomFederation
from motet.wire.value_digest import digest_value

_ADVICE = {
    "data": "restore the files as they were when the run started",
    "clients": "divide the data as when the run started",
    "model": "use the model that the run started with",
    "seed": "use the seed that the run started with",
}


def describe_origin(plan: RunPlan) -> dict[str, str]:
    """Return digests of the data, the clients' shares of it, the untrained model and the seed, as far as they are here."""
    federation = plan.federation
    if isinstance(federation, Federation):
        groups = (*federation.groups, federation.server)
        data = {"data": digest_value([group.corpus.fingerprint for group in groups])}
        shares = [[group.partition.digest, group.clients.start, group.clients.stop] for group in groups]
        models = [group.model.initial_params for group in groups]
    elif isinstance(federation, CustomFederation):
        data = {}  # of any type
        shares = [[client, len(train)] for client, (train, _) in federation.data.items()]
        models = [federation.model.initial_params]
    else:
        return {}  # of clients that join: each of them has the data
    return {**data, "clients": digest_value(shares), "model": digest_value(models), "seed": str(federation.seed.root)}


def check_origin(stored: Mapping[str, str], origin: Mapping[str, str], folder: Path) -> None:
    """Raise an error if a run would continue with something else. Checkpoints of older versions say nothing."""
    if changed := [name for name, digest in origin.items() if stored.get(name, digest) != digest]:
        raise RunError(
            f"{folder} belongs to a run with other {', '.join(changed)}, so the result would be a mixture of two runs; "
            f"{_ADVICE[changed[0]]}, or start a new run in another folder."
        )
