"""The parts of a run that do not depend on its data, and how noise and masks wrap the sums of its scripts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from motet.codecs.chain import Channel
from motet.core.attributes import require_parent
from motet.core.program import Algorithm, Round
from motet.core.script import ClientId, Script, client_methods, iter_programs, rewrite_sums
from motet.experiment.build.root_set import reply_from_root
from motet.learning.evaluation import DEPLOYED_SPLITS, Evaluator, ExampleEvaluator, ModelDelivery

if TYPE_CHECKING:
    from motet.privacy.dp_sum import PrivateSum
    from motet.robust.robust_sum import RobustSum
    from motet.secure.protocol import SecureSum

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RunComponents:
    """Algorithm, codecs, secure sum and noise. The server and every client build the same ones from the same recipe."""

    algorithm: Algorithm
    channel: Channel = Channel()
    secure: SecureSum | None = None
    privacy: PrivateSum | None = None
    robust: RobustSum | None = None

    def __post_init__(self) -> None:
        """Check the algorithm. Put the noise inside the secure sum, so that no run counts epsilon without adding noise."""
        require_parent(self.algorithm, Algorithm, "the algorithm")
        if self.secure is not None:
            methods = [m for p in iter_programs(self.algorithm) for m in client_methods(p).values()]
            predecessors = {method.address: method.follows for method in methods if method.follows}
            secure = replace(self.secure, down_codecs=self.channel.down, predecessors=predecessors)
            object.__setattr__(self, "secure", secure)
        if self.privacy is None:
            return
        self.privacy.require_secure_sum(self.secure is not None)
        if self.secure is not None:
            privacy = self.privacy
            secure = self.secure.with_privacy(privacy.secure_sum_noise, privacy.secure_sum_limits)
            object.__setattr__(self, "secure", secure)

    def with_noise_key(self, source: Path | bytes) -> RunComponents:
        """Return components with noise from a key, or the key in a folder, so that a repeated release has the same noise."""
        if self.privacy is None:
            return self
        from motet.privacy.noise_key import load_noise_key

        key = load_noise_key(source) if isinstance(source, Path) else source
        return replace(self, privacy=replace(self.privacy, noise_key=key))

    @property
    def client_programs(self) -> list[Any]:
        """The programs that a simulated client offers."""
        return [self.algorithm, Evaluator(self.algorithm), ExampleEvaluator(self.algorithm), *self._wrappers]

    def deployed_programs(self, evaluates: bool = True) -> list[Any]:
        """The programs that a client with its own data offers to the server.

        There is no per-example row. Metrics are computed on the test split alone. Under noise they stay on the client,
        because the privacy accountant does not count them.
        """
        if evaluates and self.privacy is None:
            return [self.algorithm, Evaluator(self.algorithm, splits=DEPLOYED_SPLITS), *self._wrappers]
        return [self.algorithm, ModelDelivery(self.algorithm), *self._wrappers]

    @property
    def _wrappers(self) -> list[Any]:
        return [wrapper for wrapper in (self.secure, self.privacy) if wrapper is not None]

    @property
    def required_wrappers(self) -> dict[str, frozenset[str]]:
        """Wrapper programs that each program must be called through."""
        secure = frozenset({self.secure.name} if self.secure else ())
        privacy = frozenset({self.privacy.name} if self.privacy else ())
        programs = {program.name: secure | privacy for program in iter_programs(self.algorithm)}
        return {**programs, "evaluate": secure, "evaluate_examples": secure, "private": secure}

    def wrap_round(
        self, script: Script[T], rnd: Round, record_sum: Callable[[Collection[ClientId], str], None]
    ) -> Script[T]:
        """Add noise to the sums of a round, and mask them. `record_sum` counts each sum for the privacy accountant."""
        if self.privacy is not None:
            script = rewrite_sums(self.privacy.make_summation(rnd.seed, record_sum), script)
        if self.robust is not None:
            reference = partial(reply_from_root, self.algorithm, rnd)
            script = rewrite_sums(self.robust.make_summation(rnd.seed, reference), script)
        return self.mask_sums(script)

    def mask_sums(self, script: Script[T]) -> Script[T]:
        """Replace the sums of a script by secure sums, if the run has them."""
        return script if self.secure is None else rewrite_sums(self.secure, script)
