"""The host's errors: one tree, shown in full by its modules."""

import re
from collections.abc import Iterator

from model_host import errors, refusals
from model_host.io import fetch
from model_host.refusals import GenerationRefused
from replica.errors import HostError


def below(kind: type[HostError]) -> Iterator[type[HostError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("model_host."):
            yield child
            yield from below(child)


def test_every_error_of_the_host_is_in_the_tree_its_modules_show() -> None:
    assert fetch.ModelUnknown in below(HostError)
    shown = set(re.findall(r"\w+", f"{errors.__doc__} {refusals.__doc__}"))
    assert {kind.__name__ for kind in below(HostError)} - shown == set()
    declared = {kind.__name__ for kind in below(HostError)} | {"GenerationRefused", "HostError"}
    named = set(re.findall(r"[├└]── (\w+)", f"{errors.__doc__} {refusals.__doc__}"))
    assert named - declared == set()


def test_every_error_that_refuses_a_request_is_a_refusal() -> None:
    for name in ("SamplingInvalid", "StopInvalid", "TokenizerBytesMissing", "ContextTooLong"):
        assert issubclass(getattr(refusals, name), GenerationRefused)


def test_no_two_errors_share_a_reason() -> None:
    reasons = [kind.reason for kind in below(HostError)]
    assert len(reasons) == len(set(reasons))
