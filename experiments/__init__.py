"""The suite: what reproduces every study of the paper with the library ``ngn``.

``core``, ``store``, ``data``, ``models``, ``tasks``, ``methods``, ``config`` and ``runs`` make records. ``analysis``,
``studies`` and ``report`` make what is read from them, without torch. ``cli`` is the command line. Each imports from
those before it alone (``[tool.importlinter]`` in pyproject.toml).
"""

from experiments.core.packages import name_extras

name_extras()
