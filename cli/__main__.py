"""`python -m flymono.cli` is `flymono`."""

from .start import main

main()
