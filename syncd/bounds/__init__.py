"""What one peer may cost a hub and the others."""

from syncd.bounds.accountant import Accountant, Holder
from syncd.bounds.bringers import Bringers
from syncd.bounds.bucket import Bucket
from syncd.bounds.budget import (
    STRANGERS,
    UPLOAD_UNITS,
    Budget,
    is_reserved,
    units_of,
    units_of_entries,
    units_of_work,
    units_sent,
    vouched,
)
from syncd.bounds.disk_quota import DiskQuota, disk_bytes
from syncd.bounds.mailboxes import SHARDS, Mailboxes
from syncd.bounds.running_calls import RunningCalls
from syncd.bounds.shares import Payer
from syncd.bounds.step_queue import StepQueue
from syncd.bounds.streams import Streams
from syncd.bounds.tally import Tally

__all__ = [
    "SHARDS",
    "STRANGERS",
    "UPLOAD_UNITS",
    "Accountant",
    "Bringers",
    "Bucket",
    "Budget",
    "DiskQuota",
    "Holder",
    "Mailboxes",
    "Payer",
    "RunningCalls",
    "StepQueue",
    "Streams",
    "Tally",
    "disk_bytes",
    "is_reserved",
    "units_of",
    "units_of_entries",
    "units_of_work",
    "units_sent",
    "vouched",
]
