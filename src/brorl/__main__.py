"""``python -m brorl`` is the command line."""

from brorl.cli import main

if __name__ == "__main__":
    main()
