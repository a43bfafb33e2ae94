"""A client's checks of single requests, which remember earlier ones: it answers a round once, within its limits.

What it remembers is its audit log, so that a restarted client, or a server that was started again, changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from motet.core.errors import PrivacyError
from motet.core.script import ClientId
from motet.experiment.build.run_components import RunComponents
from motet.experiment.deploy.audit_log import AuditLog, Entry
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.deploy.question import Question, digest_models, find_question
from motet.secure.sum_messages import ShareRequest, UploadRequest, topic_address
from motet.transport.display_text import clean_text
from motet.transport.requests import Reply, Request, ValueWithUtility
from motet.wire import measure_size
from motet.wire.value_digest import digest_value

DAY = 24 * 3600.0
MAX_REQUESTS, MAX_REQUESTS_PER_ROUND = 1000, 100  # many times what a run needs, also one that is often interrupted
EVALUATION, DELIVERY = "evaluate.", "deliver."  # prefixes of methods that do not train
SUM = "secure."  # prefix of the stages of secure sums, of trainings and of evaluations


class RequestGuard:
    """Checks the requests of one run before they are answered, and the replies before they leave.

    `rounds` is how many the run has, as the client agreed to.
    """

    def __init__(self, policy: JoinPolicy, audit: AuditLog, run: str, components: RunComponents, rounds: int) -> None:
        self.policy, self.audit, self.run, self.rounds = policy, audit, run, rounds
        self.noise = components.privacy and replace(components.privacy, delta=policy.delta)
        trains_first = components.secure is not None and components.secure.masking.shares_need_vector
        self.work_stage = "secure.share" if trains_first else "secure.upload"  # the stage that reads data
        self.topics: dict[ClientId, str] = {}  # what each client's secure sum is about: method and payload
        self.answered = len(self._entries("sent"))

    def admit(self, request: Request, payload: Any) -> None:
        """Raise an error unless the request may be answered. A question is written to the audit log first."""
        try:
            self._check(request, payload)
        except PrivacyError as error:
            self._log("refused", request, reason=str(error))
            raise

    def release(self, request: Request, reply: Reply) -> Reply:
        """Write to the audit log what leaves. Return the reply, or an error if the policy's bytes per day are used up."""
        self._count(request)
        size = measure_size(reply).wire
        limit = self.policy.bytes_per_day
        if limit is not None and reply.error is None and self._sum_today("sent", "bytes") + size > limit:
            reason = f"a reply of {size} bytes would exceed this client's limit of {limit} bytes per day."
            self._log("refused", request, reason=reason)
            return Reply(reply.id, reply.client, error=reason)
        outcome: dict[str, Any] = {} if reply.error is None else {"error": reply.error}
        if isinstance(reply.value, ValueWithUtility):
            outcome["utility"] = reply.value.utility
        self._log("sent", request, bytes=size, digest=digest_value(reply.value), **outcome)
        return reply

    def _count(self, request: Request) -> None:
        """End the run if the server sends requests without end, which would fill the disk with the audit log."""
        self.answered += 1
        limit = MAX_REQUESTS + MAX_REQUESTS_PER_ROUND * self.rounds
        if self.answered > limit:
            reason = f"the server has sent {self.answered} requests in a run of {self.rounds} rounds."
            self._log("refused", request, reason=reason)
            raise PrivacyError(f"{reason} At most {limit} are answered; this client leaves the run.")

    def _check(self, request: Request, payload: Any) -> None:
        self._check_round(request.round, request.address)
        if request.address == "secure.advertise":
            self.topics[request.client] = clean_text(str(payload))
        elif request.address == self.work_stage:
            if isinstance(payload, ShareRequest | UploadRequest):
                address = topic_address(self.topics.get(request.client, ""))
                self._ask(request, find_question(address, payload.payload))
        elif request.address == "secure.confirm":
            self._agree_to_survivors(request, payload)
        elif not request.address.startswith(SUM):
            self._ask(request, find_question(request.address, payload))

    def _ask(self, request: Request, question: Question) -> None:
        """Accept a question: a new one, or exactly the one that was answered before."""
        self._check_round(request.round, question.method)
        digest = digest_value(question.payload)
        earlier = self._find_earlier("asked", request.round, question.method)
        if earlier is not None and earlier["digest"] != digest:
            raise PrivacyError(
                f"this client has already answered {question.method} in round {request.round + 1}, and the server now asks "
                "it with other values; a client answers a round once."
            )
        if earlier is None:
            self._check_rate(request.round)
        models = digest_models(question.payload)
        self._check_models(request.round, question.method, models)
        spent = self._spend(question)
        self._log("asked", request, method=question.method, digest=digest, models=models, **spent)

    def _agree_to_survivors(self, request: Request, survivors: Any) -> None:
        """Sign one list of survivors in a round. The difference of two sums could be the update of one client."""
        topic, digest = self.topics.get(request.client, ""), digest_value(tuple(sorted(survivors)))
        earlier = self._find_earlier("signed", request.round, topic)
        if earlier is not None and earlier["digest"] != digest:
            raise PrivacyError(
                f"this client has already agreed to a sum of {topic_address(topic)} in round {request.round + 1} over other "
                "clients; the difference of the two sums could be the update of one client."
            )
        self._log("signed", request, method=topic, digest=digest, clients=len(survivors))

    def _check_round(self, round: int, method: str) -> None:
        """Refuse rounds that the run does not have. The model of the last round is evaluated after it."""
        is_training = not method.startswith((SUM, EVALUATION, DELIVERY))
        if not 0 <= round < self.rounds + (not is_training):
            raise PrivacyError(
                f"the server asked for {clean_text(method)} after {round} rounds, and this client agreed to a run of "
                f"{self.rounds} rounds."
            )

    def _check_models(self, round: int, method: str, models: list[str]) -> None:
        """Refuse to evaluate a model that is not the model of the round.

        The model of a round is the one that the client trains in it. An evaluation may come before the training. If the
        client then trains another model, it evaluates no more models of this run.
        """
        if not method.startswith(EVALUATION) or not models:
            return
        trained_models: dict[int, set[str]] = {}
        evaluations: list[tuple[int, set[str]]] = [(round, set(models))]
        for entry in self._entries("asked"):
            if entry["method"].startswith(EVALUATION):
                evaluations.append((entry["round"], set(entry["models"])))
            elif entry["models"] and not entry["method"].startswith(DELIVERY):
                trained_models.setdefault(entry["round"], set()).update(entry["models"])
        if any(index in trained_models and not own <= trained_models[index] for index, own in evaluations):
            raise PrivacyError(
                f"in round {round + 1} or before, the server asked this client to evaluate a model that is not the model of "
                "the round; this client evaluates only the model that it trains."
            )

    def _check_rate(self, round: int) -> None:
        policy, now = self.policy, self.audit.clock()
        starts: dict[tuple[str, int], float] = {}
        for entry in self.audit.entries:
            if entry["event"] == "asked":
                starts.setdefault((entry["run"], entry["round"]), entry["time"])
        if (self.run, round) in starts:
            return
        if policy.max_rounds is not None and len(starts) >= policy.max_rounds:
            raise PrivacyError(
                f"this client has taken part in {len(starts)} rounds of all runs, and its limit is {policy.max_rounds} "
                "(policy.max_rounds)."
            )
        wait = policy.seconds_between_rounds - (now - max(starts.values(), default=-DAY))
        if wait > 0:
            raise PrivacyError(
                f"round {round + 1} comes {wait:.0f} s too early; this client takes part in a round every "
                f"{policy.seconds_between_rounds:g} s at most."
            )
        today = sum(time > now - DAY for time in starts.values())
        if policy.rounds_per_day is not None and today >= policy.rounds_per_day:
            raise PrivacyError(
                f"this client has taken part in {today} rounds in the last 24 hours, and its limit is "
                f"{policy.rounds_per_day}."
            )

    def _spend(self, question: Question) -> dict[str, Any]:
        """Return the values of the audit log for the noise of a reply. Raise an error if ε would be too large."""
        if self.noise is None or not question.is_noisy:
            return {}
        count = 1 + sum("epsilon" in entry for entry in self._entries("asked"))
        run_epsilon = self._epsilon_after(count)
        others = {e["run"]: e["run_epsilon"] for e in self.audit.entries if "run_epsilon" in e and e["run"] != self.run}
        epsilon, limit = run_epsilon + sum(others.values()), self.policy.max_epsilon
        if limit is not None and epsilon > limit:
            raise PrivacyError(
                f"this reply would bring ε to {epsilon:.3f}, and this client's limit over all runs is {limit:g}."
            )
        return {"mechanism": self.noise.trust_model, "run_epsilon": run_epsilon, "epsilon": epsilon}

    def _epsilon_after(self, count: int) -> float:
        from motet.privacy.accountant import PrivacyAccountant

        if self.noise is None:
            return 0.0
        accountant = PrivacyAccountant(
            mechanism=self.noise,
            client_count=1,
            cohort_size=1,
            has_secret_cohorts=False,
            sums_by_client=Counter({"": count}),
            sum_count=count,
        )
        return accountant.epsilon()

    def _sum_today(self, event: str, name: str) -> int:
        since = self.audit.clock() - DAY
        return sum(entry[name] for entry in self.audit.entries if entry["event"] == event and entry["time"] > since)

    def _find_earlier(self, event: str, round: int, method: str) -> Entry | None:
        return next((e for e in self._entries(event) if (e["round"], e["method"]) == (round, method)), None)

    def _entries(self, event: str) -> list[Entry]:
        return [e for e in self.audit.entries if e["event"] == event and e["run"] == self.run]

    def _log(self, event: str, request: Request, **values: Any) -> None:
        """Write a line. The server chose some of its texts, so they are shortened, and have no control characters."""
        details = {"method": request.address, **values}
        details |= {name: clean_text(value) for name, value in details.items() if isinstance(value, str)}
        self.audit.append(event, run=self.run, client=request.client, round=request.round, **details)
