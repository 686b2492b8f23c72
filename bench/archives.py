"""Archives of checkpoints for benchmarks: made by one host, stored by another."""

import os
from io import FileIO
from pathlib import Path

from bench import jobs
from model_host.io.files.archive_files import store_archive
from model_host.kv import Manifest, encrypt_archive
from replica.ids import ConversationId

RING = b"r" * 32


def sealed(host: jobs.Host, conversation: bytes) -> bytes:
    """Return the archive of a conversation's newest checkpoint."""
    (manifest, *_) = host.pages.manifests(conversation)
    payloads = (host.pages.read(conversation, piece) for piece in manifest.pieces)
    return b"".join(encrypt_archive(RING, conversation, os.urandom(32), manifest, payloads))


def store(host: jobs.Host, conversation: bytes, path: Path) -> Manifest:
    """Check an archive, and store it among a host's checkpoints."""
    engine = host.engine
    namespace = engine.namespace(jobs.OWNER).digest
    with FileIO(path) as file:
        return store_archive(
            file,
            host.pages,
            RING,
            ConversationId(conversation),
            namespace,
            engine.memory.bytes_per_token,
        )
