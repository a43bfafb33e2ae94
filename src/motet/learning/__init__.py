"""The only place with a training loop: jobs, the benches that run them, and what a client may ask of its bench."""
