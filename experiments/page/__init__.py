"""The report as one HTML page that needs nothing else: no network, no other file.

Text and tables are made here from :class:`experiments.report.content.Report` by a template, and can be read without
scripts; filters, plots and the panels of cells and records are scripts over one block of JSON. Reading order: ``runs``
(records), ``cells``, ``plots`` (figures), ``html`` (the page). ``assets/`` holds the template, styles and scripts.
"""

from experiments.page.html import render

__all__ = ["render"]
