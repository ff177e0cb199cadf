"""The suite: what reproduces every study of the paper with the library ``ngn``.

``store`` → ``data`` → ``methods``, ``tasks`` → ``config`` → ``runs`` → ``cli`` make records; ``analysis``, ``tables``,
``figures``, ``report`` and ``page`` make what is read from them, without torch; ``studies`` and ``sweeps`` say which
runs there are, and have them trained. Each imports from those before it alone (``tests/project/test_borders.py``).
"""

from experiments.packages import name_extras

name_extras()
