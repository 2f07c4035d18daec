"""Object storage: a local directory, or S3 and what speaks like it, through `obstore`.

Objects are written whole or not at all and never changed. Bytes go in and out in pieces, so nobody holds a whole one.
"""

from libs.blobs.store import PIECE_BYTES, BlobMissing, Blobs, Stored, location

__all__ = ["PIECE_BYTES", "BlobMissing", "Blobs", "Stored", "location"]
