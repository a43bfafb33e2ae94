"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

Curve = Sequence[tuple[int, float]]


def draw_curves(curves: Mapping[str, Curve], metric: str, title: str, path: Path) -> None:
    """A metric against rounds, a line a run. A run looked at once (isolated, say) is a dashed level."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(8, 4.2), dpi=150, layout="constrained")
    last = max((curve[-1][0] for curve in curves.values() if curve), default=1)
    for name, curve in curves.items():
        if not curve:
            continue
        rounds, values = zip(*curve, strict=True)
        if len(curve) == 1 or name == "centralised":  # its rounds are passes over all data, no federated rounds
            level = axes.axhline(values[-1], linestyle="--", linewidth=1.4, color=f"C{len(axes.lines)}")
            level.set_label(f"{name}: {values[-1]:.3f}")
        else:
            axes.plot(rounds, values, marker="o", markersize=3.5, linewidth=1.8, label=f"{name}: {values[-1]:.3f}")
    axes.set(xlabel="round", ylabel=f"{metric} on the global test set", title=title, xlim=(0.8, max(2, last) + 0.2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(path)
    plt.close(figure)
