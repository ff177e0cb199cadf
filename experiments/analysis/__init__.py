"""Reduce records to the cells of tables and compare them with the published values.

Read the modules in this order:

- ``selection``: which runs; ``collect``: their records.
- ``quantities``: numbers of one run; ``statistics``: many runs to one number.
- ``formats``: a number to text and back; ``reduce``: one cell; ``build``: the file.
- ``verdict``: comparison with the published value; ``reductions/``: results that are not cells.

This package does not import torch.
"""
