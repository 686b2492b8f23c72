"""Invitations and what is recorded of them, through crashes, restores and restarts."""

import asyncio
import shutil
from dataclasses import replace

from replica.conversation import decode_invitation
from replica.ids import PublicKey
from replica.io import Store, issued_invitations
from replica.io.conversations.issued_invitations import update
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_invite import bob, code_of, leaves_a_proof

__all__ = ["bob"]


def test_another_key_in_the_inviter_s_folder_voids_no_code(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    leaves_a_proof(bob, code)
    path = me.data_dir / "identity.key"
    own = path.read_bytes()
    path.write_bytes((bob.data_dir / "identity.key").read_bytes())
    me.run("status")
    path.write_bytes(own)
    assert "bob has joined" in me.run("status").stderr


def test_a_restored_store_redeems_nothing_again(world: World, me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code, eve = code_of(me), world.replica("eve")
    backup = shutil.copytree(me.data_dir, world.folder / "backup")
    leaves_a_proof(bob, code)
    me.ok("status")
    shutil.rmtree(me.data_dir)
    shutil.copytree(backup, me.data_dir)
    leaves_a_proof(eve, code)
    me.ok("status")
    assert eve.run("join", code, "--no-wait").exit_code == 1
    assert sum("writer" in r["roles"] for r in me.records("members")) == 1


def test_a_restored_store_believes_its_log_more_than_the_hub(
    world: World, me: Terminal, bob: Terminal
) -> None:
    """The hub hides that the first proof was answered; the grant is in the log."""
    me.ok("new")
    code, eve = code_of(me), world.replica("eve")
    backup = shutil.copytree(me.data_dir, world.folder / "backup")
    name = decode_invitation(code).mailbox
    leaves_a_proof(bob, code)
    me.ok("status")
    shutil.rmtree(me.data_dir)
    shutil.copytree(backup, me.data_dir)
    assert world.hub is not None
    boxes = world.hub.invitations._boxes
    boxes._boxes[name].deposits.clear()
    leaves_a_proof(eve, code)
    me.ok("status")
    assert eve.refused("join", code) == "INVITE_REVOKED"
    assert sum("writer" in r["roles"] for r in me.records("members")) == 1


def test_a_claim_is_kept_through_a_crash_before_its_grant(
    world: World, me: Terminal, bob: Terminal
) -> None:
    me.ok("new")
    code, eve = code_of(me), world.replica("eve")
    leaves_a_proof(eve, code)
    leaves_a_proof(bob, code)
    claimed_by = bytes.fromhex(bob.record("key", "show")["key"])

    async def claim() -> None:
        async with await Store.open(me.store_path) as store:
            (issued,) = await issued_invitations(store)
            await update(store, replace(issued, claimed_by=PublicKey(claimed_by)))

    asyncio.run(claim())
    me.ok("status")
    assert bob.record("join", code)["synchronized"]
    assert eve.refused("join", code) == "INVITE_USED"


def test_the_hub_keeps_proofs_over_a_restart(world: World, me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    leaves_a_proof(bob, code)
    world.stop_host()
    world.stop_hub()
    world.start_hub()
    assert "bob has joined" in me.run("status").stderr
    assert bob.record("join", code)["synchronized"]
