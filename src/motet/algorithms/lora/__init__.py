"""Methods for LoRA adapters. Each paper has its own module; `adapter_pairs` has the matrices A and B."""
