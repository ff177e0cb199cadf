"""From records to numbers: which runs stand behind a cell, what they reduce to, and the published value beside it.

Reading order: ``selection`` (which runs), ``collect`` (their records), ``quantities`` (numbers of one run),
``statistics`` (many runs to one number), ``formats`` (a number to text and back), ``reduce`` (a cell), ``reductions/``
(what is no cell), ``build`` (the file), ``verdict`` (against the published value). Imports no torch.
"""
