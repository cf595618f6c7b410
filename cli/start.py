"""The `flymono` script: a message where the packages of the command line are not installed.

A server has the wheel without extras, and with it this script.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .extras import missing


def main(argv: Sequence[str] | None = None) -> None:
    """`cli.main.main`, or exit code 2 with what to install."""
    try:
        from .main import main as run
    except ModuleNotFoundError as error:
        refused = missing(error)
        if refused is None:
            raise
        print(refused.render(), file=sys.stderr)
        sys.exit(refused.exit_code)
    run(argv)


if __name__ == "__main__":
    main()
