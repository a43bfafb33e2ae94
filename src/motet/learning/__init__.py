"""Training and inference: the jobs that clients submit, the executors that run them, and the context of client methods."""
