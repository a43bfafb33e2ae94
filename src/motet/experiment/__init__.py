"""From a recipe to a finished run: the only package that imports all the others."""
