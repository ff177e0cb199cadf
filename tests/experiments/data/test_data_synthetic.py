"""Synthetic data: legal, the same each time, and learnable."""

import numpy as np

from experiments.data import synthetic as made


def test_images_are_reproducible_balanced_and_learnable():
    first = made.images((3, 32, 32))
    assert first.info == made.images((3, 32, 32)).info != made.images((1, 28, 28)).info
    assert first.train_images.dtype == np.uint8
    assert np.ptp(np.bincount(first.train_labels, minlength=10)) <= 1
    # The nearest class mean separates the classes; chance is 0.1.
    means = np.stack([first.train_images[first.train_labels == c].mean(axis=0) for c in range(10)])
    distances = ((first.test_images[:, None] - means[None]) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == first.test_labels).mean() > 0.9


def test_a_graph_is_legal_and_learnable():
    graph = made.graph()
    assert graph.info == made.graph().info
    source, target = graph.edge_index
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert len(pairs) == len(source)
    assert all(a != b and (b, a) in pairs for a, b in pairs)
    np.testing.assert_array_equal(np.sort(np.concatenate([graph.train, graph.validation, graph.test])), np.arange(120))
    # The majority class of the neighbours mostly equals the node's class; chance is 0.25.
    votes = np.zeros((120, 4))
    np.add.at(votes, (target, graph.labels[source]), 1)
    assert (votes.argmax(axis=1) == graph.labels).mean() > 0.8
