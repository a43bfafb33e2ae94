"""The kernel: what a federated program is, with no model, codec, file or network in it."""
