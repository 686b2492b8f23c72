"""The namespaces of a host's derived state, by owner and by readers (spec/08-checkpoint §6).

Two owners never share derived state, since its timing would reveal one to the other.
"""

import hashlib
import hmac
from dataclasses import replace

from model_host.engine_api import Engine
from model_host.kv import domain_salt
from model_host.scheduling import owner_of, shares_pages
from replica.conversation import Conversation


class Namespaces:
    """Salts the namespace of an engine with a host's key."""

    def __init__(self, engine: Engine, salt_key: bytes) -> None:
        """`salt_key` stays on the host."""
        self._namespace = engine.namespace(b"")  # the engine may be unloaded meanwhile
        self._salt_key = salt_key

    def stored(self, held: Conversation) -> bytes:
        """Return the digest for stored pages: those of one owner, 32 bytes."""
        return replace(self._namespace, salt=self._salt(held)).digest

    def pages(self, held: Conversation) -> bytes:
        """Return the digest for pages in memory: those of one owner and the same readers.

        Conversations that consent to sharing have one domain, whoever reads them.
        """
        readers = [key for key in held.log.membership.roles if held.is_member(key)]
        known = None if shares_pages(held) else readers
        return replace(self._namespace, salt=domain_salt(self._salt(held), known)).digest

    def _salt(self, held: Conversation) -> bytes:
        return hmac.digest(self._salt_key, owner_of(held), hashlib.sha256)
