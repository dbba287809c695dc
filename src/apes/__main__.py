"""``python -m apes``: the command line."""

from apes.cli.main import main

main()
