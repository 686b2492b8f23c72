"""`antiphon hub`: run one, and pin the key that one proves now."""

from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.commands import serve
from antiphon.cli.common import (
    Group,
    KeyNotGiven,
    Session,
    Unconfirmed,
    command,
    is_confirmed,
    parse_key,
)
from replica.conversation import EntryStore, is_loopback
from replica.ids import PublicKey
from replica.io import HubCalls, HubKeyUnknown, pin, pinned_key
from replica.refusals import PeerIdentityChanged, PinDamaged


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(cls=Group, no_args_is_help=True)
    app.add_typer(group, name="hub", help="Run a hub, or trust one's key.", rich_help_panel="Keep")
    serve.register_hub(group)

    @command(group, "trust")
    async def trust(
        session: Session,
        *,
        key: Annotated[
            str | None, typer.Option(metavar="KEY", help="The key the hub has to prove.")
        ] = None,
        yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    ) -> int:
        """Pin the key that the hub proves now, in place of the one pinned before.

        A hub that lost its key, or a new hub at the address, has another key. Compare
        it with the one that `antiphon --data-dir FOLDER key show` prints for the hub's folder,
        or give that as --key. Off loopback --yes alone is refused: whoever answers there could
        be anyone.
        """
        expected = parse_key(key) if key is not None else None
        address = session.settings.hub
        if yes and expected is None and not is_loopback(address):
            raise HubKeyUnknown(f"{address} is not on this machine; --yes alone pins no key there")
        async with session.replica(linked=False) as replica:
            before, now = await _keys(session, replica.store)
            if expected is not None and now != expected:
                raise PeerIdentityChanged(f"the hub at {address} proves {now.hex()}, not {key}")
            if before != now:
                if not (yes or expected or _is_trusted(session, before, now)):
                    session.out.note("nothing was changed")
                    return 1
                await pin(replica.store, address, now)
        _report(session, before, now)
        return 0


async def _keys(session: Session, store: EntryStore) -> tuple[PublicKey | None, PublicKey]:
    """Return the pinned key, None if there is none to be read, and the one proved now."""
    try:
        before = await pinned_key(store, session.settings.hub)
    except PinDamaged:
        before = None
    calls = HubCalls(session.settings.hub, session.key(), store)
    try:
        return before, await calls.proved_key()
    finally:
        await calls.close()


def _is_trusted(session: Session, before: PublicKey | None, now: PublicKey) -> bool:
    kind = Unconfirmed if is_loopback(session.settings.hub) else KeyNotGiven
    known = before.hex() if before is not None else "none that can be read"
    return is_confirmed(
        session.out,
        [f"pinned before   {known}", f"proved now      {now.hex()}"],
        "Trust this key from now on?",
        kind(f"the hub proves {now.hex()}, and there is no terminal to ask"),
    )


def _report(session: Session, before: PublicKey | None, now: PublicKey) -> None:
    address = session.settings.hub
    if session.out.as_json:
        old = before.hex() if before is not None else None
        session.out.emit({"hub": address, "key": now.hex(), "pinned_before": old})
        return
    unchanged = ["(as before)"] if before == now else []
    session.out.item(Text(), f"{address} is trusted with key", now.hex(), *unchanged)
