"""A PageStore in a dict: no files, no groups shared, no budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from model_host.errors import CheckpointMissing
from model_host.kv.checkpoint import Manifest
from model_host.kv.lineage import Lineage
from model_host.kv.memory import Bytes
from model_host.kv.page_store import PageSource, PageTarget, StoreCounters, Stored

GROUP = 64


@dataclass(frozen=True)
class Held:
    """One checkpoint, with all its inputs."""

    namespace: bytes
    ids: list[int]
    payload: list[Bytes]
    manifest: Manifest


class NaivePages:
    """A PageStore that copies every checkpoint as a whole."""

    def __init__(self) -> None:
        self.counters = StoreCounters()
        self._held: dict[bytes, list[Held]] = {}
        self._distrusted: set[bytes] = set()

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for held in self._held.values() for s in held for p in s.payload)

    def save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
        source: PageSource,
    ) -> Manifest | None:
        if not ids or namespace in self._distrusted:
            return None
        count = len(ids)
        payload = [source.read(at, min(at + GROUP, count)) for at in range(0, count, GROUP)]
        lineage = Lineage(namespace, ids).at(count)
        manifest = Manifest(seal, generation, count, lineage, namespace, ())
        held = self._held.setdefault(conversation, [])
        held[:] = [s for s in held if (s.namespace, s.ids) != (namespace, list(ids))]
        held.insert(0, Held(namespace, list(ids), payload, manifest))
        return manifest

    def find(
        self, conversation: bytes, namespace: bytes, ids: Sequence[int], common: int = 0
    ) -> Stored:
        best, most = None, common
        for held in self._held.get(conversation, []):
            ends = [*range(GROUP, len(held.ids) + 1, GROUP), len(held.ids)]
            fit = [n for n in ends if n < len(ids) and held.ids[:n] == list(ids[:n])]
            is_usable = held.namespace == namespace not in self._distrusted
            if is_usable and max(fit, default=0) > most:
                best, most = held, max(fit)
        if best is None:
            raise CheckpointMissing
        return Stored(conversation, best.manifest, most)

    def load(self, stored: Stored, target: PageTarget) -> None:
        held = next(h for h in self._held[stored.conversation] if h.manifest is stored.manifest)
        while target.tokens < stored.tokens:
            payload = held.payload[target.tokens // GROUP]
            stop = min(target.tokens + GROUP, len(held.ids))
            target.write(stop, payload)

    def manifests(self, conversation: bytes) -> list[Manifest]:
        return [held.manifest for held in self._held.get(conversation, [])]

    def delete(self, conversation: bytes) -> None:
        self._held.pop(conversation, None)

    def distrust(self, namespace: bytes) -> None:
        self._distrusted.add(namespace)
