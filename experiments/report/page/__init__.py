"""The report as one HTML page that needs nothing else: no network, no other file.

A template makes the text and the tables from :class:`experiments.report.content.ReportContent`, with the figures as
pictures; a script adds the filter and the choice of colours. ``assets/`` holds templates, styles and script.
"""

from experiments.report.page.html import render

__all__ = ["render"]
