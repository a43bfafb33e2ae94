"""For whom a server waits, how long, and what it does about those who fail or come late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from motet.core.errors import ConfigError


@dataclass(frozen=True)
class WaitPolicy:
    """By default everybody is waited for. Over-selection is a larger cohort with a smaller quorum, eagerly.

    `staleness_exponent` makes rounds asynchronous, as in FedBuff (Nguyen et al. 2022): whoever is late is not asked again before he
    has answered, and his answer is added to the round it comes in, with its weight divided by (1 + rounds late)^staleness_exponent.
    """

    quorum: float = 1.0  # the share of the cohort without which a question fails
    timeout: float = 3600.0  # seconds to wait for the next reply
    deadline: float | None = None  # seconds a question may take in all
    absence: float = 60.0  # seconds a client may be away, its link broken, before it counts as failed
    eager: bool = False  # go on as soon as the quorum has answered
    staleness_exponent: float | None = None  # None: late replies count nothing; 0.5 is FedBuff's
    on_error: Literal["fail", "drop"] = "fail"

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ConfigError(
                f"wait_policy.quorum is {self.quorum}; it is a share of the cohort, above 0 and at most 1."
            )
        for name in ("timeout", "deadline", "absence"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"wait_policy.{name} is {value}; it is a number of seconds above 0.")
        if self.staleness_exponent is not None and not self.staleness_exponent >= 0:
            raise ConfigError(
                f"wait_policy.staleness_exponent is {self.staleness_exponent}; it is an exponent of at least 0, or left out."
            )

    def counts(self, rounds_late: int) -> float:
        """What an answer counts that comes so many rounds after its question."""
        if rounds_late <= 0:
            return 1.0
        return 0.0 if self.staleness_exponent is None else float((1 + rounds_late) ** -self.staleness_exponent)
