"""Add the ``conf/`` folders of plug-ins and $NGN_CONF to Hydra's search path, for ``--cfg`` and completion."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from experiments.core.plugins import conf_folder, plugin_folders


class PluginFolders(SearchPathPlugin):
    """Append the folders named by $NGN_PLUGINS and $NGN_CONF."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """See :class:`hydra.plugins.search_path_plugin.SearchPathPlugin`."""
        own = conf_folder()
        for folder in [*(folder / "conf" for folder in plugin_folders()), *([own] if own else [])]:
            search_path.append("ngn-plugin", f"file://{folder}")
