"""A client's policy: what a server's run may ask of it. The client checks it, and no server can loosen it.

The default is strict: secure sums with verified identities over at least three clients. The operator of a client can
allow weaker settings explicitly, with a flag of `motet join` or in a policy file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from motet.core.errors import ConfigError, PrivacyError
from motet.core.script import Reveal
from motet.experiment.build.run_components import RunComponents
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.run_config import RunConfig
from motet.experiment.recipe.yaml_files import read_user_yaml
from motet.models.model_config import ModelConfig
from motet.models.model_hash import base_model_name, hash_model

ANY = "any"
SECURE_PROTOCOLS = ("secagg", "secagg_plus", "light_secagg")
# The defaults of the protocols. With smaller numbers, fewer clients have to collude with a server to read a reply.
MIN_SUM_OPTIONS: Mapping[str, Mapping[str, float]] = {
    "secagg": {"threshold": 0.66},
    "secagg_plus": {"dropouts": 0.3},  # the number of neighbors grows with it
    "light_secagg": {"colluders": 0.5, "threshold": 0.7},
}
SHIPPED_MODELS: Mapping[str, str] = {"minilm": ANY, "tiny": ANY, "bilstm": ANY}


@dataclass(frozen=True)
class JoinPolicy:
    """The requirements of a client. Lists may contain `any`. None means no limit."""

    protocols: tuple[str, ...] = SECURE_PROTOCOLS  # `none` allows plain updates, which the server reads
    identities: bool = True  # verify the keys of all other clients with files on this machine
    min_clients: int = 3  # in a secure sum
    reveals: Literal["sums", "each"] = "sums"  # `each` allows methods with replies that the server reads one by one
    noise: tuple[str, ...] = (ANY,)  # none, central, local, distributed
    min_noise: float = 0.0  # minimum standard deviation of the noise, in units of the clip
    max_epsilon: float | None = None  # over all runs of this client
    delta: float = 1e-5  # the δ at which this client counts ε, whatever the server's is
    algorithms: tuple[str, ...] = (ANY,)
    methods: tuple[str, ...] = (ANY,)  # addresses such as fedavg.train
    models: Mapping[str, str] = field(default_factory=lambda: dict(SHIPPED_MODELS))  # name: hash of its files, or any
    evaluation: bool = True  # evaluate the model of a round on the test split
    report_utility: bool = False  # send one number about the losses of each training, by which cohorts are sampled
    seconds_between_rounds: float = 0.0
    rounds_per_day: int | None = None
    max_rounds: int | None = None  # over all runs of this client
    tokens_per_round: int | None = 10_000_000_000  # of texts that a model reads or writes, each pass counted
    bytes_per_day: int | None = None  # that leave this machine
    encrypted_state: bool = False  # join only with a key that encrypts what this client stores

    def __post_init__(self) -> None:
        unknown = [name for name in self.protocols if name not in (*SECURE_PROTOCOLS, "none", ANY)]
        if unknown:
            raise ConfigError(
                f"policy.protocols names '{unknown[0]}'; expected {', '.join(SECURE_PROTOCOLS)}, none or any."
            )
        if self.min_clients < 2:
            raise ConfigError(f"policy.min_clients is {self.min_clients}; a sum over one client hides nothing.")
        if not 0 < self.delta < 1:
            raise ConfigError(f"policy.delta is {self.delta}; expected a small probability, such as 1e-5.")

    @staticmethod
    def load(path: Path) -> JoinPolicy:
        """Read a policy file."""
        settings = read_user_yaml(path, "--policy", f"Create it with: motet policy init {path}")
        return instantiate(JoinPolicy, settings or {}, "policy")

    def allow_plain_updates(self) -> JoinPolicy:
        """Return a policy under which the server may read every update of this client."""
        return replace(self, protocols=(ANY,), reveals="each", identities=False)

    @property
    def allows_plain_updates(self) -> bool:
        return _allows(self.protocols, "none")

    def check_run(self, config: RunConfig, components: RunComponents, identities: Path | None) -> None:
        """Raise an error that lists everything in which the server's run is weaker than this policy."""
        problems = [
            *self._check_sum(config, components),
            *self._check_identities(components, identities),
            *self._check_noise(components),
            *self._check_utility(config, components),
        ]
        if not _allows(self.algorithms, config.algorithm.type):
            problems.append(
                f"the algorithm is {config.algorithm.type}; policy.algorithms has {_join_names(self.algorithms)}"
            )
        if self.max_rounds is not None and config.rounds > self.max_rounds:
            problems.append(f"the run has {config.rounds} rounds; policy.max_rounds is {self.max_rounds}")
        _refuse(problems)

    def check_state_key(self, has_key: bool) -> None:
        """Raise an error if the policy wants an encrypted state and there is no key for it."""
        if self.encrypted_state and not has_key:
            raise ConfigError("policy.encrypted_state is true; pass the key of the state with --state-key @FILE.")

    def check_methods(self, methods: Mapping[str, Reveal], data_free: Sequence[str]) -> None:
        """Raise an error if the run offers a client method that this policy does not allow.

        `data_free` are the programs with replies that contain no data: the stages of sums, and the delivery of models.
        """
        problems = []
        for address, reveals in methods.items():
            if address.partition(".")[0] in data_free:
                continue
            if not _allows(self.methods, address):
                problems.append(f"{address} is not among policy.methods ({_join_names(self.methods)})")
            if reveals == "each" and self.reveals == "sums" and not address.startswith("evaluate."):
                problems.append(
                    f"the server would read each reply of {address}; allow it with policy.reveals: each, or with "
                    "--allow-plain-updates"
                )
        _refuse(problems)

    def check_model(self, model: ModelConfig) -> None:
        """Raise an error unless the model is one of `models`, with the files that were agreed to."""
        name = base_model_name(model.name)
        if name not in self.models:
            _refuse(
                [
                    f"the server names the model '{name}'; this client loads {_join_names(self.models)}. If you know that "
                    f"model, add it to policy.models, or use --allow-model {name}"
                ]
            )
        expected = self.models[name]
        if expected == ANY:
            return
        actual = hash_model(name)
        if actual != expected:
            _refuse([f"the files of the model '{name}' have hash {actual}; policy.models has {expected}"])

    def enforce(self, components: RunComponents, identities: Path | None) -> RunComponents:
        """Return the components with this client's own minimum, identities and randomness instead of the server's."""
        if components.secure is None:
            return components
        from motet.secure.identities import Identities

        sums = components.secure
        minimum = max(self.min_clients, sums.policy.min_clients)
        return replace(
            components,
            secure=replace(
                sums,
                policy=replace(sums.policy, min_clients=minimum),
                identities=Identities(None if identities is None else str(identities)),
                seeded=False,
            ),
        )

    def _check_sum(self, config: RunConfig, components: RunComponents) -> list[str]:
        protocol, options = config.secure.type, config.secure.options
        if not _allows(self.protocols, protocol):
            if protocol == "none":
                return [
                    "secure.type is none, so the server would read every update of this client; ask for secure.type=secagg, "
                    "or allow it with --allow-plain-updates (policy.protocols: [none])"
                ]
            return [f"secure.type is {protocol}; policy.protocols has {_join_names(self.protocols)}"]
        problems = []
        if components.secure is not None and components.secure.seeded:
            problems.append("secure.seeded is true, so anybody who knows the seed can remove the masks")
        if protocol == "secagg_plus" and options.get("neighbors") is not None:
            problems.append(
                f"secure.neighbors is {options['neighbors']}; this client accepts only the number that follows from the "
                "size of a sum"
            )
        problems += [
            f"secure.{name} is {options[name]}; at least {minimum:g} is needed"
            for name, minimum in MIN_SUM_OPTIONS.get(protocol, {}).items()
            if float(options.get(name, minimum)) < minimum
        ]
        return problems

    def _check_identities(self, components: RunComponents, identities: Path | None) -> list[str]:
        if components.secure is None or not self.identities or identities is not None:
            return []
        return [
            "the keys of the other clients cannot be verified, and a malicious server could impersonate all of them; pass "
            "--identities FOLDER (see: motet identities), or allow it with --allow-unverified-peers (policy.identities: "
            "false)"
        ]

    def _check_noise(self, components: RunComponents) -> list[str]:
        privacy = components.privacy
        kind = "none" if privacy is None else privacy.trust_model
        problems = []
        if not _allows(self.noise, kind):
            problems.append(f"privacy.type is {kind}; policy.noise has {_join_names(self.noise)}")
        if privacy is not None and privacy.seeded:
            problems.append("privacy.seeded is true, so anybody who knows the seed can remove the noise")
        if privacy is None and self.max_epsilon is not None and _allows(self.noise, "none"):
            problems.append(f"there is no noise, so ε has no limit; policy.max_epsilon is {self.max_epsilon:g}")
        multiplier = 0.0 if privacy is None else privacy.noise_multiplier
        if multiplier < self.min_noise or not math.isfinite(multiplier):
            problems.append(f"privacy.noise is {multiplier:g}; policy.min_noise is {self.min_noise:g}")
        return problems

    def _check_utility(self, config: RunConfig, components: RunComponents) -> list[str]:
        if not config.cohort.reports_utility:
            return []
        if components.secure is not None or components.privacy is not None:
            return ["cohort.oort.report_utility asks for numbers about losses that secure sums and noise hide"]
        if self.report_utility:
            return []
        return [
            "cohort.oort.report_utility is true, so the server would read a number about the losses of each training; allow "
            "it with --allow-utility-reports (policy.report_utility: true)"
        ]

    def describe(self, config: RunConfig, components: RunComponents, identities: Path | None) -> dict[str, Any]:
        """Return what this client agrees to in a run, for the person who joins and for the audit log."""
        privacy, sums = components.privacy, components.secure
        return {
            "sums": "none: the server reads every reply"
            if sums is None
            else f"{config.secure.type} over at least {sums.policy.min_clients} clients",
            "identities": "not verified" if sums is None or identities is None else f"verified with {identities}",
            "noise": "none"
            if privacy is None
            else f"{privacy.trust_model}, {privacy.noise_multiplier:g} times the clip",
            "largest ε": "no limit" if self.max_epsilon is None else f"{self.max_epsilon:g} at δ = {self.delta:g}",
            "losses": "one number for each training" if config.cohort.reports_utility else "not sent",
            "algorithm": config.algorithm.type,
            "rounds": config.rounds,
            "limits": _describe_limits(self),
        }


def choose_policy(
    path: Path | None,
    *,
    allow_plain_updates: bool,
    allow_unverified_peers: bool,
    allow_models: Sequence[str],
    allow_utility_reports: bool = False,
) -> JoinPolicy:
    """Return the policy of a file, or the default with what flags of `motet join` allow."""
    if path is not None:
        if allow_plain_updates or allow_unverified_peers or allow_models or allow_utility_reports:
            raise ConfigError(
                f"join: --policy replaces the options --allow-…; use one of them. Write what you allow into {path}."
            )
        return JoinPolicy.load(path)
    policy = JoinPolicy(identities=not allow_unverified_peers, report_utility=allow_utility_reports)
    policy = replace(policy, models={**policy.models, **dict.fromkeys(allow_models, ANY)})
    return policy.allow_plain_updates() if allow_plain_updates else policy


def _describe_limits(policy: JoinPolicy) -> str:
    limits = {
        f"{policy.seconds_between_rounds:g} s between rounds": policy.seconds_between_rounds > 0,
        f"{policy.rounds_per_day} rounds per day": policy.rounds_per_day is not None,
        f"{policy.max_rounds} rounds over all runs": policy.max_rounds is not None,
        f"{policy.bytes_per_day} bytes per day": policy.bytes_per_day is not None,
    }
    return ", ".join(text for text, is_set in limits.items() if is_set) or "none"


def _allows(allowed: Sequence[str], name: str) -> bool:
    return name in allowed or ANY in allowed


def _join_names(names: Sequence[str] | Mapping[str, str]) -> str:
    return ", ".join(names) or "nothing"


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise PrivacyError("this client's policy refuses the run: " + "; ".join(problems) + ".")
