"""Load a run's adapters with peft in a new process, and compute the scores of its summary again.

    python examples/score_adapters.py runs/instruct-1

Motet only reads the recipe and tokenizes the test set. Model and generation are those of peft and transformers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers

from motet.experiment.build.federation_builder import build_federation
from motet.experiment.recipe.recipe_files import load_recipe
from motet.learning.data.features import IGNORE_INDEX
from motet.models.load_model import find_model
from motet.tasks.answer_metrics import exact_matches, rouge_l


def score_adapters(run: Path) -> dict[str, float]:
    federation = build_federation(load_recipe(str(run / "config.yaml"), []))
    rows, task, columns = federation.server.global_test_rows, federation.task, federation.corpus.columns
    base = find_model(peft.PeftConfig.from_pretrained(run / "model").base_model_name_or_path)  # models/ or the hub
    module = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model: Any = peft.PeftModel.from_pretrained(module, run / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    answers, losses = [], []
    for row in rows:
        example = {name: tensor[0] for name, tensor in federation.server.features.batch(np.array([row])).items()}
        ids, start = example["input_ids"], int(example["completion_start"])
        virtual = len(federation.model.virtual_tokens)  # peft puts a trained prompt before the text by itself
        ids, start = ids[virtual:], start - virtual
        completion = example["labels"][example["labels"] != IGNORE_INDEX]
        with torch.no_grad():
            logits = model(input_ids=ids[None, : start + len(completion)]).logits[0, -len(completion) - 1 : -1].float()
            output = model.generate(
                input_ids=ids[None, :start], attention_mask=torch.ones(1, start, dtype=torch.long), do_sample=False,
                max_new_tokens=task.max_new_tokens, eos_token_id=int(completion[-1]), pad_token_id=int(completion[-1]),
                repetition_penalty=1.0,
            )  # fmt: skip
        losses.append(torch.nn.functional.cross_entropy(logits, completion, reduction="none"))
        answers.append(tokenizer.decode(output[0, start:], skip_special_tokens=True))
    references = [str(columns["completion"][row]) for row in rows]
    closed = np.array([bool(columns["closed"][row]) for row in rows])
    exact, rouge = exact_matches(answers, references), rouge_l(answers, references)
    return {
        "score": float(np.where(closed, exact, rouge).mean()),
        "exact_match": float(exact[closed].mean()),
        "rougeL": float(rouge[~closed].mean()),
        "loss": float(torch.cat(losses).mean()),
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    expected = json.loads((folder / "summary.json").read_text())["final"]
    for name, value in score_adapters(folder).items():
        print(f"{name}: {value:.4f} with peft, {expected[name]:.4f} in the summary")
