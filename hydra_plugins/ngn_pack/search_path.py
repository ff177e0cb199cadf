"""Lets Hydra see the ``conf/`` of plug-ins, for ``--cfg`` and completion."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from experiments.blocks import plugin_folders


class PluginFolders(SearchPathPlugin):  # type: ignore[misc]
    """Appends the folders that $NGN_PLUGINS names."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """See :class:`hydra.plugins.search_path_plugin.SearchPathPlugin`."""
        for folder in plugin_folders():
            search_path.append("ngn-plugin", f"file://{folder / 'conf'}")
