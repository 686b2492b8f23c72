"""The functions whose every small change is a mutant."""

TARGETS: dict[str, tuple[str, ...]] = {
    "replica/log/wire.py": (
        "read_varint", "_check", "_check_unknown", "_check_number", "_check_content",
        "Field.__post_init__",
    ),
    "replica/log/codec/entries.py": (
        "shape_of", "decode_header", "_check_fields", "_check_lengths", "_check_genesis_fields",
        "decode_entry", "decode_body", "_scanned", "_decoded",
    ),
    "replica/log/codec/bodies.py": (
        "_heads", "_genesis_from_pb", "_change_from_pb", "_request_from_pb",
        "_format_from_pb", "_seal_from_pb", "_key_from_pb",
    ),
    "replica/log/codec/sizes.py": ("sized",),
    "replica/log/ed25519.py": ("check_key", "check_signature", "_point_problem"),
    "replica/log/entry.py": ("Header.ancestors", "send_order", "verify_body", "retry_salt"),
    "replica/log/checks.py": ("check_contents", "check_ancestors", "filled", "_control_body"),
    "replica/log/admission.py": (
        "Admission.admit", "Admission._missing", "Admission._mark_complete",
        "Admission._admit_with_ancestors",
    ),
    "replica/log/kinds.py": ("rules_of",),
    "replica/log/members.py": (
        "Membership.is_member", "Membership.has_owner_role", "Membership.may_write",
        "Membership.satisfies_cuts",
        "Membership.covers", "Membership.covers_author", "Membership.is_visible",
        "Membership.counts", "Membership.may_seal_or_own", "_Fold.resolve_cuts",
        "_Fold._resignations_of", "_Fold.apply_changes", "_Fold._grant", "is_plain_resignation",
        "granted_by", "fold", "Roster.heads", "Roster.heads_to_join", "Roster._gathered",
        "Roster._followed", "Roster.receive",
    ),
    "replica/log/cuts.py": (
        "KeptEntries.cut", "_Chain.__init__", "_Chain.meet", "_Chain._descend", "_Chain._union",
        "_Chain._before", "_Chain.ids",
    ),
    "replica/log/cover.py": ("Cover._add", "Cover._cover", "Cover._changed"),
    "replica/log/bodies.py": ("Bodies.body",),
    "replica/log/log.py": ("Log.admit", "Log._insert"),
    "replica/log/bundle.py": (
        "decode_bundle", "_misplaced", "_Reader.read_draft", "_Reader.read_all", "_Reader.record",
        "_Reader.add", "_Reader.add_entry", "_Reader.add_blob",
    ),
    "replica/order/cancels.py": (
        "is_withdrawal", "has_effect", "may_end", "withdrawn", "Cancels.receive",
        "Cancels.first_closing", "Cancels._closing",
    ),
    "replica/order/withdrawals.py": ("missing",),
    "replica/order/context.py": ("context_digest",),
    "replica/order/coverage.py": (
        "coverage", "_listed", "is_answer", "uncovered_closure", "_forks", "_may_list",
    ),
    "replica/order/verdict.py": ("judge", "_check_prev", "is_closed"),
    "replica/order/tail.py": ("tail", "frontier", "_open_tail", "start"),
    "replica/order/descendants.py": ("descendants",),
    "replica/order/meanwhile.py": ("Meanwhile.__init__",),
    "replica/order/eligible.py": ("is_tail_entry", "is_open", "has_branch"),
    "replica/order/ends.py": ("unfollowed", "first_reached"),
    "replica/order/late.py": (
        "LateMessages.__init__", "LateMessages._candidates", "LateMessages._is_apart",
        "LateMessages._is_late",
        "LateMessages._end", "LateMessages._through",
    ),
    "replica/order/unreached.py": ("Unreached.reach",),
    "replica/order/forks.py": ("Forks.add", "Forks.behind"),
    "replica/order/queued.py": ("queued_behind", "_sealed_ahead", "_extends", "_is_open"),
    "replica/order/tree.py": (
        "Order._fold_in", "Order._receive_seal", "Order._count", "Order._receive_generation",
        "Order.request", "Order.resolve_basis", "Order.tips", "Order.branch_end", "_going_on",
        "Order.generation_of",
    ),
    "replica/document/fold.py": (
        "DocumentFold.check", "DocumentFold._owners", "DocumentFold._check_causal",
        "DocumentFold._keep", "_client", "_check_clocks", "_check_content",
    ),
    "replica/document/yjs.py": (
        "decode_update", "_structs", "_struct", "_deletions", "_string", "_type",
    ),
    "replica/document/lib0.py": (
        "Reader.read", "Reader.varuint", "Reader.length", "pass_value", "_pass_key",
        "_pass_scalar", "_pass_float", "_pass_integer",
    ),
    "replica/document/projection.py": ("_read", "_build"),
    "replica/document/canonical.py": ("_plain_number", "_encoded_float"),
    "replica/link/comparison.py": (
        "compare_steps", "front_steps", "_walk", "Backlog.take",
        "HeldLanes.chain_steps",
    ),
    "replica/link/auth.py": ("prove",),
    "replica/conversation/drafts.py": ("DraftStream.receive",),
    "replica/conversation/next_seal.py": (
        "sealable", "seal_by_coverage", "may_be_sealed", "_name_one_host",
    ),
    "model_host/kv/lineage.py": ("Lineage.__init__", "Lineage.at"),
    "model_host/kv/domain.py": ("domain_salt",),
    "model_host/sampling/sampler.py": ("Sampler.weigh", "_prefix"),
    "model_host/sampling/state.py": ("SamplerState.scores", "_exclude", "_Changes.apply"),
}  # fmt: skip
