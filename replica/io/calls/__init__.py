"""Calls of hubs and model hosts, their channels, and links for one question."""

from replica.io.calls.blob_calls import BlobCalls
from replica.io.calls.call_end import CallEnd, typed_end
from replica.io.calls.host_calls import ArchiveTooLarge, HostCalls, HostUnreachable
from replica.io.calls.host_views import ContextPages, HostSample, PagedEntry, RunningRequest
from replica.io.calls.hub_calls import HubCalls, pin, pinned_key
from replica.io.calls.hub_channel import TlsOnLoopback, open_channel
from replica.io.calls.replays import (
    ReplayEvent,
    ReplayProgress,
    decode_receipt,
    encode_receipt,
    event_to_pb,
)
from replica.io.calls.short_link import Call, cut_short, send, short_link

__all__ = [
    "ArchiveTooLarge",
    "BlobCalls",
    "Call",
    "CallEnd",
    "ContextPages",
    "HostCalls",
    "HostSample",
    "HostUnreachable",
    "HubCalls",
    "PagedEntry",
    "ReplayEvent",
    "ReplayProgress",
    "RunningRequest",
    "TlsOnLoopback",
    "cut_short",
    "decode_receipt",
    "encode_receipt",
    "event_to_pb",
    "open_channel",
    "pin",
    "pinned_key",
    "send",
    "short_link",
    "typed_end",
]
