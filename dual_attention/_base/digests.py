"""Digests of names and texts, which processes that draw data can have without PyTorch."""

import hashlib
from typing import Any


def stream_seed(*names: object) -> int:
    """A 63-bit seed for the stream with this name; other names, however similar, give unrelated streams."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def document_hash() -> Any:
    """A hash to be updated with the bytes of a document."""
    return hashlib.blake2b(digest_size=8)
