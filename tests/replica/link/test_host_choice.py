"""The host a new conversation is granted to: named, pinned, vouched for, or none."""

import pytest

from replica.ids import PublicKey
from replica.link.host_choice import HostChoice, HostReason, host_to_grant
from replica.link.messages import HostInfo, LinkedHost
from replica.refusals import NoHost

LOW, A, B, C = (PublicKey(bytes([n]) * 32) for n in (0, 10, 20, 30))
STRANGER = LinkedHost(HostInfo(LOW, "", ()))
FIRST = LinkedHost(HostInfo(B, "", ()), vouched=True)
SECOND = LinkedHost(HostInfo(A, "", ()), vouched=True)


@pytest.mark.parametrize(
    ("named", "pinned", "linked", "key", "reason"),
    [
        (C, None, (), C, HostReason.NAMED),
        (C, A, (FIRST,), C, HostReason.NAMED),
        (LOW, A, (STRANGER, FIRST), LOW, HostReason.NAMED),
        (None, A, (), A, HostReason.PINNED),
        (None, A, (STRANGER, FIRST), A, HostReason.PINNED),
        (None, LOW, (STRANGER, FIRST), LOW, HostReason.PINNED),
        (None, None, (FIRST,), B, HostReason.VOUCHED),
        (None, None, (FIRST, SECOND, STRANGER), B, HostReason.VOUCHED),
        # A hub that breaks the order changes nothing.
        (None, None, (STRANGER, FIRST), B, HostReason.VOUCHED),
    ],
)
def test_a_host_is_named_or_pinned_or_vouched_for(
    named: PublicKey | None,
    pinned: PublicKey | None,
    linked: tuple[LinkedHost, ...],
    key: PublicKey,
    reason: HostReason,
) -> None:
    assert host_to_grant(named, pinned, linked) == HostChoice(key, reason)


@pytest.mark.parametrize(
    ("linked", "words"),
    [((), "no model host"), ((STRANGER, STRANGER), r"vouches for none .*\(2\)")],
)
def test_a_strangers_host_is_granted_nothing(linked: tuple[LinkedHost, ...], words: str) -> None:
    with pytest.raises(NoHost, match=words) as refused:
        host_to_grant(None, None, linked)
    assert refused.value.reason == "NO_HOST"
    assert all(way in NoHost.next_step for way in ("--host ", "pin", "--host-key "))
