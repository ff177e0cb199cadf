"""The report: what it says (``content`` and what that is made of), kept apart from how it is set (``latex``).

All text is plain; a renderer escapes it. Reading order: ``content``, ``sections``, ``settings``, ``claims``,
``provenance``, ``latex``.
"""
