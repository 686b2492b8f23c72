"""Inviting and joining from a program, in both forms."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.library.io.handle import SYNC_S
from replica.conversation import decode_invitation, encode_invitation
from replica.ids import PublicKey
from replica.io import Replica, Store, import_entries, issued_invitations, keys
from replica.io.conversations.invitations import POLL_S
from tests.antiphon.library.conftest import Lab
from tests.support.callers import until
from tests.support.forms import joined
from tests.support.writers import Writer

FORMS = ["blocking"]


@asynccontextmanager
async def shared(lab: Lab) -> AsyncIterator[tuple[Any, str]]:
    """A conversation, and a code for it, while its owner's replica is open."""
    async with lab.open() as me:
        trip = await me.conversation("trip")
        yield trip, await trip.invite("bob", role="writer")


def over(code: str) -> str:
    """Return a code of the same invitation that has expired."""
    return encode_invitation(replace(decode_invitation(code), expire_time_ms=1))


async def until_refused(conversation: Any) -> None:
    """Wait until the hub has said that it takes nothing more: `sync` returns False then."""
    async with asyncio.timeout(10):
        while await conversation.sync():  # noqa: ASYNC110  # nobody tells the program
            await asyncio.sleep(0)


async def test_a_code_opens_a_replica_on_the_conversation(talking: Lab):
    async with shared(talking) as (mine, code):
        async with joined(talking.form, code, talking.folder / "bob") as theirs:
            assert theirs.id == mine.id
            answer = await theirs.ask("Where do we meet?")
            assert answer.text == "You said: Where do we meet?"
        # The folder keeps the hub's address and key, and the code may be given again.
        async with talking.open("bob", hub=None) as bob:
            assert await bob.sync()
            assert len(await (await bob.join(code)).history()) == 2
            assert (await bob.join(over(code))).id == mine.id
        async with talking.open("eve") as eve:
            with pytest.raises(antiphon.AntiphonError) as refused:
                await eve.join(over(code))
            assert refused.value.reason == "INVITE_EXPIRED"


async def test_a_newcomer_waits_for_the_inviter_no_longer_than_said(talking: Lab):
    async with shared(talking) as (mine, code):
        pass
    async with talking.open("bob") as bob:
        with pytest.raises(antiphon.JoinPending):
            await bob.join(code, timeout_s=0.0)
        joining = asyncio.create_task(bob.join(code, timeout_s=10 * POLL_S))
        async with talking.open():  # it answers newcomers while it is open
            assert (await joining).id == mine.id


async def test_a_newcomer_that_waits_hears_that_its_replica_is_closed(talking: Lab):
    async with shared(talking) as (_, code):
        pass
    async with talking.open("bob") as bob:
        joining = asyncio.create_task(bob.join(code))
        with pytest.raises(antiphon.JoinPending):
            await bob.join(code, timeout_s=0.0)
    async with asyncio.timeout(5):
        with pytest.raises(antiphon.ReplicaClosed):
            await joining


async def test_a_removed_member_writes_nothing_more_and_has_all_in_sync(talking: Lab):
    async with shared(talking) as (mine, code), talking.open("bob") as bob:
        own, theirs = await bob.conversation("own"), await bob.join(code)
        await theirs.ask("Where do we meet?")
        entries = await theirs.history()
        await mine.remove(bob.key)
        await until_refused(theirs)
        for call in (
            theirs.say("Lost."), theirs.rename("lost"), theirs.ask("Lost?"), theirs.cancel(),
            theirs.remove(mine.id), theirs.grant(mine.id), theirs.invite("eve"),
        ):  # fmt: skip
            with pytest.raises(antiphon.AntiphonError) as refused:
                await call
            assert refused.value.reason == "KEY_REMOVED"
        with pytest.raises(antiphon.AntiphonError) as refused:
            async with asyncio.timeout(SYNC_S / 2):  # it waits for no news of other devices
                await theirs.ask("Lost?", key="job-17")
        assert refused.value.reason == "KEY_REMOVED"
        assert await theirs.history() == entries
        await own.say("Kept.")
        assert await bob.sync()


async def test_nothing_is_written_to_what_was_deleted_at_the_hub(lab: Lab):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        assert await trip.sync()
        assert lab.hub is not None
        await lab.hub.driver.delete(me.key, trip.id)
        await until_refused(trip)
        with pytest.raises(antiphon.AntiphonError) as refused:
            await trip.say("Lost.")
        assert refused.value.reason == "CONVERSATION_DELETED"
        assert await me.sync()


async def test_a_code_is_for_one_hub_and_one_role(talking: Lab):
    async with shared(talking) as (mine, code), talking.open("bob") as bob:
        elsewhere = replace(decode_invitation(code), hub_key=PublicKey(b"k" * 32))
        for text, reason in (
            (encode_invitation(elsewhere), "PEER_IDENTITY_CHANGED"),
            (code[:-1], "INVITE_INVALID"),
        ):
            with pytest.raises(antiphon.AntiphonError) as refused:
                await bob.join(text)
            assert refused.value.reason == reason
        for options in ({"role": "owner"}, {"role": "king"}, {"address": "0.0.0.0:7412"}):
            with pytest.raises(antiphon.AntiphonError) as refused:
                await mine.invite("bob", **options)
            assert refused.value.reason == "ARGUMENT_INVALID"


async def test_who_may_not_remove_a_key_is_told_who_may(lab: Lab):
    async with lab.open() as me, lab.open("bob") as bob:
        mine = await me.conversation("trip")
        await mine.grant(bob.key, "owner")
        assert await mine.sync()
        theirs = await bob.get(mine.id)
        with pytest.raises(antiphon.NotAllowed, match="senior") as refused:
            await theirs.remove(me.key)
        assert "an owner senior to it" in refused.value.next_step


async def test_a_folder_of_another_hub_is_not_joined_in(lab: Lab, tmp_path: Path):
    there = Lab(tmp_path / "there", lab.form)
    async with lab.open("bob") as bob:
        assert await (await bob.conversation("mine alone")).sync()
    async with there.stack:
        await there.start_hub()
        async with shared(there) as (_, code):
            with pytest.raises(antiphon.ArgumentInvalid, match="does not have") as refused:
                async with joined(lab.form, code, lab.folder / "bob"):
                    pass
            assert "another folder" in refused.value.next_step
            async with joined(lab.form, code, lab.folder / "bob there"):
                pass


async def test_a_role_that_is_none_names_those_that_are(lab: Lab):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        for role in ("boss", "owner"):
            with pytest.raises(antiphon.ArgumentInvalid) as refused:
                await trip.invite("bob", role=role)
            assert str(refused.value) == f"'{role}' is none of reader, writer, host"
        with pytest.raises(
            antiphon.ArgumentInvalid, match="is none of reader, writer, owner, host"
        ):
            await trip.grant(me.key, "boss")


async def test_invitations_made_at_once_are_all_recorded(lab: Lab):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        codes = await asyncio.gather(*(trip.invite(f"guest {n}") for n in range(4)))
    async with await Store.open(lab.folder / "me" / "log" / "log.db") as store:
        recorded = await issued_invitations(store)
    assert {encode_invitation(one.invitation) for one in recorded} == {*codes}


async def test_a_program_takes_back_the_codes_that_nobody_has_used(talking: Lab):
    async with shared(talking) as (mine, code), talking.open("bob") as bob:
        other = await mine.invite("eve")
        again = await mine.invite("bob")
        await bob.join(code)
        assert await mine.uninvite("bob") == 1
        assert await mine.uninvite("bob") == 0
        assert await mine.uninvite("nobody") == 0
        async with talking.open("late") as late:
            with pytest.raises(antiphon.JoinPending):  # the hub knows of no such code
                await late.join(again, timeout_s=0.1)
            await late.join(other)
        with pytest.raises(antiphon.ArgumentInvalid, match="no text"):
            await mine.uninvite(None)


async def test_a_code_for_the_same_name_elsewhere_stays(lab: Lab):
    async with lab.open() as me:
        trip, other = await me.conversation("trip"), await me.conversation("other")
        for one in (trip, other):
            await one.invite("bob")
        assert await trip.uninvite("bob") == 1
        assert await other.uninvite("bob") == 1


async def test_codes_are_taken_back_without_a_hub(lab: Lab):
    async with shared(lab) as (mine, _code):
        assert lab.hub is not None
        await lab.hub.stop()
        assert await mine.uninvite("bob") == 1


async def test_a_removed_member_is_refused_on_the_streams_it_has(talking: Lab):
    async with talking.shared() as (bob, mine, theirs):
        await theirs.ask("Am I here?")
        await mine.remove(bob.key)
        assert await mine.sync()
        with pytest.raises(antiphon.AntiphonError) as refused:
            await theirs.ask("Still here?")
        assert refused.value.reason == "KEY_REMOVED"
        assert "Still here?" not in [getattr(e, "text", "") for e in await mine.history()]
        with pytest.raises(antiphon.AntiphonError):
            await mine.remove(bob.key)
    async with talking.open("bob") as bob:
        theirs = await bob.get(mine.id)  # denied before the question, and no news comes any more
        with pytest.raises(antiphon.AntiphonError) as refused:
            await theirs.ask("Still here?", timeout_s=5.0)
        assert refused.value.reason == "KEY_REMOVED"


async def test_nobody_is_invited_without_a_hub(lab: Lab):
    lab.hub = None
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.AntiphonError) as refused:
            await trip.invite("bob")
        assert refused.value.reason == "HUB_UNREACHABLE"


async def test_the_last_owner_leaves_only_if_that_is_meant(lab: Lab):
    async with lab.open() as me, lab.open("bob") as bob:
        trip = await me.conversation("trip")
        await trip.grant(bob.key)
        with pytest.raises(antiphon.AntiphonError, match="is the last owner") as refused:
            await trip.remove(me.key)
        assert refused.value.reason == "LAST_OWNER"
        await trip.say("Still here.")
        assert await trip.sync()
        theirs = await bob.get(trip.id)
        await theirs.remove(bob.key)
        await trip.remove(me.key, leave_ownerless=True)
        with pytest.raises(antiphon.AntiphonError) as gone:
            await trip.say("Too late.")
        assert gone.value.reason == "KEY_REMOVED"
        with pytest.raises(antiphon.AntiphonError) as gone:
            await trip.ask("Who grants a host now?")
        assert gone.value.reason == "KEY_REMOVED"


async def test_a_key_without_a_role_grants_no_host(lab: Lab):
    """The log of others that it imported from a bundle."""
    ada = Writer(1)
    genesis = ada.genesis()
    keys.load_or_create(lab.folder / "me" / "identity.key")
    path = lab.folder / "me" / "log" / "log.db"
    async with Replica.open(path, ada.key) as replica:
        await import_entries(replica, (genesis,))
    lab.hub = None
    async with lab.open() as me:
        theirs = await me.get(genesis.conversation)
        with pytest.raises(antiphon.AntiphonError) as refused:
            await theirs.ask("May I?")
        assert refused.value.reason == "HOST_MISSING"


async def test_an_owner_leaves_behind_another_one(lab: Lab):
    async with lab.open() as me, lab.open("bob") as bob:
        trip = await me.conversation("trip")
        await trip.grant(bob.key, "owner")
        assert await trip.sync()
        theirs = await bob.get(trip.id)
        events = theirs.events()
        await trip.remove(me.key)
        async for event in events:
            if isinstance(event, antiphon.MemberChanged) and event.role is None:
                break
        await theirs.grant(bytes([1]) * 32)
        with pytest.raises(antiphon.AntiphonError, match="is the last owner"):
            await theirs.remove(bob.key)


async def test_a_conversation_of_a_hub_that_is_away_is_not_said_to_be_unknown(lab: Lab):
    async with lab.open() as me, lab.open("bob") as bob:
        mine = await me.conversation("trip")  # of which the hub sends Bob nothing
        assert await mine.sync()
        assert lab.hub is not None
        await lab.hub.stop()
        await until(lambda: not bob.is_linked)
        with pytest.raises(antiphon.AntiphonError) as refused:
            await bob.get(mine.id)
        assert refused.value.reason == "HUB_UNREACHABLE"


async def test_a_system_text_that_no_entry_holds_begins_no_conversation(lab: Lab):
    async with lab.open() as me:
        with pytest.raises(antiphon.AntiphonError) as refused:
            await me.conversation("trip", system="x" * 600_000)
        assert refused.value.reason == "BODY_TOO_LARGE"
        assert await me.conversations() == ()


@pytest.mark.parametrize("joins", [True, False])
async def test_a_reader_leaves(lab: Lab, *, joins: bool) -> None:
    async with lab.open() as me, lab.open("bob") as bob:
        trip = await me.conversation("trip")
        events = trip.events()
        if joins:
            theirs = await bob.join(await trip.invite("bob", role="reader"))
        else:
            await trip.grant(bob.key, "reader")
            assert await trip.sync()
            theirs = await bob.get(trip.id)
        await theirs.remove(bob.key)
        async with asyncio.timeout(10):
            async for event in events:  # so the hub took it
                if isinstance(event, antiphon.MemberChanged) and event.role is None:
                    assert event.who == bob.key
                    break
        with pytest.raises(antiphon.AntiphonError) as refused:
            await theirs.remove(bob.key)
        assert refused.value.reason == "KEY_REMOVED"


async def test_no_role_is_given_to_a_key_that_was_removed(lab: Lab):
    async with lab.open() as me, lab.open("bob") as bob:
        trip = await me.conversation("trip")
        await trip.grant(bob.key)
        await trip.remove(bob.key)
        events = trip.events()
        for role in ("writer", "reader", "owner"):
            with pytest.raises(antiphon.AntiphonError, match="was removed") as refused:
                await trip.grant(bob.key, role)
            assert refused.value.reason == "KEY_REMOVED"
            assert refused.value.next_step.startswith("Invite its holder again")
        await trip.grant(bytes([1]) * 32)
        async for event in events:
            if isinstance(event, antiphon.MemberChanged):
                assert event.who == bytes([1]) * 32  # nothing was written before
                break


async def test_an_owner_removes_those_that_it_granted_and_nobody_on_its_own_level(lab: Lab):
    """The docstring said that it removes all keys that were granted after its own."""
    theirs, own = bytes([1]) * 32, bytes([2]) * 32
    async with lab.shared() as (bob, mine, bobs):
        await mine.grant(bob.key, "owner")
        await mine.grant(theirs)
        assert await mine.sync()
        assert await bobs.sync()
        await bobs.grant(own)
        await bobs.remove(own)
        with pytest.raises(antiphon.NotAllowed, match="only an owner senior to"):
            await bobs.remove(theirs)
        assert await bobs.sync()
        assert await mine.sync()
        await mine.remove(theirs)
