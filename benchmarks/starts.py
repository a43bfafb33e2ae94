"""Measure what a command of Motet costs before and after its training, in processor time.

    python -m benchmarks.starts [--repeats 5]

The commands alternate, and the table has the medians. Processor time (of a process and its workers) depends less on other
load than wall-clock time. A run without its rounds is what remains of a run of the toy recipe with all its rounds after
subtracting the time of a round for each. The time of a round is the difference to a run of one round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TYPER = """
import typer
app = typer.Typer()
@app.command()
def greet(name: str) -> None:
    print(name)
app()
"""
ROUNDS = 8
RUN = ["-m", "motet", "run", "toy-classification"]
COMMANDS: dict[str, list[str]] = {
    "typer": ["-c", TYPER, "--help"],
    "help": ["-m", "motet", "--help"],
    "import": ["-c", "import torch, transformers"],
    "one round": [*RUN, "rounds=1"],
    "all rounds": [*RUN, f"rounds={ROUNDS}"],
}


def measure(arguments: list[str]) -> float:
    """Return the processor seconds of a Python process and its workers."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path)}
        subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for index in range(args.repeats + 1):
        for name, arguments in COMMANDS.items():
            elapsed = measure(arguments)
            if index:  # the first time writes bytecode and reads files from disk
                seconds[name].append(elapsed)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    per_round = (medians["all rounds"] - medians["one round"]) / (ROUNDS - 1)
    outside = medians["one round"] - per_round
    print("| command | processor seconds | ratio |\n| --- | --- | --- |")
    print(f"| a typer program with one command, --help | {medians['typer']:.2f} | 1 |")
    print(f"| motet --help | {medians['help']:.2f} | {medians['help'] / medians['typer']:.2f} |")
    print(f"| import torch, transformers | {medians['import']:.2f} | 1 |")
    print(f"| motet run toy-classification, without its rounds | {outside:.2f} | {outside / medians['import']:.2f} |")
    print(f"| motet run toy-classification, {ROUNDS} rounds | {ROUNDS * per_round:.2f} | |")


if __name__ == "__main__":
    main()
