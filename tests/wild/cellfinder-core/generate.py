"""Writes data/: cubes of 20 planes of 50 by 50 pixels, with a bright middle (a cell) and without, as TIFF files."""

import random
import struct
from pathlib import Path

PLANES, SIDE = 20, 50


def tiff(planes: list[bytes]) -> bytes:
    """A file of uncompressed grey planes."""
    data = b"II*\0" + struct.pack("<I", 8)
    for number, plane in enumerate(planes):
        tags = {256: SIDE, 257: SIDE, 258: 8, 259: 1, 262: 1, 277: 1, 278: SIDE, 279: len(plane)}
        start = len(data) + 2 + 12 * (len(tags) + 1) + 4
        tags[273] = start
        entries = (struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
        following = 0 if number + 1 == len(planes) else start + len(plane)
        data += struct.pack("<H", len(tags)) + b"".join(entries) + struct.pack("<I", following) + plane
    return data


def cube(rng: random.Random, *, cell: bool) -> bytes:
    dark = bytes(value // 8 for value in range(256))
    planes = []
    for number in range(PLANES):
        plane = bytearray(rng.randbytes(SIDE * SIDE).translate(dark))
        for row in range(20, 30) if cell and 5 <= number < 15 else ():
            plane[row * SIDE + 20 : row * SIDE + 30] = bytes([200] * 10)
        planes.append(bytes(plane))
    return tiff(planes)


source = random.Random(1)
text = "data:\n"
for kind in ("cell", "no_cell"):
    folder = Path("data") / kind
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(8):
        for channel in (1, 2):
            content = cube(source, cell=kind == "cell" and channel == 1)
            (folder / f"pCellz{number}y0x0Ch{channel}.tif").write_bytes(content)
    text += f"- {{cube_dir: data/{kind}, cell_def: '', type: {kind}, signal_channel: 1, bg_channel: 2}}\n"
Path("data/cubes.yml").write_text(text)
