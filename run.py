"""Train runs: ``python run.py task=cifar10 gate=conv seed=0..9``. For help: ``python run.py --help``."""

if __name__ == "__main__":
    from experiments.cli import pipes

    pipes.until_main()
    from experiments.cli import arguments

    pipes.exit_with(arguments.main)
