"""The secret by which a store recognises its own epochs: one small value (DECISIONS D630)."""

import os

from replica.conversation import EntryStore, StoreEpochs
from replica.errors import StoreError
from replica.io.process import get_logger

log = get_logger()

_KEY = "epoch secret"
_SECRET_BYTES = 16


async def store_epochs(store: EntryStore) -> StoreEpochs:
    """Return the epochs of a store, which gets a secret where it has none.

    Without a secret that stays, as on a full disk, the next opening begins new epochs. Raises
    StoreError.
    """
    secret = await store.get_meta(_KEY, is_derived=True)
    if secret is None:
        secret = os.urandom(_SECRET_BYTES)
        try:
            await store.put_meta(_KEY, secret)
        except StoreError as error:
            log.warning("no epoch goes on later", reason=error.reason, detail=error.detail)
    return StoreEpochs(secret)
