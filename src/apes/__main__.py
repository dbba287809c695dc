"""``python -m apes``: the command line."""

from apes.cli import main

main()
