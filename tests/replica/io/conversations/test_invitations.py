"""The grants of an inviter while its invitations are open (DECISIONS D277, D413)."""

import asyncio
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.conformance.io.proxy import proxied
from replica import limits
from replica.conversation import Issued, JoinVerdict
from replica.conversation.invitation import InviteExpired, InviteRevoked, JoinPending
from replica.ids import ConversationId, short
from replica.io import invite, require_link, revoke_invitation
from replica.io.conversations import begin, invitations, issued_invitations, joining
from replica.io.conversations.invitations import (
    InvitationsExceeded,
    Joined,
    Redeeming,
    _claim,
    void_invitations,
)
from replica.io.conversations.issued_invitations import update
from replica.io.conversations.joining import (
    FolderOfAnotherHub,
    await_grant,
    check_folder,
    check_usable,
    deposit,
)
from replica.io.conversations.pending_joins import pending_joins
from replica.io.driver.replica import Replica
from replica.io.serving.rpc import now_ms
from replica.log import Grant, Role
from replica.log.body import Genesis
from replica.refusals import ArgumentInvalid, PeerIdentityChanged, ValueDamaged
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import until
from tests.support.writers import Writer

ADA, BOB, EVE, HAL = (Writer(number) for number in range(1, 5))
WAIT_S = 10.0


class Place:
    """A hub, and replicas beside it; those of one folder share a store."""

    def __init__(self, folder: Path, hub: str) -> None:
        self.folder, self.hub = folder, hub

    @asynccontextmanager
    async def opened(self, who: Writer, name: str) -> AsyncIterator[Replica]:
        path = self.folder / name / "log.db"
        async with Replica.open(path, who.key, self.hub, shared=True) as replica:
            await require_link(replica, WAIT_S)
            yield replica

    def ada(self) -> AbstractAsyncContextManager[Replica]:
        return self.opened(ADA, "ada")

    def back_up(self, name: str) -> None:
        """Copy the closed store of Ada."""
        shutil.copytree(self.folder / "ada", self.folder / name)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    yield Place(tmp_path, hub.address)
    await hub.stop()


async def shared(replica: Replica) -> ConversationId:
    conversation = await replica.create(Genesis((replica.public,)))
    assert await replica.wait_synced(conversation, WAIT_S)
    return conversation


async def redeemed(inviter: Replica, newcomer: Replica, issued: Issued) -> list[JoinVerdict]:
    """Leave the newcomer's proof, and let the inviter answer."""
    await deposit(newcomer.calls(), issued.invitation, newcomer.public)
    return [one.verdict for one in await invitations.redeem(inviter)]


async def test_a_grant_of_the_inviter_voids_no_invitation(place: Place) -> None:
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        conversation = await shared(ada)
        first = await invite(ada, conversation, "bob")
        await begin.grant(ada, conversation, Grant(HAL.public, Role.HOST))
        assert await redeemed(ada, bob, first) == [JoinVerdict.GRANTED]
        await await_grant(bob, first.invitation, timeout_s=WAIT_S)


async def test_a_grant_by_another_process_on_the_store_voids_no_invitation(place: Place) -> None:
    async with place.ada() as ada, place.ada() as other, place.opened(BOB, "bob") as bob:
        conversation = await shared(ada)
        issued = await invite(ada, conversation, "bob")
        await other.follow(conversation)
        await begin.grant(other, conversation, Grant(HAL.public, Role.HOST))
        assert await redeemed(ada, bob, issued) == [JoinVerdict.GRANTED]


async def test_a_grant_by_another_device_of_the_key_voids_no_invitation(place: Place) -> None:
    """Either device may let somebody in; a code is redeemed by the one that made it."""
    async with place.ada() as ada, place.opened(ADA, "phone") as phone:
        conversation = await shared(ada)
        await phone.follow(conversation)
        assert await phone.wait_synced(conversation, WAIT_S)
        first, second = (
            await invite(ada, conversation, "bob"),
            await invite(phone, conversation, "eve"),
        )
        async with place.opened(EVE, "eve") as eve:
            assert await redeemed(phone, eve, second) == [JoinVerdict.GRANTED]
        assert await ada.wait_synced(conversation, WAIT_S)
        assert await ada.wait_for(lambda: is_member(ada, conversation), WAIT_S)
        async with place.opened(BOB, "bob") as bob:
            assert await redeemed(ada, bob, first) == [JoinVerdict.GRANTED]


def is_member(replica: Replica, conversation: ConversationId) -> bool:
    return replica.shelf[conversation].is_member(EVE.public)


async def test_who_joins_by_one_invitation_voids_no_other(place: Place) -> None:
    async with place.ada() as ada, place.opened(BOB, "bob") as bob, place.opened(EVE, "eve") as eve:
        conversation = await shared(ada)
        first = await invite(ada, conversation, "bob")
        second = await invite(ada, conversation, "eve")
        assert await redeemed(ada, bob, first) == [JoinVerdict.GRANTED]
        assert await redeemed(ada, eve, second) == [JoinVerdict.GRANTED]


async def test_one_that_is_revoked_makes_room_for_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = sys.modules[
        "replica.io.conversations.issued_invitations"
    ]  # the package has a function of the name
    for module in (invitations, records, limits):  # of the hub too
        monkeypatch.setattr(module, "MAILBOXES_PER_KEY_MAX", 3)
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        conversation = await shared(ada)
        made = [await invite(ada, conversation, f"guest {number}") for number in range(3)]
        for number in range(4):
            with pytest.raises(InvitationsExceeded) as refused:
                await invite(ada, conversation, "another")
            await revoke_invitation(ada, made[number])
            made.append(await invite(ada, conversation, f"guest {number + 3}"))
        assert (refused.value.reason, "uninvite" in refused.value.next_step) == (
            "QUOTA_EXCEEDED",
            True,
        )
        # A call of the hub names no more mailboxes than a key may have.
        assert await redeemed(ada, bob, made[-1]) == [JoinVerdict.GRANTED]
        kept = await issued_invitations(ada.store)
        assert [one.name for one in kept] == [f"guest {number}" for number in (1, 2, 3, 4, 5, 6)]


async def test_who_invites_with_a_clock_that_is_off_is_told_to_compare_the_clocks(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is two days ahead, or behind by more than a day."""
    async with place.ada() as inviter:
        conversation = await shared(inviter)
        for end_s in (3 * 24 * 3600, -1):
            monkeypatch.setattr(invitations, "INVITATION_LIFETIME_S", end_s)
            with pytest.raises(ArgumentInvalid, match="by the hub's clock") as refused:
                await invite(inviter, conversation, "bob")
            assert refused.value.next_step == "Compare this machine's clock with the hub's."


async def test_a_damaged_row_of_invitations_hinders_no_grant(place: Place) -> None:
    async with place.ada() as ada:
        conversation = await shared(ada)
        await invite(ada, conversation, "bob")
    with sqlite3.connect(place.folder / "ada" / "log.db") as raw:
        changed = raw.execute("UPDATE meta SET value = x'00' WHERE key = 'invitations'")
        assert changed.rowcount == 1
    raw.close()
    async with place.ada() as ada:
        with pytest.raises(ValueDamaged):
            await issued_invitations(ada.store)
        await begin.grant(ada, conversation, Grant(HAL.public, Role.HOST))


async def test_a_grant_that_the_store_does_not_know_voids_an_invitation(place: Place) -> None:
    """A store from a backup: the grant came after it, so the invitation may be redeemed."""
    async with place.ada() as ada:
        conversation = await shared(ada)
        issued = await invite(ada, conversation, "bob")
        await begin.grant(ada, conversation, Grant(HAL.public, Role.HOST))
    place.back_up("backup")
    async with place.ada() as ada:
        await ada.follow(conversation)
        # The same key in another role is another grant.
        await begin.grant(ada, conversation, Grant(HAL.public, Role.WRITER))
        assert await ada.wait_synced(conversation, WAIT_S)
    async with place.opened(ADA, "backup") as ada, place.opened(BOB, "bob") as bob:
        assert await redeemed(ada, bob, issued) == [JoinVerdict.REVOKED]
        (record,) = await issued_invitations(ada.store)
        assert record.is_revoked
        with pytest.raises(InviteRevoked):
            await await_grant(bob, issued.invitation, timeout_s=WAIT_S)


async def test_an_owner_that_was_removed_lets_nobody_in(place: Place) -> None:
    """Its removal may come while it waits for the hub, just before it judges the proof."""
    async with place.ada() as ada:
        conversation = await shared(ada)
        issued = await invite(ada, conversation, "bob")
        await begin.remove(ada, conversation, ADA.public, leave_ownerless=True)
        held, proof = await ada.load(conversation), issued.invitation.proof(BOB.public)
        found, verdict = await _claim(ada, held, issued, BOB.public, proof)
        assert (found.claimed_by, verdict) == (None, JoinVerdict.REVOKED)


@pytest.mark.parametrize("ending", ["removal", "deletion"])
async def test_an_end_that_no_entry_tells_lets_nobody_in(place: Place, ending: str) -> None:
    """The inviter was away meanwhile, and learns from the hub alone that it takes nothing more."""
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        conversation = await ada.create(Genesis((ADA.public, EVE.public)))
        assert await ada.wait_synced(conversation, WAIT_S)
        async with place.opened(EVE, "eve") as eve:
            await eve.follow(conversation)
            assert await eve.wait_synced(conversation, WAIT_S)
            issued = await invite(eve, conversation, "bob")
        if ending == "removal":
            await begin.remove(ada, conversation, EVE.public)
            assert await ada.wait_synced(conversation, WAIT_S)
        else:
            await ada.calls().delete(conversation)
        async with place.opened(EVE, "eve") as eve:
            assert await redeemed(eve, bob, issued) == [JoinVerdict.REVOKED]
            (record,) = await issued_invitations(eve.store)
            assert record.is_revoked
        with pytest.raises(InviteRevoked):
            await await_grant(bob, issued.invitation, timeout_s=WAIT_S)


async def test_a_used_code_is_refused_where_the_conversation_is_no_longer_held(
    place: Place,
) -> None:
    async with (
        place.ada() as ada,
        place.opened(BOB, "bob") as bob,
        place.opened(EVE, "eve") as eve,
    ):
        conversation = await shared(ada)
        issued = await invite(ada, conversation, "bob")
        assert await redeemed(ada, bob, issued) == [JoinVerdict.GRANTED]
        await ada.delete(conversation)
        assert await redeemed(ada, eve, issued) == [JoinVerdict.USED]


async def test_a_grant_that_the_hub_took_no_more_voids_its_code(place: Place) -> None:
    """The newcomer waited until the code expired: it was recorded as the one who had joined."""
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        conversation = await shared(ada)
        issued = await invite(ada, conversation, "bob")
        await update(ada.store, replace(issued, claimed_by=BOB.public))
        await ada.calls().delete(conversation)
        await void_invitations(ada, conversation)
        await ada.delete(conversation)
        assert await redeemed(ada, bob, issued) == [JoinVerdict.REVOKED]


async def test_who_is_linked_after_the_first_look_answers_before_it_stops(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may end right behind its sync, and its link may have come late."""
    monkeypatch.setattr(invitations, "POLL_S", 60.0)
    monkeypatch.setattr(invitations, "FINISH_S", WAIT_S)
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        issued = await invite(ada, await shared(ada), "bob")
        await deposit(bob.calls(), issued.invitation, bob.public)
    joined: list[Joined] = []
    path = place.folder / "ada" / "log.db"
    async with (
        proxied(place.hub) as proxy,
        Replica.open(path, ADA.key, proxy.address, shared=True) as ada,
    ):
        proxy.is_open = False
        proxy.cut()
        assert await ada.wait_for(lambda: ada.hub.is_away, WAIT_S)
        redeeming = Redeeming(ada, joined.append)
        redeeming.start()
        proxy.is_open = True
        assert await ada.wait_for(lambda: ada.hub.is_linked, WAIT_S)
        await redeeming.stop()
    assert [one.verdict for one in joined] == [JoinVerdict.GRANTED]


async def test_no_proof_is_left_at_a_hub_with_another_key_than_the_code_states(
    place: Place,
) -> None:
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        issued = await invite(ada, await shared(ada), "bob")
        wrong = replace(issued.invitation, hub_key=EVE.public)
        with pytest.raises(PeerIdentityChanged):
            await await_grant(bob, wrong, timeout_s=WAIT_S)
        assert await pending_joins(bob.store) == []
        assert await invitations.redeem(ada) == []


async def test_who_waits_is_told_why_once_for_each_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "POLL_FIRST_S", 0.001)
    asked: list[int] = []
    told: list[str] = []

    async def seen(*given: Any) -> int:
        asked.append(1)
        return await deposit(*given)

    monkeypatch.setattr(joining, "deposit", seen)
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        issued = await invite(ada, await shared(ada), "bob")
        waiting = asyncio.create_task(
            await_grant(bob, issued.invitation, report=lambda error: told.append(error.reason))
        )
        await until(lambda: len(asked) > 3)
        await update(ada.store, replace(issued, is_revoked=True))
        await invitations.redeem(ada)
        with pytest.raises(InviteRevoked):
            await waiting
    assert told == [JoinPending.reason]


async def test_a_deletion_voids_the_codes_of_no_other_conversation(place: Place) -> None:
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        first, second = [await invite(ada, await shared(ada), name) for name in ("bob", "eve")]
        await ada.calls().delete(first.invitation.conversation)
        await void_invitations(ada, first.invitation.conversation)
        assert await redeemed(ada, bob, first) == [JoinVerdict.REVOKED]
        assert await redeemed(ada, bob, second) == [JoinVerdict.GRANTED]


async def test_whose_role_is_here_has_joined_though_the_code_has_expired(place: Place) -> None:
    async with (
        place.ada() as ada,
        place.opened(BOB, "bob") as bob,
        place.opened(EVE, "eve") as eve,
    ):
        conversation = await shared(ada)
        issued = await invite(ada, conversation, "bob")
        await begin.grant(ada, conversation, Grant(BOB.public, Role.WRITER))
        assert await ada.wait_synced(conversation, WAIT_S)
        await bob.follow(conversation)
        assert await bob.wait_synced(conversation, WAIT_S)
        expired = replace(issued.invitation, expire_time_ms=now_ms())
        await await_grant(bob, expired, timeout_s=0)  # nobody has answered the proof
        await check_usable(bob.store, expired, bob.public)
        with pytest.raises(InviteExpired):
            await await_grant(eve, expired, timeout_s=0)
        with pytest.raises(InviteExpired):
            await check_usable(eve.store, expired, eve.public)


async def test_a_code_with_another_key_than_the_pinned_one_is_refused_before_its_use(
    place: Place,
) -> None:
    async with place.ada() as ada, place.opened(BOB, "bob") as bob:
        code = (await invite(ada, await shared(ada), "bob")).invitation
        await check_usable(bob.store, code, bob.public)
        with pytest.raises(PeerIdentityChanged):
            await check_usable(bob.store, replace(code, hub_key=EVE.public), bob.public)


async def test_a_folder_of_two_hubs_sends_neither_the_conversations_of_the_other(
    place: Place,
) -> None:
    config = HubConfig(data_dir=place.folder / "other hub", listen="127.0.0.1:0")
    other = await start(config)
    async with place.opened(EVE, "eve") as eve:
        code = (await invite(eve, await shared(eve), "ada")).invitation
    async with place.ada() as ada:
        at_both = await shared(ada)
        await check_folder(ada.store, code, None)
    async with Replica.open(place.folder / "ada" / "log.db", ADA.key, other.address) as ada:
        await require_link(ada, WAIT_S)
        unsent = await ada.create(Genesis((ADA.public,)))
        assert await ada.wait_synced(unsent, WAIT_S)
        with pytest.raises(FolderOfAnotherHub, match=short(unsent)):
            await check_folder(ada.store, code, place.hub)
        await check_folder(ada.store, replace(code, conversation=unsent), place.hub)
        await ada.delete(unsent)
        await check_folder(ada.store, code, place.hub)
        assert [one.conversation for one in await ada.store.conversations()] == [at_both]
    await other.stop()
