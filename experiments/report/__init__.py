"""What the report says, from records, and how it is written: ``markdown`` for docs/, ``page`` for HTML, ``drawing``.

All text is plain; a renderer escapes it. Reading order: ``content``, ``alternatives``, ``answer``, ``markdown``.
"""
