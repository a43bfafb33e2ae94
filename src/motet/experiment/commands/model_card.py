"""The model card of an exported model: a README.md that the Hugging Face hub shows, with how the model was trained."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

import motet
from motet.core.script import ClientId
from motet.experiment.recipe.run_config import RunConfig
from motet.models.load_model import AUTO_CLASSES
from motet.models.model_config import AdapterConfig

_PIPELINE_TAGS = {
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForCausalLM": "text-generation",
}
MAX_LISTED_SCORES = 12


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a user of a model must know: its data, its training, its scores and its limits."""

    algorithm: str
    task: str
    base_model: str
    data: str
    max_tokens: int
    rounds: int | None = None
    clients: int | None = None
    client: ClientId | None = None  # whose personal model it is; None: the common model
    scores: Mapping[str, float] = field(default_factory=dict)
    evaluated_on: str = "the global test set"
    privacy: Mapping[str, Any] = field(default_factory=dict)  # settings of the noise, and epsilon
    secure: str = "none"
    adapter: str = ""  # kind and settings of the adapters that were trained; empty: the model itself was
    has_adapters: bool = False  # the folder holds adapters alone
    scores_before: Mapping[str, float] = field(default_factory=dict)  # of the model before training
    command: str = ""

    def for_client(self, client: ClientId, scores: Mapping[str, float] | None = None) -> ModelCard:
        """Return the card of a client's personal model, with its scores if they are known."""
        evaluated_on = "the client's held-out examples"
        return replace(self, client=client, scores=scores or {}, scores_before={}, evaluated_on=evaluated_on)

    def render(self) -> str:
        tag = pipeline_tag(self.task)
        header = {
            "library_name": "peft" if self.has_adapters else "transformers",
            **({"base_model": self.base_model} if self.has_adapters else {}),
            **({"pipeline_tag": tag} if tag else {}),
            "tags": ["federated-learning", "motet", self.algorithm],
        }
        owner = f" of {self.client}" if self.client else ""
        lines = [f"- {name}: {text}" for name, text in self._facts().items()]
        parts = [
            f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---",
            f"# {self.base_model}, trained with {self.algorithm}",
            f"The model{owner} after federated training with Motet {motet.__version__}. The texts of the clients stayed "
            "where they are.",
            "\n".join(lines),
            *self._render_scores(),
            self._render_usage(),
        ]
        if self.command:
            parts.append(f"Repeat the training:\n\n```\n{self.command}\n```")
        return "\n\n".join(parts) + "\n"

    def _render_usage(self) -> str:
        if pipeline_tag(self.task) != "text-generation":
            return f"Texts are cut at {self.max_tokens} tokens, as in training. Pass `truncation=True` to a pipeline."
        if self.has_adapters:
            code = "peft.AutoPeftModelForCausalLM.from_pretrained(FOLDER)"
            return f"Load the adapters with their base model:\n\n```python\nimport peft\n\nmodel = {code}\n```"
        return 'Load it with `transformers.pipeline("text-generation", model=FOLDER)`.'

    def _facts(self) -> dict[str, str]:
        noise = str(self.privacy.get("type", "none"))
        epsilon = f", ε = {self.privacy['epsilon']:.3g}" if "epsilon" in self.privacy else ""
        delta = f" at δ = {self.privacy['delta']:g}" if epsilon and self.privacy.get("delta") else ""
        facts = {
            "task": self.task,
            "base model": self.base_model,
            "adapters": self.adapter,
            "data": self.data,
            "clients": "" if self.clients is None else str(self.clients),
            "rounds": "" if self.rounds is None else str(self.rounds),
            "longest text": f"{self.max_tokens} tokens",
            "differential privacy": "none" if noise == "none" else f"{noise}{epsilon}{delta}",
            "secure aggregation": self.secure,
        }
        return {name: text for name, text in facts.items() if text}

    def _render_scores(self) -> list[str]:
        scores = {name: value for name, value in self.scores.items() if isinstance(value, int | float)}
        if not scores:
            return []
        shown = list(scores.items())[:MAX_LISTED_SCORES]
        if self.scores_before:
            before = {name: f"{value:.4f}" for name, value in self.scores_before.items()}
            rows = [f"| {name} | {before.get(name, '–')} | {value:.4f} |" for name, value in shown]
            table = ["| metric | before training | after |", "| --- | ---: | ---: |", *rows]
        else:
            rows = [f"| {name} | {value:.4f} |" for name, value in shown]
            table = ["| metric | value |", "| --- | ---: |", *rows]
        return [f"Scores on {self.evaluated_on}:", "\n".join(table)]


def pipeline_tag(task: str) -> str | None:
    """Return what the hub calls a task of Motet; None if it has no name for it."""
    return _PIPELINE_TAGS.get(AUTO_CLASSES.get(task, ""))


def _describe_adapter(adapter: AdapterConfig | None) -> str:
    if adapter is None:
        return ""
    if adapter.type == "prompt":
        return f"prompt, {adapter.tokens} virtual tokens"
    layers = ", ".join(adapter.targets) or "all linear layers"
    return f"{adapter.type}, rank {adapter.rank}, alpha {adapter.scaling_alpha}, {layers}"


def describe_run(config: RunConfig, summary: Mapping[str, Any], folder: Path | None = None) -> ModelCard:
    """Return the card of a run's common model. `summary` is empty if the run is not finished."""
    settings, first = config.to_dict(), config.client_groups[0]
    command = ["motet", "run", str(folder / "config.yaml")] if folder is not None else []
    return ModelCard(
        algorithm=config.algorithm.type,
        task=str(summary.get("task") or first.task.type),
        base_model=str(summary.get("model") or first.model.name),
        data=str(summary.get("dataset") or first.data.name or Path(first.data.path or "own data").name),
        max_tokens=first.model.max_tokens,
        rounds=summary.get("kept_round", config.rounds),
        clients=summary.get("clients"),
        scores=summary.get("final", {}),
        scores_before=summary.get("initial", {}),
        adapter=_describe_adapter(first.model.adapter),
        privacy=summary.get("privacy", settings["privacy"]),
        secure=str(settings["secure"]["type"]),
        command=shlex.join(command),
    )
