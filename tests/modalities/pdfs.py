"""PDFs written by hand, the good and the bad ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
HELVETICA = b"<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
LETTER = (0, 0, 612, 792)


def pdf(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A file of these objects, numbered from 1; the first one is the catalog."""
    data, starts = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, start=1):
        starts.append(len(data))
        data += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    count = len(objects) + 1
    end = b"xref\n0 %d\n0000000000 65535 f \n%b" % (count, table)
    end += b"trailer\n<</Size %d/Root 1 0 R%b>>\n" % (count, trailer)
    return data + end + b"startxref\n%d\n%%%%EOF" % len(data)


def kids(*numbers: int) -> bytes:
    """The tree of pages: the numbers of their objects."""
    listed = b" ".join(b"%d 0 R" % number for number in numbers)
    return b"<</Type/Pages/Kids[%b]/Count %d>>" % (listed, len(numbers))


def leaf(content: int, box: tuple[float, ...] = LETTER, more: bytes = b"") -> bytes:
    """A page that shows the stream with this number."""
    sides = b" ".join(b"%g" % side for side in box)
    return b"<</Type/Page/Parent 2 0 R/MediaBox[%b]/Contents %d 0 R/Resources%b%b>>" % (
        sides,
        content,
        HELVETICA,
        more,
    )


def stream(body: bytes) -> bytes:
    return b"<</Length %d>>stream\n%b\nendstream" % (len(body), body)


def text(*lines: str, size: int = 24, top: float = 740) -> bytes:
    """What draws lines of text, one below the other."""
    drawn = b" ".join(
        b"(%b) Tj 0 %d Td" % (line.encode("latin-1"), -round(1.2 * size)) for line in lines
    )
    return b"BT /F %d Tf 40 %g Td %b ET" % (size, top, drawn)


def document(*pages: bytes, box: tuple[float, ...] = LETTER, more: bytes = b"") -> bytes:
    """A PDF of pages that draw these things."""
    leaves = [leaf(3 + 2 * n + 1, box, more) for n in range(len(pages))]
    pairs = zip(leaves, map(stream, pages), strict=True)
    numbers = range(3, 3 + 2 * len(pages), 2)
    return pdf([CATALOG, kids(*numbers), *(part for pair in pairs for part in pair)])


PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
"""Of passwords, as the PDF standard has it."""


def rc4(key: bytes, data: bytes) -> bytes:
    box, at = list(range(256)), 0
    for n in range(256):
        at = (at + box[n] + key[n % len(key)]) % 256
        box[n], box[at] = box[at], box[n]
    coded, at = bytearray(), 0
    for count, byte in enumerate(data, start=1):
        n = count % 256
        at = (at + box[n]) % 256
        box[n], box[at] = box[at], box[n]
        coded.append(byte ^ box[(box[n] + box[at]) % 256])
    return bytes(coded)


def encrypted(password: str, drawn: bytes) -> bytes:
    """A page that a password opens (40-bit RC4, the first method of the standard)."""
    padded = (password.encode("latin-1") + PADDING)[:32]
    owner = rc4(hashlib.md5(padded).digest()[:5], padded)
    rights = (-4).to_bytes(4, "little", signed=True)
    key = hashlib.md5(padded + owner + rights + b"same").digest()[:5]
    of_stream = hashlib.md5(key + (4).to_bytes(3, "little") + b"\0\0").digest()[:10]
    lock = b"<</Filter/Standard/V 1/R 2/P -4/O<%b>/U<%b>>>" % (
        owner.hex().encode(),
        rc4(key, PADDING).hex().encode(),
    )
    identity = b"same".hex().encode()
    objects = [CATALOG, kids(3), leaf(4), stream(rc4(of_stream, drawn)), lock]
    return pdf(objects, b"/Encrypt 5 0 R/ID[<%b><%b>]" % (identity, identity))
