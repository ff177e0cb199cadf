"""What the report says, from records, and how it is written: ``pages`` as Markdown and HTML, ``drawing`` as pictures.

All text is plain; a page escapes it. Reading order: ``content``, ``alternatives``, ``pages``.
"""
