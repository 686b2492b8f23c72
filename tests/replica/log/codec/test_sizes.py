"""Fields of a fixed size: exactly that size, or BODY_MALFORMED that says which."""

from collections.abc import Callable

import pytest

from replica.log.codec import sizes
from replica.refusals import BodyMalformed


@pytest.mark.parametrize("read", [sizes.entry_id_of, sizes.key_of, sizes.digest_of])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_another_size_is_refused_by_name(read: Callable[[bytes, str], bytes], size: int) -> None:
    assert read(bytes(32), "a thing") == bytes(32)
    with pytest.raises(BodyMalformed, match=f"a thing has {size} bytes, not 32"):
        read(bytes(size), "a thing")
