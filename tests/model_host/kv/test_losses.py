"""Work that is lost again and again is given up."""

import pytest

from model_host.errors import CacheBusy
from model_host.kv.losses import Losses
from replica.limits import LOSSES_MAX


def test_a_bounded_number_of_losses_is_borne() -> None:
    losses = Losses()
    for _ in range(LOSSES_MAX):
        losses.note()
    with pytest.raises(CacheBusy) as caught:
        losses.note()
    assert caught.value.retryable
