"""What studies reduce to beyond the cells of tables: plateaus, initial boundaries, what studies took.

Each module names its runs, which :mod:`experiments.studies` takes from it, and reads their records through a
:class:`~experiments.analysis.collect.Reader`.
What has no usable record is left out, and the numbers of runs say so. Imports neither torch nor matplotlib.
"""
