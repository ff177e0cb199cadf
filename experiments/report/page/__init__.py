"""The report as one HTML page that needs nothing else: no network, no other file.

A template makes the text and the tables from :class:`experiments.report.content.ReportContent`; they can be read
without scripts. Scripts draw the filters, the plots, and the panels of cells and records from one block of JSON.

Reading order: ``runs`` (records), ``rows`` (cells), ``figures`` (plots), ``html`` (the page).
``assets/`` holds the template, the styles and the scripts.
"""

from experiments.report.page.html import render

__all__ = ["render"]
