"""Recipe keys by the names that other frameworks give them, for suggestions in errors."""

from __future__ import annotations

from collections.abc import Collection

from motet.core.suggestions import did_you_mean

_NAMES: dict[str, str] = {
    "seed": "random_seed random_state manual_seed",
    "rounds": "num_rounds n_rounds num_server_rounds comm_round global_rounds communication_rounds",
    "precision": "fp16 bf16 mixed_precision amp",
    "track": "report_to tracker trackers logger",
    "task.type": "task_name task_type",
    "model.name": "model_name model_name_or_path pretrained_model backbone checkpoint_path",
    "model.max_tokens": "max_length max_len max_seq_length max_seq_len seq_length max_tokens",
    "model.adapter.rank": "lora lora_r lora_rank peft_rank",
    "model.adapter.alpha": "lora_alpha",
    "model.freeze": "freeze_layers frozen freeze",
    "data.name": "dataset dataset_name corpus",
    "data.path": "data_path data_dir data_file train_file file csv",
    "data.test": "test_file test_path",
    "data.text": "text_column text_col text_field",
    "data.label": "label_column label_col label_field target",
    "data.client": "client_column client_id user_id client_col",
    "data.test_share": "test_size test_split test_ratio",
    "data.dev_share": "validation_split val_size dev_size val_ratio",
    "data.limit": "max_train_samples max_samples num_samples",
    "partition.clients": "num_clients n_clients client_num client_num_in_total clients num_partitions",
    "partition.type": "partition_method partitioner split_type",
    "partition.alpha": "dirichlet_alpha partition_alpha alpha",
    "cohort.size": "clients_per_round client_num_per_round fraction_fit fraction_train min_fit_clients sample_clients",
    "algorithm.type": "strategy aggregator aggregation method federated_optimizer",
    "algorithm.mu": "fedprox_mu prox_mu proximal_mu",
    "solver.lr": "lr learning_rate client_lr local_lr",
    "solver.batch": "batch_size train_batch_size per_device_train_batch_size local_batch_size bs",
    "solver.micro_batch": "gradient_accumulation_steps micro_batch_size accumulate_grad_batches",
    "solver.epochs": "epochs local_epochs num_epochs num_train_epochs client_epochs",
    "solver.steps": "max_steps local_steps num_steps",
    "solver.optimizer": "client_optimizer optim optimizer",
    "solver.weight_decay": "weight_decay wd",
    "solver.momentum": "momentum",
    "solver.schedule": "lr_scheduler lr_scheduler_type scheduler",
    "solver.warmup": "warmup_ratio warmup_steps",
    "solver.clip": "max_grad_norm grad_clip gradient_clip_val",
    "server.lr": "server_lr server_learning_rate",
    "server.type": "server_optimizer",
    "privacy.noise": "noise_multiplier sigma",
    "privacy.clip": "clipping_norm max_norm clip_norm",
    "privacy.budget": "epsilon target_epsilon",
    "evaluation.every": "eval_every evaluate_every eval_steps evaluation_frequency frequency_of_the_test",
    "evaluation.patience": "early_stopping early_stopping_patience patience",
    "evaluation.keep": "load_best_model_at_end keep_best",
}
SYNONYMS = {name: key for key, names in _NAMES.items() for name in names.split()}


def find_key(name: str) -> str:
    """Return the recipe key that another framework calls `name`; empty if there is none."""
    return SYNONYMS.get(name.lower().replace("-", "_"), "")


def suggest_option(name: str, options: Collection[str]) -> str:
    """Return `" Did you mean 'lr'?"` for an unknown option; of another section, the whole key."""
    key = find_key(name)
    if not key:
        return did_you_mean(name, options)
    option = key.rpartition(".")[2]
    return f" Did you mean '{option if option in options else key}'?"
