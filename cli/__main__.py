"""`python -m flymono.cli` is `flymono`."""

from .main import main

main()
