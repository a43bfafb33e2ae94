"""Attack the model of a finished run, to compare the privacy that it claims with the privacy that it has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from motet.core.errors import ConfigError
from motet.core.rebased import ModelParams
from motet.experiment.build.federation import Federation
from motet.experiment.commands.canary_audit import CanaryResult, audit_canaries
from motet.experiment.commands.run_folder import load_summary
from motet.experiment.commands.run_models import RunModels
from motet.experiment.commands.token_recovery import TokenRecovery, recover_tokens
from motet.learning.context import Context
from motet.learning.data.features import Examples
from motet.learning.executors.serial_executor import SerialExecutor
from motet.privacy.membership_inference import MembershipResult, infer_membership
from motet.report.privacy_plot import draw_privacy_audit
from motet.transport.json_files import write_json

AUDIT_FILE, FIGURE_FILE = "privacy_audit.json", "privacy_audit.png"
DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class PrivacyAudit:
    """The results of all attacks on a run, and the ε that it claims; None where an attack does not apply."""

    membership: MembershipResult
    canaries: CanaryResult | None
    tokens: TokenRecovery | None
    claimed_epsilon: float | None
    is_seeded: bool = False  # the noise can be computed from the recipe


def audit_privacy(folder: Path, limit: int = 2000, canaries: int = 500, batch: int = 4) -> PrivacyAudit:
    """Attack a finished simulation, and write the results and a figure to its folder."""
    models = RunModels(folder, needs_data=True)
    federation = models.federation
    if not isinstance(federation, Federation) or not models.has_model(None):
        raise ConfigError(
            f"'{folder}' has no global model with training texts on this machine; audit a simulation with a global model."
        )
    privacy, plan = models.plan.components.privacy, models.plan
    executor = SerialExecutor(torch.device("cpu"))
    claimed = ((load_summary(folder) or {}).get("privacy") or {}).get("epsilon")
    audit = PrivacyAudit(
        membership=_attack_membership(models, federation, executor, limit),
        canaries=audit_canaries(plan, federation, canaries) if privacy is not None and canaries else None,
        tokens=recover_tokens(federation, executor, privacy, batch, plan.cohort_size, models.config.seed),
        claimed_epsilon=claimed,
        is_seeded=privacy is not None and privacy.seeded,
    )
    write_json(folder / AUDIT_FILE, asdict(audit))
    draw_privacy_audit(_figure_bars(audit), _figure_shares(audit), folder / FIGURE_FILE)
    return audit


def _attack_membership(
    models: RunModels, federation: Federation, executor: SerialExecutor, limit: int
) -> MembershipResult:
    """Attack the global model with membership inference.

    The score of a text is how much its loss fell during training. This calibrates for texts that are easy for every
    model (Watson et al. 2022).
    """
    context = federation.server_context(0)
    rng = np.random.default_rng(models.config.seed)
    splits = {name: _sample_rows(context.participant.split(name), limit, rng) for name in ("train", "global")}
    scores = {}
    for name, examples in splits.items():
        before = _losses(executor, context, federation.model.initial_params, examples)
        after = _losses(executor, context, models.build(None), examples)
        scores[name] = before - after
    privacy = models.plan.components.privacy
    return infer_membership(scores["train"], scores["global"], privacy.delta if privacy else DEFAULT_DELTA, rng)


def format_audit(audit: PrivacyAudit) -> str:
    """Describe the results of the attacks in a few lines."""
    lines = [_describe_claim(audit), _describe_membership(audit.membership)]
    if audit.canaries is not None:
        lines.append(_describe_canaries(audit.canaries))
    lines.append(_describe_tokens(audit.tokens))
    claimed, proven = audit.claimed_epsilon, _largest_bound(audit)
    if claimed is not None and proven > claimed:
        lines.append(f"The claim is wrong: ε is at least {proven:.2f}. Report this as a bug.")
    lines.append(
        "A bound says how much leaks at least. Stronger attacks may exist; a low bound does not prove privacy."
    )
    return "\n".join(lines)


def _largest_bound(audit: PrivacyAudit) -> float:
    return max(audit.membership.epsilon_bound, audit.canaries.epsilon_bound if audit.canaries else 0.0)


def _describe_claim(audit: PrivacyAudit) -> str:
    if audit.claimed_epsilon is None:
        return "The run claims no ε (privacy.type=none)."
    seeded = (
        " Its noise is seeded: anyone who knows the recipe can subtract it, so this ε does not protect against them."
    )
    return f"The run claims ε = {audit.claimed_epsilon:.2f}.{seeded if audit.is_seeded else ''}"


def _describe_membership(result: MembershipResult) -> str:
    verdict = " This attack learns almost nothing; a stronger one may learn more." if result.auc < 0.55 else ""
    return (
        f"Membership inference on {result.members} training texts and {result.non_members} others: "
        f"AUC {result.auc:.3f} (0.5: no better than chance). {result.true_positive_rate:.1%} of the training texts are "
        f"recognized, and {result.false_positive_rate:.1%} of the others are mistaken for training texts. If the texts were "
        f"divided at random, ε is at least {result.epsilon_bound:.2f} (95 % confidence).{verdict}"
    )


def _describe_canaries(result: CanaryResult) -> str:
    return (
        f"Canaries: for {result.accuracy:.1%} of {result.canaries} clients with known updates, the attack guessed correctly "
        f"whether they had sent their update ({result.repetitions} repetitions of the run's noise). ε is at least "
        f"{result.epsilon_bound:.2f} (95 % confidence). If the noise is Gaussian, it is about {result.gaussian_epsilon:.1f}."
    )


def _describe_tokens(result: TokenRecovery | None) -> str:
    if result is None:
        return "Tokens from gradients: the embeddings are not trained, so this attack reads nothing."
    noisy = "" if result.from_noisy_mean is None else f"; with the noise of the run: {result.from_noisy_mean:.0%}"
    return (
        f"Tokens from gradients, {result.texts} texts with {result.tokens} different tokens: {result.from_update:.0%} are "
        f"read from the client's own update; {result.from_mean:.0%} from the mean of {result.clients} clients{noisy}. "
        f"By chance it would be {result.by_chance:.0%}."
    )


def _figure_bars(audit: PrivacyAudit) -> dict[str, float]:
    """Return the bars of the left panel, by label."""
    bars = {"membership:\nat least": audit.membership.epsilon_bound}
    if audit.canaries is not None:
        bars["canaries:\nat least"] = audit.canaries.epsilon_bound
        bars["canaries:\nestimate"] = audit.canaries.gaussian_epsilon
    if audit.claimed_epsilon is not None:
        bars["claimed"] = audit.claimed_epsilon
    return bars


def _figure_shares(audit: PrivacyAudit) -> dict[str, float]:
    """Return the bars of the right panel, by label."""
    if audit.tokens is None:
        return {}
    shares = {
        "by chance": audit.tokens.by_chance,
        "one update": audit.tokens.from_update,
        f"mean of {audit.tokens.clients}": audit.tokens.from_mean,
    }
    if audit.tokens.from_noisy_mean is not None:
        shares["with noise"] = audit.tokens.from_noisy_mean
    return shares


def _sample_rows(examples: Examples, limit: int, rng: np.random.Generator) -> Examples:
    if len(examples) < 20:
        raise ConfigError(f"there are {len(examples)} texts to attack; at least 20 are needed. Use more data.")
    rows = examples.rows if len(examples) <= limit else rng.choice(examples.rows, limit, replace=False)
    return Examples(examples.features, np.sort(rows))


def _losses(executor: SerialExecutor, context: Context, params: ModelParams, examples: Examples) -> np.ndarray:
    predictions = executor.run_work(context.infer(params, examples))
    if "loss" not in predictions:
        raise ConfigError(f"{context.participant.task.name} has no loss for each text; audit a run of classification.")
    losses: np.ndarray = predictions["loss"].double().cpu().numpy()
    return losses
