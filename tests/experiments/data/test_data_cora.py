"""The Planetoid reader, against torch-geometric's own processing, and the restricted unpickler."""

import collections
import os
import pickle

import data_samples as samples
import numpy as np
import pytest
from data_samples import read_cora

from experiments.data import DataError, cora, unpickle


def load(content):
    return unpickle.safe_load(np.frombuffer(content, dtype=np.uint8), "sample")


class _Runs:
    """Unrestricted unpickling would create the file."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_pickle_that_runs_a_command_is_refused_by_name(tmp_path):
    mark = tmp_path / "ran"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(DataError, match=r"sample: refused as a pickle: it names \w+\.system"):
            load(pickle.dumps(_Runs(f"touch {mark}"), protocol))
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(eval, 2),
        pickle.dumps(collections.OrderedDict(), 2),
        pickle.dumps(np.random.default_rng, 2),
        pickle.dumps(np.array([{}, []], dtype=object), 2),
        pickle.dumps(np.zeros(2, dtype=[("a", "i4")]), 2),
        pickle.dumps(np.array(["text"]), 2),
        b"cnumpy.core.multiarray\n_reconstruct\n(c__builtin__\nlist\n(I0\ntS'b'\ntR.",
        pickle.dumps(np.arange(3), 2).replace(b"cnumpy\nndarray\n", b"c__builtin__\nlist\n"),
        b"\x80\x04\x8c\x05numpy\x8c\x11core.multiarray.os\x93.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",  # a persistent id
        samples.csr_pickle(np.eye(3, dtype=np.float32)).replace(b"indptr", b"INDPTR"),
        b"not a pickle",
        b"",
        pickle.dumps(np.arange(5), 2)[:-10],
    ],
)
def test_everything_beyond_plain_arrays_is_refused(content):
    with pytest.raises(DataError, match="sample: refused as a pickle"):
        load(content)


def test_a_sparse_matrix_with_entries_outside_its_shape_is_refused():
    good = np.zeros((3, 4), dtype=np.float32)
    good[1, 3] = 2
    np.testing.assert_array_equal(load(samples.csr_pickle(good)), good)
    for name, bad in (("indices", np.array([4])), ("indptr", np.array([0, 1, 0, 1])), ("indptr", np.array([0, 1]))):
        state = {"_shape": (3, 4), "data": np.ones(1, dtype=np.float32), "indices": np.array([3])}
        state |= {"indptr": np.array([0, 0, 1, 1]), name: bad}
        content = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81" + pickle.dumps(state, 2)[2:-1] + b"b."
        with pytest.raises(DataError, match="refused as a pickle"):
            load(content)


def geometric(folder):
    """Return torch-geometric's arrays of these files, with features normalised by its own transform."""
    torch_geometric = pytest.importorskip("torch_geometric")
    pytest.importorskip("scipy")
    from torch_geometric.io import read_planetoid_data

    data = torch_geometric.transforms.NormalizeFeatures()(read_planetoid_data(str(folder), "cora"))
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
    return {name: getattr(data, name).numpy() for name in names}


def assert_same(data, theirs):
    np.testing.assert_array_equal(data.features, theirs["x"])
    np.testing.assert_array_equal(data.edge_index, theirs["edge_index"])
    np.testing.assert_array_equal(data.labels, theirs["y"])
    for ours, mask in (("train", "train_mask"), ("validation", "val_mask"), ("test", "test_mask")):
        np.testing.assert_array_equal(getattr(data, ours), np.flatnonzero(theirs[mask]))


@pytest.mark.filterwarnings("ignore")  # old module names in the pickles, and torch-geometric's own imports
@pytest.mark.parametrize("place", ["cora", "cora/raw", "Cora/raw"])
def test_a_small_graph_equals_torch_geometrics_processing(tmp_path, place):
    files, _ = samples.cora()
    samples.put(tmp_path / place, files)
    data = read_cora(tmp_path, samples.official(files))
    assert_same(data, geometric(tmp_path / place))
    assert not data.features[7].any()
    assert data.features.dtype == np.float32
    assert {a.dtype for a in (data.edge_index, data.labels, data.train, data.test)} == {np.dtype(np.int64)}
    assert data.info.name == "cora"


def test_every_edge_goes_both_ways_once(tmp_path):
    files, edges = samples.cora(symmetric=False)
    samples.put(tmp_path / "cora", files)
    drawn = {(a, b) for a, b in edges.T.tolist() if a != b}
    wanted = sorted({(b, a) for a, b in drawn} | drawn, key=lambda edge: edge[::-1])
    assert read_cora(tmp_path, samples.official(files)).edge_index.T.tolist() == [list(edge) for edge in wanted]


def test_a_random_split_has_the_sizes_of_the_standard_one_and_shares_no_node(tmp_path):
    files, _ = samples.cora()
    samples.put(tmp_path / "cora", files)
    data = read_cora(tmp_path, samples.official(files))
    order = np.random.default_rng(3).permutation(len(data.labels))
    split = cora.split_by(data, order)
    parts = [split.train, split.validation, split.test]
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    assert [len(split.validation), len(split.test)] == [len(data.validation), len(data.test)]
    classes = int(data.labels.max()) + 1
    assert np.bincount(split.labels[split.train], minlength=classes).tolist() == [len(data.train) // classes] * classes
    assert not np.array_equal(split.train, cora.split_by(data, order[::-1]).train)
    np.testing.assert_array_equal(split.labels, data.labels)
