"""Files as they are after damage."""

from __future__ import annotations

import numpy as np

KINDS = ("flipped", "truncated", "longer")


def damaged(content: bytes, kind: str, place: int, rng: np.random.Generator) -> bytes:
    """Content with one bit flipped at a place, cut off there, or longer by one byte there."""
    found = bytearray(content)
    if kind == "flipped":
        found[place] ^= 1 << int(rng.integers(8))
    elif kind == "truncated":
        del found[place:]
    else:
        found.insert(int(place), 0)
    return bytes(found)
