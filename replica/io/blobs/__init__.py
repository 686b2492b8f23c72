"""Blobs on disk, with their quotas and uploads."""

from replica.io.blobs.blob_files import BlobState, pieces_of
from replica.io.blobs.blob_tally import BlobQuota
from replica.io.blobs.blob_writer import BlobWriter
from replica.io.blobs.blobs import Blobs
from replica.io.blobs.expiring_blobs import ExpiringBlobs

__all__ = [
    "BlobQuota",
    "BlobState",
    "BlobWriter",
    "Blobs",
    "ExpiringBlobs",
    "pieces_of",
]
