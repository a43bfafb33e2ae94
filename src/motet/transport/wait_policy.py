"""How long the server waits for clients, and what it does about failed and late replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from motet.core.errors import ConfigError

FEDBUFF_EXPONENT = 0.5  # of the paper


@dataclass(frozen=True)
class WaitPolicy:
    """When an exchange with a cohort is complete. By default the server waits for every client.

    For over-selection, combine a larger cohort with a smaller quorum and `stop_at_quorum`.

    `staleness_exponent` makes rounds asynchronous, as in FedBuff (Nguyen et al. 2022). A late client gets no new
    request until it has replied. Its reply is added to the round in which it arrives, with its weight multiplied by (1
    + rounds late)^(-staleness_exponent). In a simulation, `buffer` lets `cohort.size` clients work at any time: a round
    ends after that many replies on the clock of the emulated network, and a client that has replied is replaced at once.
    """

    quorum: float = 1.0  # share of the cohort that must reply, or the exchange fails
    timeout: float = 3600.0  # seconds to wait for the next reply
    deadline: float | None = None  # seconds for the whole exchange
    reconnect_timeout: float = 60.0  # seconds a client may be disconnected before its request fails
    stop_at_quorum: bool = False  # continue as soon as the quorum has replied
    staleness_exponent: float | None = None  # late replies weigh (1 + rounds late)^-a; None: ignored, 0.5 with a buffer
    buffer: int | None = None  # replies of a round in an asynchronous simulation; None: a round waits for its cohort
    on_error: Literal["fail", "drop"] = "fail"  # after an error of a client: fail the run, or continue without it

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ConfigError(
                f"wait_policy.quorum is {self.quorum}; expected a share of the cohort, above 0 and at most 1."
            )
        for name in ("timeout", "deadline", "reconnect_timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigError(f"wait_policy.{name} is {seconds}; expected a number of seconds above 0.")
        if self.staleness_exponent is not None and not self.staleness_exponent >= 0:
            raise ConfigError(
                f"wait_policy.staleness_exponent is {self.staleness_exponent}; expected a number of at least 0. "
                "Leave it out to ignore late replies."
            )

        if self.buffer is not None and self.buffer < 1:
            raise ConfigError(f"wait_policy.buffer is {self.buffer}; expected a number of replies, at least 1.")

    @property
    def accepts_late_replies(self) -> bool:
        return self.staleness_exponent is not None or self.buffer is not None

    def staleness_weight(self, rounds_late: int) -> float:
        """Return the factor for the weight of a reply that is `rounds_late` rounds late."""
        if rounds_late <= 0:
            return 1.0
        exponent = FEDBUFF_EXPONENT if self.staleness_exponent is None else self.staleness_exponent
        return float((1 + rounds_late) ** -exponent) if self.accepts_late_replies else 0.0
