"""One YAML a benchmark: methods, corpora and partitions, with the published numbers; its first line says what it is."""
