"""The shape of a model."""

from dataclasses import replace

import pytest

from tests.model_host.number_engine import NumberEngine


@pytest.mark.parametrize(("heads", "kv_heads", "group"), [(9, 3, 3), (8, 8, 1), (32, 1, 32)])
def test_query_heads_share_key_value_heads_evenly(heads: int, kv_heads: int, group: int) -> None:
    assert replace(NumberEngine.config, heads=heads, kv_heads=kv_heads).group == group
