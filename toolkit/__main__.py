"""``python -m multidraft``: the command line."""

from multidraft.cli import main

if __name__ == "__main__":
    main()
