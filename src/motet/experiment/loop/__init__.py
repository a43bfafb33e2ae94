"""The round loop: sample, train, evaluate, record, checkpoint."""
