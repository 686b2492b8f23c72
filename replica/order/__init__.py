"""The order of one conversation: seals, branches, contexts, tails (spec/03 §3)."""

from replica.order.cancels import is_withdrawal, may_end
from replica.order.context import context_digest
from replica.order.coverage import coverage, coverage_before, lists_answer
from replica.order.eligible import is_open, is_tail_entry
from replica.order.ends import ends
from replica.order.node import SealNode
from replica.order.queued import Ahead, begun_behind, queued_behind
from replica.order.tail import frontier, late_messages, start, tail
from replica.order.tree import Order, branch_ends
from replica.order.verdict import is_closed
from replica.order.withdrawals import first_closing, is_withdrawn, with_withdrawals

__all__ = [
    "Ahead",
    "Order",
    "SealNode",
    "begun_behind",
    "branch_ends",
    "context_digest",
    "coverage",
    "coverage_before",
    "ends",
    "first_closing",
    "frontier",
    "is_closed",
    "is_open",
    "is_tail_entry",
    "is_withdrawal",
    "is_withdrawn",
    "late_messages",
    "lists_answer",
    "may_end",
    "queued_behind",
    "start",
    "tail",
    "with_withdrawals",
]
