"""`python -m pullback`."""

from pullback.cli import main

main()
