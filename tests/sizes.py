"""Model configurations for fast, deterministic tests: small, and without dropout."""

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, **NO_DROPOUT}
