"""One file a family of models; how each is cut into embeddings, layers and heads."""
