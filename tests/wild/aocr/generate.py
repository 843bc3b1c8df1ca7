"""Writes data.tfrecords: grey images with the text that they stand for, as TFRecords of tf.train.Example."""

import random
import struct
import zlib
from pathlib import Path

CASTAGNOLI = 0x82F63B78


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CASTAGNOLI if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def field(data: bytes, number: int = 1) -> bytes:
    size, length = b"", len(data)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def example(**features: bytes) -> bytes:
    entries = (field(field(name.encode()) + field(field(field(value)), 2)) for name, value in features.items())
    return field(b"".join(entries))


def png(width: int, height: int, grey: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + grey[row * width : (row + 1) * width] for row in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


rng = random.Random(1)
rows = []
for _ in range(32):
    text = "".join(rng.choice("0123456789ABCDEF") for _ in range(4))
    grey = bytes(16 * int(text[x // 24], 16) for _ in range(32) for x in range(96))
    rows.append(record(example(image=png(96, 32, grey), label=text.encode())))
Path("data.tfrecords").write_bytes(b"".join(rows))
