"""The only place with a training loop: jobs, the executors that run them, and what a client may ask of its executor."""
