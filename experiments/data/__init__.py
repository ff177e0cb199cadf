"""Data sets as plain arrays: readers that hash what they read, and the synthetic stand-ins of the smoke profile.

Only numpy is needed here. ``docs/data.md`` describes the layout of a data root.
"""

from experiments.data.errors import DataError, MissingData
from experiments.data.source import DataInfo, GraphData, ImageData, data_root

__all__ = ["DataError", "DataInfo", "GraphData", "ImageData", "MissingData", "data_root"]
