"""Reduce records to the cells of tables and compare them with the published values.

Reading order: ``selection`` (which runs), ``collect`` (their records), ``quantities`` (numbers of one run),
``statistics`` (many runs to one number), ``formats`` (a number to text and back), ``reduce`` (one cell),
``reductions/`` (results that are not cells), ``build`` (the file), ``verdict`` (comparison with the published value).
This package does not import torch.
"""
