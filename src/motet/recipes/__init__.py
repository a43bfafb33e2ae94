"""One YAML a published result; the first line says what it is."""
