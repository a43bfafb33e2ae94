"""Build the algorithm, codecs, secure sum and noise of a run. They are checked before any data is loaded."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import TYPE_CHECKING, Any

from motet.algorithms import ALGORITHM_REGISTRY
from motet.codecs import CODEC_REGISTRY
from motet.codecs.chain import Channel, Codec, CodecChain
from motet.core.attributes import require_parent
from motet.core.errors import ConfigError, PrivacyError
from motet.core.program import Algorithm
from motet.core.rng import Seed
from motet.core.script import all_client_methods
from motet.experiment.build.run_components import RunComponents
from motet.experiment.recipe.config_parsing import instantiate, list_parameters, look_up, look_up_type
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.solver import Solver
from motet.optim import SERVER_OPTIMIZERS
from motet.privacy import PRIVACY
from motet.robust import ROBUST
from motet.secure import SECURE

if TYPE_CHECKING:
    from motet.privacy.dp_sum import PrivateSum
    from motet.robust.robust_sum import RobustSum
    from motet.secure.protocol import SecureSum


def build_components(
    config: RunConfig, algorithm: Algorithm | None = None, channel: Channel | None = None
) -> RunComponents:
    """Build all components of a run that do not depend on its data. An algorithm or a channel may be given as an object."""
    algorithm, channel = algorithm or build_algorithm(config), channel or build_channel(config)
    return RunComponents(
        algorithm=algorithm,
        channel=channel,
        secure=build_secure(config, algorithm, channel),
        privacy=build_privacy(config, algorithm),
        robust=build_robust(config, algorithm),
    )


def build_algorithm(config: RunConfig) -> Algorithm:
    """Build the algorithm with its defaults, overridden by the recipe."""
    name = config.algorithm.type
    factory = ALGORITHM_REGISTRY.get(name, "algorithm.type")
    parameters = list_parameters(factory)
    fixed: dict[str, Any] = {"solver": build_solver(config)}
    if "server" in parameters:
        fixed["server"] = _build_server_optimizer(config, parameters["server"])
    elif config.server:
        raise ConfigError(
            f"{name} has no server optimizer, so server.{next(iter(config.server))} has no effect; remove it."
        )
    algorithm: Algorithm = instantiate(factory, config.algorithm.options, name, fixed)
    require_parent(algorithm, Algorithm, f"algorithm.type={name}")
    return algorithm


def build_solver(config: RunConfig) -> Solver:
    """Build the solver that the recipe gives to its algorithm: the algorithm's default, with the recipe's changes."""
    name = config.algorithm.type
    parameter = list_parameters(ALGORITHM_REGISTRY.get(name, "algorithm.type")).get("solver")
    if parameter is None or not isinstance(parameter.default, Solver):
        raise ConfigError(
            f"algorithm.type={name}: its function has no parameter 'solver' with a default, so a recipe cannot say how "
            "clients train; add: solver: Solver = Solver()"
        )
    options = dataclasses.asdict(parameter.default)
    optimizer = config.solver.get("optimizer", options["optimizer"])
    if optimizer != options["optimizer"] and "lr" not in config.solver:
        options["lr"] = None  # the default learning rate of the other optimizer
    return instantiate(Solver, {**options, **config.solver}, "solver")


def _build_server_optimizer(config: RunConfig, parameter: inspect.Parameter) -> Any:
    default: Any = parameter.default
    overrides = dict(config.server)
    name = overrides.pop("type", None)
    kind = type(default) if name is None else look_up(SERVER_OPTIMIZERS, name, "server.type")
    options = dict(vars(default)) if kind is type(default) else {}
    return instantiate(kind, {**options, **overrides}, "server")


def resolve_defaults(config: RunConfig, algorithm: Algorithm | None = None) -> RunConfig:
    """Return the configuration with the algorithm's defaults written out. Pass `algorithm` if it is built already."""
    algorithm, solver = algorithm or build_algorithm(config), build_solver(config)
    solver_options = {**dataclasses.asdict(solver), "lr": solver.learning_rate}
    del solver_options["proximal_mu"]  # set by the algorithm, not by the recipe
    server_options: dict[str, Any] = {}
    parameter = list_parameters(ALGORITHM_REGISTRY.get(config.algorithm.type, "algorithm.type")).get("server")
    if parameter is not None:
        server = _build_server_optimizer(config, parameter)
        name = next(n for n, kind in SERVER_OPTIMIZERS.items() if isinstance(server, kind))
        server_options = {"type": name, **dataclasses.asdict(server)}
    frozen = [term for term in algorithm.frozen.terms if term not in config.model.freeze]
    model = dataclasses.replace(config.model, freeze=(*config.model.freeze, *frozen))
    return dataclasses.replace(config, solver=solver_options, server=server_options, model=model)


def build_channel(config: RunConfig) -> Channel:
    """Build the codecs of both directions."""
    up, down = _build_chain(config.codec.up), _build_chain(config.codec.down)
    if down.updates_only_codecs:
        codec = down.updates_only_codecs[0]
        raise ConfigError(
            f"codec: {codec} is for updates, and the server sends weights; "
            f"give each direction its codecs: codec: {{up: [{codec}], down: [float16]}}"
        )
    if up.updates_only_codecs and config.algorithm.options.get("sends") == "weights":
        raise ConfigError(
            f"codec: {up.updates_only_codecs[0]} cannot encode weights, and algorithm.sends is weights; "
            "set algorithm.sends=updates."
        )
    return Channel(up, down, Seed(config.seed).derive("codec"))


def _build_chain(codecs: tuple[ComponentConfig, ...]) -> CodecChain:
    built = [instantiate(CODEC_REGISTRY.get(c.type, "codec"), c.options, f"codec {c.type}") for c in codecs]
    for codec, config in zip(built, codecs, strict=True):
        require_parent(codec, Codec, f"codec {config.type}")
    return CodecChain(tuple(built))


def build_secure(config: RunConfig, algorithm: Algorithm, channel: Channel) -> SecureSum | None:
    """Build the secure sum that replaces plain sums; None if the recipe has none."""
    factory = look_up_type(SECURE, config.secure.type, config.secure.options, "secure")
    secure: SecureSum | None = instantiate(factory, config.secure.options, "secure", {"codecs": channel.up})
    if secure is None:
        return None
    _require_sums(algorithm, f"secure.type={config.secure.type} reveals only sums", "secure.type=none")
    if not_additive := [codec.name for codec in channel.up.codecs if not codec.is_additive]:
        raise PrivacyError(
            f"codec {not_additive[0]} is not additive, so masks would not cancel (secure.type={config.secure.type}); "
            "leave it out (masked numbers always take 32 bits), or set secure.type=none."
        )
    minimum = secure.policy.min_clients
    sizes = {"cohort.size": config.cohort.size, "evaluation.clients": config.evaluation.clients}
    for path, size in sizes.items():
        if size is not None and size < minimum:
            raise ConfigError(
                f"{path} is {size}, but a secure sum needs at least {minimum} clients (secure.min_clients)."
            )
    return secure


def build_privacy(config: RunConfig, algorithm: Algorithm) -> PrivateSum | None:
    """Build the noise of differential privacy; None if the recipe has none."""
    factory = look_up_type(PRIVACY, config.privacy.type, config.privacy.options, "privacy")
    privacy: PrivateSum | None = instantiate(factory, config.privacy.options, "privacy")
    if privacy is None:
        return None
    _require_sums(algorithm, f"privacy.type={config.privacy.type} adds noise to sums", "privacy.type=none")
    if algorithm.sends_weights_first:
        raise PrivacyError(
            f"{algorithm.name} weights clients by their losses, and privacy.type={config.privacy.type} needs equal "
            "weights; set algorithm.weighting=equal, or privacy.type=none."
        )
    privacy.require_secure_sum(config.secure.type != "none", "secure.type is none")
    return privacy


def build_robust(config: RunConfig, algorithm: Algorithm) -> RobustSum | None:
    """Build the robust aggregation rule; None if the recipe has none."""
    factory = look_up_type(ROBUST, config.robust.type, config.robust.options, "robust")
    robust: RobustSum | None = instantiate(factory, config.robust.options, "robust")
    if robust is None:
        return None
    name = config.robust.type
    _require_sums(algorithm, f"robust.type={name} replaces sums", "robust.type=none")
    _check_masked_rule(config, robust)
    if config.privacy.type == "central":
        raise PrivacyError(
            f"robust.type={name} is not the mean that central noise is calibrated for; privacy.clip already bounds every "
            "reply. Use privacy.type=local, or robust.type=none."
        )
    if robust.limits.max_norm < math.inf and config.algorithm.options.get("sends") == "weights":
        raise ConfigError(
            "robust.max_norm bounds updates, and algorithm.sends is weights; set algorithm.sends=updates."
        )
    return robust


def _check_masked_rule(config: RunConfig, robust: RobustSum) -> None:
    """Reject a rule that needs what masks hide, and groups that have no use."""
    name, secure = config.robust.type, config.secure.type
    if robust.groups and secure == "none":
        raise ConfigError(
            f"robust.groups is {robust.groups}, and secure.type is none: robust.type={name} then sees every reply, which "
            "is better than sums of groups. Remove robust.groups, or set secure.type=secagg."
        )
    if robust.groups and config.privacy.type != "none":
        raise PrivacyError(
            f"robust.groups is {robust.groups}, so every group has its own noisy sum, and privacy.type="
            f"{config.privacy.type} counts ε for one sum over all clients. Set privacy.type=none, or robust.type=none."
        )
    if robust.uses_reference and config.privacy.type != "none":
        raise PrivacyError(
            f"robust.type={name} compares the directions of individual updates, which "
            f"privacy.type={config.privacy.type} hides. Set privacy.type=none, or another robust.type."
        )
    if secure == "none" or robust.groups:
        return
    remedy = "" if robust.rule is None else "Compare the sums of groups instead, with robust.groups=5. "
    raise PrivacyError(
        f"robust.type={name} compares the replies of individual clients, and secure.type={secure} hides them. {remedy}Or "
        "bound them with secure.range and secure.max_weight, which every opened sum is checked against, or set "
        "secure.type=none."
    )


def _require_sums(algorithm: Algorithm, reason: str, remedy: str) -> None:
    """Reject an algorithm that reads the replies of individual clients."""
    single = [name for name, reveals in all_client_methods(algorithm).items() if reveals == "each"]
    if single:
        raise PrivacyError(
            f"{algorithm.name} reads the replies of individual clients ({', '.join(single)}), and {reason}; "
            f"choose another algorithm, or {remedy}."
        )
