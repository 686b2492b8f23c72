"""A question to a model host, and the answer to it."""

from replica.io.requests import answers, cancels, turns
from replica.io.requests.answer_errors import AnswerOverdue
from replica.io.requests.answers import (
    AnswerWatch,
    Asked,
    Delta,
    Discarded,
    Finished,
    LinkBack,
    LinkLost,
    NotStored,
    NotTaken,
    Prefilling,
    TurnEvent,
    was_stopped,
)
from replica.io.requests.asked_host import HostMissing, choose_host
from replica.io.requests.awaited_host import AwaitedHost
from replica.io.requests.hindrance import OWNER_NOT_SERVED, hindrance
from replica.io.requests.linked_hosts import hosts_of, learn_hosts, linked_hosts
from replica.io.requests.turns import RequestOptions, say_as_system

__all__ = [
    "OWNER_NOT_SERVED",
    "AnswerOverdue",
    "AnswerWatch",
    "Asked",
    "AwaitedHost",
    "Delta",
    "Discarded",
    "Finished",
    "HostMissing",
    "LinkBack",
    "LinkLost",
    "NotStored",
    "NotTaken",
    "Prefilling",
    "RequestOptions",
    "TurnEvent",
    "answers",
    "cancels",
    "choose_host",
    "hindrance",
    "hosts_of",
    "learn_hosts",
    "linked_hosts",
    "say_as_system",
    "turns",
    "was_stopped",
]
