"""Writes data/: random molecules in the format of QM9."""

import gzip
import json
import random
from pathlib import Path

rng = random.Random(1)
folder = Path("data")
folder.mkdir(exist_ok=True)
for name, count in (("train", 64), ("valid", 16), ("test", 16)):
    with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
        for _ in range(count):
            atoms = rng.randrange(4, 9)
            row = {
                "graph": [[atom - 1, rng.randrange(1, 5), atom] for atom in range(1, atoms)],
                "node_features": [[rng.random() for _ in range(5)] for _ in range(atoms)],
                "targets": [[rng.random()] for _ in range(13)],
            }
            file.write(json.dumps(row) + "\n")
