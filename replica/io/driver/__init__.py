"""The driver of the replica core: its store, its link, the processes beside it.

What a `Replica` fetches, lists or compares by that link is here too.
"""

from replica.io.driver.fetch import fetch_missing, import_entries
from replica.io.driver.hub_status import HubStatus, any_vouched, means_away
from replica.io.driver.listing import hear_list, listed
from replica.io.driver.long_logs import restored
from replica.io.driver.performer import Performer
from replica.io.driver.processes import LOOK_AGAIN_S
from replica.io.driver.replica import Replica
from replica.io.driver.saved_acks import SavedAcks
from replica.io.driver.saved_endings import SavedEndings
from replica.io.driver.second_look import SecondLook, held_at_hub, look_again

__all__ = [
    "LOOK_AGAIN_S",
    "HubStatus",
    "Performer",
    "Replica",
    "SavedAcks",
    "SavedEndings",
    "SecondLook",
    "any_vouched",
    "fetch_missing",
    "hear_list",
    "held_at_hub",
    "import_entries",
    "listed",
    "look_again",
    "means_away",
    "restored",
]
