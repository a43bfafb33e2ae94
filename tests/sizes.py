"""Settings of models so small and calm that a test of them takes moments and gives the same numbers twice."""

CALM = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24, **CALM}
