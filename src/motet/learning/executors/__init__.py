"""Run jobs: one by one, in worker processes, or packed on a GPU."""
