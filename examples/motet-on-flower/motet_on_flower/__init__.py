"""A Flower app that trains with Motet."""
