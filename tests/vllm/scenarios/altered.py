"""A layer that is made beside a bundle that was altered: what the server says."""

import sys

from harness import Echo, FromBundle, Worker, answer, serve

ARCH, TP = sys.argv[1], int(sys.argv[2])


def main() -> None:
    serve(FromBundle(Echo(0, TP)))
    with Worker(ARCH, TP) as worker:
        try:
            worker.layer(0)
        except ValueError as error:
            answer(refused=str(error))
        else:
            answer(refused="")


main()
