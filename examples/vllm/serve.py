"""Start vLLM with flymono's kernels on a GPU of recipes.yaml.

    python serve.py --gpu mi300x [--tp 4] [--bundle DIR] [--mode mono|stock|off] [--dry-run] [-- more]

What stands after `--` goes to `vllm serve` as it is.
"""

from __future__ import annotations

import argparse
import sys

from recipes import BadChoice, recipes, serve


def main(argv: list[str] | None = None) -> int:
    """Run or show the command; 2 for a choice that does not exist."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gpu", required=True)
    p.add_argument("--tp", type=int)
    p.add_argument("--bundle", help="folder of `flymono bundle`; default: an installed bundle wheel")
    p.add_argument("--mode", choices=("mono", "stock", "off"), default="mono")
    p.add_argument("--dry-run", action="store_true", help="print the command and end")
    words = list(sys.argv[1:] if argv is None else argv)
    own, more = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    a = p.parse_args(own)
    try:
        command = serve(recipes(), a.gpu, a.tp, a.bundle, a.mode, more)
    except BadChoice as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(command.shown(), flush=True)
    return 0 if a.dry_run else command.run()


if __name__ == "__main__":
    raise SystemExit(main())
