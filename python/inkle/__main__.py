"""``python -m inkle COMMAND``: what needs PyTorch; all else is the command ``inkle``."""

from __future__ import annotations

import sys


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] != "bisect":
        print("usage: python -m inkle bisect [options] SCRIPT [arguments]", file=sys.stderr)
        return 2
    from inkle.bisect import main as bisect

    return bisect(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
