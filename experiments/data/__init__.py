"""Read data sets as plain arrays and hash every byte read; make the synthetic data of the smoke profile.

This package needs only numpy. ``docs/data.md`` describes the layout of a data root.
"""

from experiments.core.task import DataInfo
from experiments.data.source import DataError, GraphData, ImageData, MissingData, data_root

__all__ = ["DataError", "DataInfo", "GraphData", "ImageData", "MissingData", "data_root"]
