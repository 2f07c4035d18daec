"""Whether bytes are text."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterable, AsyncIterator


class TextCheck:
    """Looks at bytes as they pass: UTF-8 without NUL is text, everything else is not. No bytes are text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._whole = True

    async def passing(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The same pieces."""
        async for piece in pieces:
            self.see(piece)
            yield piece

    def see(self, piece: bytes) -> None:
        """The next bytes."""
        if not self._whole:
            return
        try:
            self._decoder.decode(piece)
        except UnicodeDecodeError:
            self._whole = False
        else:
            self._whole = b"\0" not in piece

    def is_text(self) -> bool:
        """Whether all that has passed is text."""
        if not self._whole:
            return False
        try:
            self._decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True
