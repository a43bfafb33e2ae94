"""Write what a profiler recorded: a trace for Perfetto, a picture, and a table for the terminal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.report.figure_files import new_figure, save_figure
from motet.report.profiler import Profiler

if TYPE_CHECKING:
    from rich.table import Table

TRACE_FILE, PICTURE_FILE = "trace.json", "profile.png"
MEANINGS = {
    "import": "start Python, import packages",
    "data": "read, divide and tokenize texts",
    "model": "load the model, prepare the device",
    "first step": "start workers, compile kernels",
    "training": "rounds, without the first step",
    "evaluation": "global and local test sets",
    "saving": "checkpoints, results, plots",
    "other": "everything else",
}
LARGE_PACKAGES = ("torch", "transformers")
PARTS = ("clients", "server", "evaluation", "saving")  # of a round
COLORS = {"clients": "#4c78a8", "server": "#f58518", "evaluation": "#54a24b", "saving": "#b279a2"}


def write_trace(profiler: Profiler, path: Path) -> None:
    """Write the spans in the trace event format, which ui.perfetto.dev and chrome://tracing open."""
    process = os.getpid()
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": "motet"}},
        {"name": "thread_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": "driver"}},
    ]
    for span in sorted(profiler.spans, key=lambda s: (s.start, -s.seconds)):
        place = {
            "ph": "X",
            "pid": process,
            "tid": 0,
            "ts": round(1e6 * span.start, 1),
            "dur": round(1e6 * span.seconds, 1),
        }
        events.append({"name": span.name, "cat": span.category, **place, "args": span.details})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), "utf-8")


def draw_profile(profiler: Profiler, path: Path) -> None:
    """Draw the breakdown of the process, and a bar for each round."""
    figure, (total, per_round) = new_figure(columns=2, width=6, height=3.6)
    seconds = profiler.breakdown()
    bars = total.barh(list(seconds), list(seconds.values()), color="#4c78a8")
    total.bar_label(bars, fmt="%.2f", padding=3)
    total.invert_yaxis()
    total.margins(x=0.15)
    total.set(xlabel="seconds", title=f"The process: {profiler.seconds:.1f} s")
    times = profiler.rounds
    bottoms = [0.0] * len(times)
    for part in PARTS:
        values = [getattr(each, part) for each in times]
        per_round.bar(range(1, len(times) + 1), values, bottom=bottoms, label=part, color=COLORS[part])
        bottoms = [bottom + value for bottom, value in zip(bottoms, values, strict=True)]
    per_round.set(xlabel="round", ylabel="seconds", title="Each round")
    per_round.xaxis.get_major_locator().set_params(integer=True)
    per_round.set_ylim(0, 1.05 * max(bottoms, default=1.0) or 1.0)
    per_round.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))  # beside the bars
    for axes in (total, per_round):
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def build_profile_table(profiler: Profiler) -> Table:
    """Build a table of the seconds of each category and their share."""
    from rich.table import Table

    table = Table(title="Where the time went", title_justify="left", header_style="bold", show_footer=True)
    table.add_column("part", footer="the process")
    table.add_column("seconds", justify="right", footer=f"{profiler.seconds:.2f}")
    table.add_column("share", justify="right", footer="100 %")
    table.add_column("what it is", footer="")
    for name, seconds in profiler.breakdown().items():
        share = seconds / profiler.seconds if profiler.seconds else 0.0
        table.add_row(name, f"{seconds:.2f}", f"{100 * share:.0f} %", MEANINGS[name])
    return table


def describe_rounds(profiler: Profiler) -> str:
    """Return a sentence about the start of the first round, and the server's share of the rounds."""
    if not profiler.rounds:
        return "No round was run."
    server = sum(each.server for each in profiler.rounds)
    total = server + sum(each.clients for each in profiler.rounds)
    share = 100 * server / total if total else 0.0
    sentences = [
        f"The first round began after {profiler.rounds[0].start:.2f} s.",
        f"The server itself took {share:.1f} % of the rounds.",
    ]
    if profiler.dropped:
        sentences.append(f"The trace has the first {len(profiler.spans):,} spans and lacks {profiler.dropped:,}.")
    return " ".join(sentences)


def describe_bytecode() -> str:
    """Return what to do if Python compiles a large package in every process, else an empty string."""
    specs = [sys.modules[name].__spec__ for name in LARGE_PACKAGES if name in sys.modules]
    missing = [
        Path(spec.origin or "").parent for spec in specs if spec and spec.cached and not Path(spec.cached).exists()
    ]
    if not missing:
        return ""
    names, folders = " and ".join(path.name for path in missing), " ".join(map(str, missing))
    command = f"python -m compileall -q {folders}"
    return f"Python compiles {names} in every process, because bytecode files are missing. Write them once: {command}"


def write_profile(profiler: Profiler, folder: Path) -> None:
    """Write trace.json and profile.png to a folder."""
    profiler.finish()
    write_trace(profiler, folder / TRACE_FILE)
    draw_profile(profiler, folder / PICTURE_FILE)
