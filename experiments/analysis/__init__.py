"""Reduce records to the cells of tables and compare them with the published values.

Read the modules in this order:

- ``selection``: which runs; ``collect``: their records.
- ``quantities``: numbers of one run; ``statistics``: many runs to one number.
- ``formats``: a number to text and back; ``reduce``: one cell; ``build``: the file.
- ``verdict``: comparison with the published value; ``claims``: statements; ``figures``: points and curves.

This package does not import torch.
"""
