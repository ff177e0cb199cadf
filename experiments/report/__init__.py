"""What the report says, from records; :mod:`experiments.report.page` and ``markdown`` write it down.

All text is plain; a renderer escapes it. Reading order: ``content``, ``sections``, ``settings``, ``claims``,
``provenance``, ``markdown``.
"""
