"""`motet advise`: which method was best in the measured setting that is most like a corpus and its division.

The answer comes from stored results alone. It says how near the measured setting is, and how sure the result is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.benchmark.measured_settings import (
    MeasuredSetting,
    MethodNumbers,
    SettingFeatures,
    best_in_all,
    feature_distances,
)
from motet.report.number_text import format_p_value, use_minus_signs
from motet.report.significance import MIN_SEEDS, SIGNIFICANCE_LEVEL

FEATURE_NAMES = {
    "clients": "clients",
    "texts per client": "texts per client",
    "labels per client": "labels per client (exponential of the mean entropy)",
    "js_distance": "label skew (Jensen–Shannon distance)",
    "size_gini": "quantity skew (Gini coefficient)",
    "vocabulary_overlap": "vocabulary overlap",
}


@dataclass(frozen=True)
class Neighbor:
    """A measured setting, with its distance in each feature. At most 1 is near."""

    setting: MeasuredSetting
    distances: dict[str, float]

    @property
    def distance(self) -> float:
        return max(self.distances.values())

    @property
    def far_features(self) -> int:
        return sum(distance > 1 for distance in self.distances.values())

    @property
    def is_near(self) -> bool:
        return self.far_features == 0


def find_neighbors(features: SettingFeatures, settings: Sequence[MeasuredSetting]) -> list[Neighbor]:
    """Return the measured settings of the same task: first those that are far in the fewest features, then the nearest."""
    same_task = [s for s in settings if s.features.task == features.task]
    neighbors = [Neighbor(s, feature_distances(features, s.features)) for s in same_task]
    return sorted(neighbors, key=lambda neighbor: (neighbor.far_features, neighbor.distance))


def describe_features(features: SettingFeatures) -> list[str]:
    lines = [
        f"{features.dataset}: {features.task}, {features.clients:,} clients with {features.texts_per_client:,.0f} texts on "
        "average"
    ]
    values = {**features.counts, **features.measures}
    shown = [name for name in FEATURE_NAMES if name in values and name not in ("clients", "texts per client")]
    return [*lines, *(f"{FEATURE_NAMES[name]}: {values[name]:.2f}" for name in shown)]


def describe_advice(features: SettingFeatures, settings: Sequence[MeasuredSetting]) -> str:
    """Return the answer in Markdown."""
    parts = ["\n".join(f"- {line}" for line in describe_features(features))]
    neighbors = find_neighbors(features, settings)
    if not neighbors:
        tasks = ", ".join(sorted({s.features.task for s in settings}))
        parts.append(f"No setting with the task {features.task} was measured ({tasks} were), so there is no advice.")
        return "\n\n".join(parts)
    near = [neighbor for neighbor in neighbors if neighbor.is_near]
    if near:
        parts.append(
            f"{len(near)} of {len(settings)} measured settings {'is' if len(near) == 1 else 'are'} near. The nearest is "
            f"{near[0].setting.name}."
        )
    else:
        parts.append(_describe_difference(features, neighbors[0]))
    parts += [_describe_setting(neighbor.setting) for neighbor in near[:3] or neighbors[:1]]
    if len(near) > 1:
        parts.append(_describe_agreement([neighbor.setting for neighbor in near]))
    return "\n\n".join([*parts, _describe_source(settings)])


def _describe_source(settings: Sequence[MeasuredSetting]) -> str:
    """Say how many corpora all results are from: advice from one corpus is a guess about others."""
    corpora = sorted({setting.features.dataset for setting in settings})
    software = "; ".join(sorted({setting.software for setting in settings if setting.software}))
    version = f" with {software}" if software else ""
    count = "one corpus" if len(corpora) == 1 else f"{len(corpora)} corpora"
    return (
        f"The results are from {count} ({', '.join(corpora)}){version}. Other texts can rank the methods differently, also "
        "in a setting that is near."
    )


def _describe_difference(features: SettingFeatures, neighbor: Neighbor) -> str:
    far = []
    for name, distance in neighbor.distances.items():
        if distance > 1:
            own, measured = ({**f.measures, **f.counts}[name] for f in (features, neighbor.setting.features))
            far.append(f"{FEATURE_NAMES[name]} {own:.3g}, measured {measured:.3g}")
    return (
        f"**No measured setting is near yours**, so this is no advice. The least different is {neighbor.setting.name}: "
        f"{'; '.join(far)}. Measure your own data: write a suite with it, and run motet bench."
    )


def _describe_setting(setting: MeasuredSetting) -> str:
    """Describe the numbers of a setting: a table, the best method and how sure it is."""
    lines = [
        f"| {setting.name} | {setting.score} | minus the best | worst tenth | MB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    rows = {**setting.methods, **{f"*{name}*": numbers for name, numbers in setting.bounds.items()}}
    for name, numbers in sorted(rows.items(), key=lambda item: -item[1].mean):
        difference = _describe_difference_to_best(numbers) or "–"
        worst, megabytes = (f"{v:,.1f}" if v is not None else "–" for v in (numbers.worst, numbers.megabytes))
        numbers_text = f"{numbers.mean:.1f} | {difference} | {worst} | {megabytes}"
        lines.append(f"| {name} | {use_minus_signs(numbers_text)} |")
    return "\n\n".join(["\n".join(lines), _describe_certainty(setting), *_describe_bounds(setting)])


def _describe_difference_to_best(numbers: MethodNumbers, sign: int = 1) -> str:
    """Return the difference with its interval and p-value; empty if it was not tested. `sign` -1 turns it around."""
    if numbers.difference is None or numbers.p_value is None:
        return ""
    middle, *ends = (sign * number for number in numbers.difference)
    interval = use_minus_signs(f"{middle:.1f} [{min(ends):.1f}, {max(ends):.1f}]")
    return f"{interval}, {format_p_value(numbers.p_value)}"


def _describe_bounds(setting: MeasuredSetting) -> list[str]:
    """Say whether training without federation is as good as the best method: then the federation was of no use."""
    if not setting.bounds:
        return []
    sentences = [s for name, numbers in setting.bounds.items() if (s := _describe_bound(setting, name, numbers))]
    note = "Rows in italics are not federated: isolated clients train alone, and centralized training has all texts."
    return [" ".join([*sentences, note])]


def _describe_bound(setting: MeasuredSetting, name: str, numbers: MethodNumbers) -> str:
    is_highest = numbers.mean > max(method.mean for method in setting.methods.values())
    difference = _describe_difference_to_best(numbers)
    if not difference or setting.best is None:
        return f"**{name} has a higher mean than all federated methods**; this was not tested." if is_highest else ""
    if (numbers.p_value or 0.0) >= SIGNIFICANCE_LEVEL:
        higher = "has a higher mean than all federated methods, and " if is_highest else ""
        return f"**{name} {higher}is not significantly different from the best federated method** ({difference})."
    if is_highest:
        return f"**{name} is better than the best federated method**, by {difference}."
    return f"{name} is worse than the best federated method, by {_describe_difference_to_best(numbers, -1)}."


def _describe_certainty(setting: MeasuredSetting) -> str:
    best = [name for name, numbers in setting.methods.items() if numbers.is_best]
    if setting.best is None:
        return (
            f"{setting.seeds} seeds, and {MIN_SEEDS} are needed: these numbers are about the trained models, not about the "
            "methods."
        )
    tied = sorted((n.mean, name) for name, n in setting.methods.items() if n.is_tied)[::-1]
    others = " All others are significantly worse."
    if tied:
        names = "; ".join(name for _, name in tied)
        others = (
            f" Not significantly different: {names}. That is not the same as equally good: with {setting.seeds} seeds, only "
            "clear differences are significant. The intervals show how large a difference may be."
        )
    return f"Best mean: {'; '.join(best)} ({setting.seeds} seeds, p corrected for all pairs of methods).{others}"


def _describe_agreement(settings: Sequence[MeasuredSetting]) -> str:
    """Say which methods are best, or not significantly worse, in all settings that are near."""
    best, count = best_in_all(settings), sum(setting.best is not None for setting in settings)
    if best is None:
        return f"No near setting has {MIN_SEEDS} seeds."
    if not best:
        return f"No method is among the best in all {count} near settings with {MIN_SEEDS} seeds."
    return f"Best or not significantly worse in all {count} near settings with {MIN_SEEDS} seeds: {'; '.join(best)}."
