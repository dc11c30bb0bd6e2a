"""``python -m multidraft``: the command line."""

import sys

from multidraft.cli import main

if __name__ == "__main__":
    sys.exit(main())
