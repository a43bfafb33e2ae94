"""Components for Motet in a package of their own."""
