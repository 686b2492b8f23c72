"""What `status` shows of the hub, and of the process through which the store is used."""

from typing import Any

from antiphon.cli.common.session import Session
from antiphon.cli.views import brief, harmless, step_of
from replica.io import Replica
from replica.link import profile_names


def served_by(replica: Replica) -> str | None:
    """Return the process through which this one uses the store, None if it holds it itself."""
    other = replica.processes.served_by
    if other is None:
        return None
    label = f" ({harmless(other.label)})" if other.label is not None else ""
    return f"through process {other.process}{label}"


def hub_record(session: Session, replica: Replica) -> dict[str, Any]:
    """Return the hub as a JSON object: its link, its key, why it is away, its hosts."""
    error = replica.hub.last_error
    return {
        "address": session.settings.hub,
        "state": "linked" if replica.hub.is_linked else "away",
        "key": replica.hub.key.hex() if replica.hub.key is not None else None,
        "error": brief(error) if error and not replica.hub.is_linked else None,
        "next_step": step_of(error) if error and not replica.hub.is_linked else None,
        "hosts": [
            {
                "key": host.key.hex(),
                "address": host.info.address,
                "profiles": list(profile_names(host.info.profiles)),
                "vouched": host.vouched,
            }
            for host in replica.hub.hosts
            if replica.hub.is_linked
        ],
    }
