"""1797 images of handwritten digits, 8 by 8 pixels, that come with scikit-learn: nothing is downloaded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

CLASSES = 10
PIXELS = 64


class Digits(NamedTuple):
    """Images as rows of 64 numbers from 0 to 1, labels from 0 to 9; every process splits them alike."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load() -> Digits:
    """Reads the digits and sets a fifth of them apart for testing."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    labels = labels.astype("int64")
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return Digits(train_images, train_labels, test_images, test_labels)


def batches(strategy: tf.distribute.Strategy, digits: Digits, batch_size: int) -> tf.distribute.DistributedDataset:
    """Training batches of `batch_size` images over all replicas, without an end, each reader in an order of its own."""

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        examples = tf.data.Dataset.from_tensor_slices((digits.train_images, digits.train_labels))
        examples = examples.shuffle(len(digits.train_labels)).repeat()
        return examples.batch(context.get_per_replica_batch_size(batch_size), drop_remainder=True).prefetch(4)

    return strategy.distribute_datasets_from_function(pipeline)
