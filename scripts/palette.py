"""Makes a screenshot small: the PNG file that is named gets a palette of its 256 most frequent colours.

Any other colour becomes the nearest of them. It reads what Chromium writes: 8 bits a channel, not interlaced.
"""

import struct
import sys
import zlib
from collections import Counter


def chunks(data):
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def rows(data, width, height, step):
    """The rows of pixels, their filters undone."""
    before = bytearray(width * step)
    for number in range(height):
        begin = number * (width * step + 1)
        kind, row = data[begin], bytearray(data[begin + 1 : begin + 1 + width * step])
        for at in range(len(row)):
            left = row[at - step] if at >= step else 0
            above = before[at]
            corner = before[at - step] if at >= step else 0
            if kind == 4:
                guess = left + above - corner
                paeth = min((left, above, corner), key=lambda it: abs(guess - it))
                row[at] = (row[at] + paeth) & 255
            elif kind:
                row[at] = (row[at] + (0, left, above, (left + above) // 2)[kind]) & 255
        yield bytes(row)
        before = row


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def main(path):
    with open(path, "rb") as file:
        parts = list(chunks(file.read()))
    width, height, depth, kind = struct.unpack(">IIBB", parts[0][1][:10])
    assert depth == 8 and kind in (2, 6), "not a picture as Chromium writes it"
    step = 3 if kind == 2 else 4
    packed = zlib.decompress(b"".join(data for name, data in parts if name == b"IDAT"))
    picture = [
        [row[at : at + 3] for at in range(0, len(row), step)]
        for row in rows(packed, width, height, step)
    ]
    used = Counter(pixel for row in picture for pixel in row)
    palette = [colour for colour, _ in used.most_common(256)]

    def nearest(colour):
        apart = lambda at: sum((a - b) ** 2 for a, b in zip(colour, palette[at]))
        return min(range(len(palette)), key=apart)

    numbers = {colour: nearest(colour) for colour in used}
    body = b"".join(b"\0" + bytes(numbers[pixel] for pixel in row) for row in picture)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    small = [(b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(body, 9))]
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.writelines(chunk(*part) for part in [*small, (b"IEND", b"")])


main(sys.argv[1])
