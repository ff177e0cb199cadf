"""What each table and figure is made of: its runs, its cells, and how records reduce to a cell. Imports no torch.

Reading order: ``selection`` (which runs), ``collect`` (their records), ``quantities`` (numbers of one run),
``statistics`` (many runs to one number), ``formats`` (a number to text and back), ``tables/`` (rows and columns),
``reduce`` (a cell), ``reductions/`` (what is no cell), ``build`` (the file), ``verdict`` (against the published value).
"""
