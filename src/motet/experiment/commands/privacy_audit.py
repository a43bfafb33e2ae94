"""Attack the model of a finished run, to compare the privacy that it claims with the privacy that it has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from motet.core.errors import ConfigError
from motet.core.rebased import ModelParams
from motet.core.work import Executor
from motet.experiment.build.federation import Federation
from motet.experiment.commands.run_folder import load_summary
from motet.experiment.commands.run_models import RunModels
from motet.experiment.loop.json_files import write_json
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import SerialExecutor
from motet.privacy.membership_inference import MembershipResult, infer_membership

AUDIT_FILE = "privacy_audit.json"
DEFAULT_DELTA = 1e-5


def audit_privacy(folder: Path, limit: int = 2000) -> tuple[MembershipResult, float | None]:
    """Attack the global model of a run with membership inference. Return the result and the ε that the run claims.

    The score of a text is how much its loss fell during training. This calibrates for texts that are easy for every
    model (Watson et al. 2022). The result is also written to the run's folder.
    """
    models = RunModels(folder)
    federation = models.federation
    if not isinstance(federation, Federation) or not models.has_model(None):
        raise ConfigError(
            f"'{folder}' has no global model with training texts on this machine; audit a simulation with a global model."
        )
    context = federation.server_context(0)
    rng = np.random.default_rng(models.config.seed)
    splits = {name: _sample_rows(context.participant.split(name), limit, rng) for name in ("train", "global")}
    executor = SerialExecutor(torch.device("cpu"))
    scores = {}
    for name, examples in splits.items():
        before = _losses(executor, context, federation.model.initial_params, examples)
        after = _losses(executor, context, models.build(None), examples)
        scores[name] = before - after
    summary = load_summary(folder) or {}
    privacy = summary.get("privacy") or {}
    result = infer_membership(scores["train"], scores["global"], float(privacy.get("delta", DEFAULT_DELTA)), rng)
    claimed = privacy.get("epsilon")
    write_json(folder / AUDIT_FILE, {**asdict(result), "claimed_epsilon": claimed})
    return result, claimed


def format_audit(result: MembershipResult, claimed: float | None) -> str:
    """Describe the result of an attack in a few lines."""
    claim = "The run claims no ε (privacy.type=none)." if claimed is None else f"The run claims ε = {claimed:.2f}."
    verdict = ""
    if claimed is not None and result.epsilon_bound > claimed:
        verdict = " The claim is wrong: report this as a bug."
    elif result.auc < 0.55:
        verdict = " This attack tells almost nothing; a stronger one may."
    return (
        f"Membership inference on {result.members} training texts and {result.non_members} others: "
        f"AUC {result.auc:.3f} (0.5: no better than chance).\n"
        f"At the calibrated threshold: {result.true_positive_rate:.1%} of the training texts are recognized, and "
        f"{result.false_positive_rate:.1%} of the others are mistaken for one.\n"
        f"With 95 % confidence ε is at least {result.epsilon_bound:.2f}. {claim}{verdict}"
    )


def _sample_rows(examples: Examples, limit: int, rng: np.random.Generator) -> Examples:
    if len(examples) < 20:
        raise ConfigError(f"there are {len(examples)} texts to attack; at least 20 are needed. Use more data.")
    rows = examples.rows if len(examples) <= limit else rng.choice(examples.rows, limit, replace=False)
    return Examples(examples.features, np.sort(rows))


def _losses(executor: Executor, context: Context, params: ModelParams, examples: Examples) -> np.ndarray:
    work = context.infer(params, examples)
    job = next(work)
    try:
        work.send(executor.run(job))
    except StopIteration as end:
        predictions = end.value
    if "loss" not in predictions:
        raise ConfigError(f"{context.participant.task.name} has no loss for each text; audit a run of classification.")
    losses: np.ndarray = predictions["loss"].double().cpu().numpy()
    return losses
