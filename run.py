"""Train runs: ``python run.py task=cifar10 gate=conv seed=0..9``. For help: ``python run.py --help``."""

if __name__ == "__main__":
    from experiments.cli import pipes

    pipes.until_main()
    import pkgutil
    import sys

    programs = {"--list": "listing:show", "--watch": "watch:watch"}  # these spare the slow import of Hydra
    main = pkgutil.resolve_name(f"experiments.cli.{programs.get(' '.join(sys.argv[1:]), 'app:main')}")
    pipes.exit_with(main)
