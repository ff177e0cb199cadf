"""Train runs: ``python run.py task=cifar10 gate=conv seed=0..9``. For help: ``python run.py --help``."""

import sys

from experiments.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
