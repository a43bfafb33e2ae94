"""`python -m motet` is the command `motet`."""

from motet.cli import main

main()
