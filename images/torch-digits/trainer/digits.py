"""Noisy images of the ten digits, the same on every machine: nothing is downloaded."""

from __future__ import annotations

import torch

SIDE = 12
CLASSES = 10
_FONT = """
### ..# ### ### #.# ### ### ### ### ###
#.# ..# ..# ..# #.# #.. #.. ..# #.# #.#
#.# ..# ### ### ### ### ### ..# ### ###
#.# ..# #.. ..# ..# ..# #.# ..# #.# ..#
### ..# ### ### ..# ### ### ..# ### ###
"""


def make(count: int) -> torch.utils.data.TensorDataset:
    """Makes `count` images of SIDE by SIDE pixels, each with a digit somewhere in it, and the digits as labels."""
    random = torch.Generator().manual_seed(7)
    rows = [line.split() for line in _FONT.split("\n") if line]
    glyphs = torch.tensor([[[mark == "#" for mark in row[digit]] for row in rows] for digit in range(CLASSES)])
    height, width = glyphs.shape[1:]
    labels = torch.randint(CLASSES, (count,), generator=random)
    tops = torch.randint(SIDE - height + 1, (count,), generator=random)
    lefts = torch.randint(SIDE - width + 1, (count,), generator=random)
    images = torch.randn(count, SIDE, SIDE, generator=random) / 2
    for image, label, top, left in zip(images, labels, tops, lefts, strict=True):
        image[top : top + height, left : left + width] += glyphs[label]
    return torch.utils.data.TensorDataset(images.unsqueeze(1), labels)
