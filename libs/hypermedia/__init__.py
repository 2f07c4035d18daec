"""Hypermedia's own data: signed blobs, and files as IPFS blocks. `libs.hypermedia.server` publishes them."""

from libs.hypermedia.blobs import (
    Blob,
    PublishFailed,
    change,
    document_operations,
    genesis,
    home_document,
    profile,
    version_ref,
)
from libs.hypermedia.publishing import publish_file
from libs.hypermedia.unixfs import CHUNK_BYTES, FileTree, file_blobs, ipfs_url

__all__ = [
    "CHUNK_BYTES",
    "Blob",
    "FileTree",
    "PublishFailed",
    "change",
    "document_operations",
    "file_blobs",
    "genesis",
    "home_document",
    "ipfs_url",
    "profile",
    "publish_file",
    "version_ref",
]
