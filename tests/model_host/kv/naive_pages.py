"""A PageStore in a dict: no files, no groups shared, no budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_host.errors import CheckpointMissing
from model_host.kv.cache import Bytes, KVCache
from model_host.kv.checkpoint import Lineage, Manifest
from model_host.kv.page_store import StoreCounters

GROUP = 64


@dataclass(frozen=True)
class Stored:
    """One checkpoint, with all its inputs."""

    namespace: bytes
    ids: list[int]
    payload: list[Bytes]
    manifest: Manifest


class NaivePages:
    """A PageStore that copies every checkpoint as a whole."""

    def __init__(self) -> None:
        self.counters = StoreCounters()
        self._stored: dict[bytes, list[Stored]] = {}

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for held in self._stored.values() for s in held for p in s.payload)

    def save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
        cache: KVCache,
    ) -> Manifest | None:
        if not ids:
            return None
        count = len(ids)
        payload = [cache.read(at, min(at + GROUP, count)) for at in range(0, count, GROUP)]
        lineage = Lineage(namespace, ids).at(count)
        manifest = Manifest(seal, generation, count, lineage, namespace, ())
        held = self._stored.setdefault(conversation, [])
        held[:] = [s for s in held if (s.namespace, s.ids) != (namespace, list(ids))]
        held.insert(0, Stored(namespace, list(ids), payload, manifest))
        return manifest

    def restore(
        self,
        conversation: bytes,
        namespace: bytes,
        ids: Sequence[int],
        cache: KVCache,
        common: int = 0,
    ) -> int:
        best, most = None, common
        for stored in self._stored.get(conversation, []):
            ends = [*range(GROUP, len(stored.ids) + 1, GROUP), len(stored.ids)]
            fit = [n for n in ends if n < len(ids) and stored.ids[:n] == list(ids[:n])]
            if stored.namespace == namespace and max(fit, default=0) > most:
                best, most = stored, max(fit)
        if best is None:
            raise CheckpointMissing
        start = common // GROUP * GROUP
        cache.truncate(start)
        cache.reserve(most)
        for at in range(start, most, GROUP):
            cache.write(at, min(at + GROUP, most), best.payload[at // GROUP])
        cache.commit(most)
        return most

    def manifests(self, conversation: bytes) -> list[Manifest]:
        return [stored.manifest for stored in self._stored.get(conversation, [])]

    def delete(self, conversation: bytes) -> None:
        self._stored.pop(conversation, None)
