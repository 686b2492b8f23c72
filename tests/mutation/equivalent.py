"""Mutants that are no other core: no answer to any question differs, for the reason given."""

_REPEATED = "another check refuses the same input for the same reason"
_ADMITTED = "admission lets no such entry in"
_PARSER = "the strict scan has refused what the parser would"
_CACHE = "it decides what is computed again, not the result"
_MEMORY = "it bounds memory, which is a quota of a receiver"
_CHARGE = "it is what a hub charges, which is a quota of a receiver"
_UNASKED = "it serves what no question asks"
_FORM = "the same result in another form"
_FOREIGN = "the ids of another key among the kept ones of a key mean nothing"
_EITHER = "whichever side steps first, both meet at the same entry"
_NEVER = "what it excludes cannot happen"
_STEPS = "it decides when others run, not the result"
_LATER = "the same input fails a little later, for the same reason"

EQUIVALENT: dict[str, str] = {
    "replica/document/lib0.py: _pass_integer: never shift > 55": _LATER,
    "replica/link/comparison.py: Backlog.take: bytes_max > 0 -> bytes_max >= 0": _UNASKED,
    "replica/conversation/next_seal.py: may_be_sealed: without body is not None in is_open and "
    "body is not None and membership.is_host(body.host) and membership.is_visible(request)": _NEVER,
    "replica/link/comparison.py: HeldLanes.chain_steps: never self._passed % STEP_HEADS "
    "== 0": _STEPS,
    "replica/log/wire.py: _check: never scan.turn is not None": _UNASKED,
    "replica/log/wire.py: _check: never at < end and data[at] < 128": _FORM,
    "replica/log/wire.py: _check: never data[at] < 128": _FORM,
    "replica/log/codec/entries.py: _scanned: never len(body) < SALT_BYTES": _ADMITTED,
    "replica/log/codec/entries.py: decode_header: header is None -> header is not None": _PARSER,
    "replica/log/codec/entries.py: decode_header: never header is None": _PARSER,
    "replica/log/codec/bodies.py: _genesis_from_pb: never "
    "raw.HasField('default_sampling')": _UNASKED,
    "replica/log/ed25519.py: check_signature: int.from_bytes(signature[32:], 'little') >="
    " GROUP_ORDER -> int.from_bytes(signature[32:], 'little') > GROUP_ORDER": _REPEATED,
    "replica/log/ed25519.py: check_signature: never"
    " int.from_bytes(signature[32:], 'little') >= GROUP_ORDER": _REPEATED,
    "replica/log/ed25519.py: check_signature: never len(signature) != 64": _REPEATED,
    "replica/log/ed25519.py: check_signature: never problem": _REPEATED,
    "replica/log/entry.py: send_order: entry.header.track not in (Track.ALL, Track.MEMBERSHIP)"
    " -> entry.header.track in (Track.ALL, Track.MEMBERSHIP)": _UNASKED,
    "replica/log/entry.py: verify_body: never"
    " len(entry.body) != entry.header.body_bytes": _REPEATED,
    "replica/log/log.py: Log.admit: entry.id in self.entries -> entry.id not in self.entries":
        _CHARGE,
    "replica/log/log.py: Log.admit: never not verified and entry.id in self.entries":
        _CHARGE,
    "replica/log/log.py: Log.admit: other junction in not verified and entry.id in self.entries":
        _CHARGE,
    "replica/log/log.py: Log.admit: without not in not verified":
        _CHARGE,
    "replica/log/members.py: Roster._followed: never header.track != Track.MEMBERSHIP": (
        "the genesis follows nothing, and no other entry is on another track there"
    ),
    "replica/log/members.py: _Fold._resignations_of: no filter isinstance(m.change, Revocation)":
        _REPEATED,
    "replica/log/members.py: fold: never sets is None": _CACHE,
    "replica/log/members.py: fold: sets is None -> sets is not None": _CACHE,
    "replica/log/members.py: is_plain_resignation: without isinstance(change, Revocation) in"
    " isinstance(change, Revocation) and change.key == header.author and (not change.cuts) and"
    " (header.seq == 0) and (header.parents == (EntryId(entry.conversation),)) and"
    " (header.basis is None)": _REPEATED,
    "replica/log/members.py: is_plain_resignation: without change.key == header.author in"
    " isinstance(change, Revocation) and change.key == header.author and (not change.cuts) and"
    " (header.seq == 0) and (header.parents == (EntryId(entry.conversation),)) and"
    " (header.basis is None)": _REPEATED,
    "replica/log/members.py: is_plain_resignation: without header.basis is None in"
    " isinstance(change, Revocation) and change.key == header.author and (not change.cuts) and"
    " (header.seq == 0) and (header.parents == (EntryId(entry.conversation),)) and"
    " (header.basis is None)": _ADMITTED,
    "replica/order/tree.py: Order._receive_generation: never parent not in self.seal_of": _UNASKED,
    "replica/order/tree.py: Order._receive_generation: "
    "parent not in self.seal_of -> parent in self.seal_of": _UNASKED,
    "replica/order/tree.py: Order._count: never "
    "_comes_first(self.log, node.id, first.id)": _UNASKED,
    "replica/log/cuts.py: KeptEntries.cut: never entry is None or "
    "entry.header.author != self._key": _FOREIGN,
    "replica/log/cuts.py: KeptEntries.cut: other junction in entry is None or "
    "entry.header.author != self._key": _FOREIGN,
    "replica/log/cuts.py: _Chain.__init__: never len(tips) == 1": _FORM,
    "replica/log/cuts.py: _Chain._descend: other.header.seq >= self._tip.header.seq "
    "-> other.header.seq > self._tip.header.seq": _EITHER,
    "replica/log/cuts.py: _Chain._descend: without self._tip is not None in "
    "self._tip is not None and other is not None and (other.id not in self._above)": _NEVER,
    "replica/log/cuts.py: _Chain.meet: never self._ids is None and len(tips) == 1": _FORM,
    "replica/log/cover.py: Cover._add: never newly_covered": _UNASKED,
    "replica/log/cover.py: Cover._changed: no filter before.kept.get(author) is not "
    "now.kept.get(author) or before.covers_author(author) != now.covers_author(author) or "
    "author in resigned": _CACHE,
    "replica/log/cover.py: Cover._changed: no filter i in self._entries": _NEVER,
    "replica/log/log.py: Log._insert: never entry.body is None": _UNASKED,
    "replica/log/log.py: Log._insert: entry.body is None -> entry.body is not None": _UNASKED,
    "replica/log/log.py: Log._insert: never header.critical and (not "
    "is_known(header.kind))": _UNASKED,
    "replica/log/log.py: Log._insert: other junction in header.critical and (not "
    "is_known(header.kind))": _UNASKED,
    "replica/log/log.py: Log._insert: without not in not is_known(header.kind)": _UNASKED,
    "replica/log/log.py: Log._insert: never header.track != Track.MEMBERSHIP": _NEVER,
    "replica/log/bundle.py: _Reader.add: never kind != _END": _LATER,
    "replica/log/bundle.py: _Reader.record: never left < 0": _LATER,
    "replica/log/bundle.py: _Reader.record: left < 0 -> left <= 0": _LATER,
    "replica/log/bundle.py: _Reader.record: never size > left": _LATER,
    "replica/log/bundle.py: _Reader.record: other sign in self.end - self.at": _LATER,
    "replica/log/bundle.py: _Reader.record: other sign in self.end - self.at - "
    "_RECORD.size": _LATER,
    "replica/log/bundle.py: _Reader.add_blob: other sign in at + ID_BYTES": _UNASKED,
    "replica/log/bundle.py: _Reader.add_blob: other sign in size - ID_BYTES": _UNASKED,
    "replica/order/verdict.py: judge: log.entries[counts].order_key < "
    "entry.order_key -> log.entries[counts].order_key <= entry.order_key": _NEVER,
    "replica/order/verdict.py: is_closed: never not closing": _FORM,
    "replica/order/late.py: LateMessages._candidates: never own <= behind": _CACHE,
    "replica/order/late.py: LateMessages._candidates: own <= behind -> own < behind": _CACHE,
    "replica/order/late.py: LateMessages._candidates: other sign in "
    "unreached.asking & behind": _CACHE,
    "replica/order/late.py: LateMessages.__init__: other sign in len(self._ways) + "
    "len(self._followed)": _UNASKED,
    "replica/order/ends.py: first_reached: no filter e.id not in unreached": _CACHE,
    "replica/order/ends.py: unfollowed: header.lamport > first -> header.lamport >= first": _CACHE,
    "replica/order/ends.py: unfollowed: other junction in at not in entries and "
    "(at in unreached or header.lamport > first)": _CACHE,
    "replica/order/tree.py: Order._count: other sign in node.depth + 1": _FORM,
    "replica/order/tree.py: Order.request: never entry is None or entry.header.kind "
    "!= Kind.REQUEST": _REPEATED,
    "replica/order/tree.py: Order.request: other junction in entry is None or "
    "entry.header.kind != Kind.REQUEST": _REPEATED,
    "replica/document/fold.py: DocumentFold._check_causal: never "
    "any((self._known[entry].lamport >= update.lamport for entry in update.follows))": _ADMITTED,
    "replica/document/fold.py: DocumentFold._check_causal: "
    "self._known[entry].lamport >= update.lamport -> self._known[entry].lamport > "
    "update.lamport": _ADMITTED,
    "replica/document/fold.py: DocumentFold._check_causal: never update.prev is not "
    "None and self._known[update.prev].seq + 1 != update.seq": _ADMITTED,
    "replica/document/fold.py: DocumentFold._owners: never follows is None": _UNASKED,
    "replica/document/lib0.py: Reader.varuint: never shift > 49": _LATER,
    "replica/document/canonical.py: _encoded_float: never value == 0": _REPEATED,
    "replica/document/canonical.py: _plain_number: never not math.isfinite(value)": _REPEATED,
    "replica/document/canonical.py: _plain_number: never exact": _FORM,
    "replica/document/canonical.py: _plain_number: abs(value) <= SAFE_INTEGER_MAX -> "
    "abs(value) < SAFE_INTEGER_MAX": _FORM,
    "replica/document/canonical.py: _plain_number: never abs(value) > "
    "SAFE_INTEGER_MAX": _REPEATED,
    "replica/document/canonical.py: _encoded_float: 0 < point <= 21 at 1": _NEVER,
    "replica/link/comparison.py: compare_steps: never index % STEP_HEADS == 0": _STEPS,
    "replica/link/comparison.py: compare_steps: index % STEP_HEADS == 0 -> "
    "index % STEP_HEADS != 0": _STEPS,
    "replica/link/comparison.py: front_steps: never index % STEP_HEADS == 0": _STEPS,
    "replica/link/comparison.py: front_steps: index % STEP_HEADS == 0 -> "
    "index % STEP_HEADS != 0": _STEPS,
    "replica/conversation/drafts.py: DraftStream.receive: other sign in _FRAME_BYTES "
    "+ len(draft.data) + _TOKEN_BYTES * len(draft.token_ids)": _MEMORY,
    "replica/conversation/drafts.py: DraftStream.receive: never self.frames and (not "
    "self.frames[0].token_ids) and (not self.frames[0].data)": _MEMORY,
    "replica/conversation/drafts.py: DraftStream.receive: other sign in "
    "self.size_bytes + size": _MEMORY,
    "replica/conversation/drafts.py: DraftStream.receive: never self.size_bytes + "
    "size > DRAFT_BYTES_MAX": _MEMORY,
    "replica/conversation/drafts.py: DraftStream.receive: self.size_bytes + size > "
    "DRAFT_BYTES_MAX -> self.size_bytes + size >= DRAFT_BYTES_MAX": _MEMORY,
    "replica/conversation/drafts.py: DraftStream.receive: other sign in _FRAME_BYTES "
    "+ len(draft.data)": _MEMORY,
    "replica/conversation/drafts.py: DraftStream.receive: without not "
    "self.frames[0].token_ids in self.frames and (not self.frames[0].token_ids) and "
    "(not self.frames[0].data)": _UNASKED,
    "replica/conversation/drafts.py: DraftStream.receive: without not "
    "self.frames[0].data in self.frames and (not self.frames[0].token_ids) and (not "
    "self.frames[0].data)": _UNASKED,
    "replica/conversation/drafts.py: DraftStream.receive: without not in not "
    "self.frames[0].token_ids": _UNASKED,
    "replica/conversation/drafts.py: DraftStream.receive: without not in not "
    "self.frames[0].data": _UNASKED,
    "model_host/kv/lineage.py: Lineage.__init__: other sign in len(self.packed) - "
    "_PAGE_BYTES": _FORM,
    "model_host/kv/lineage.py: Lineage.at: never not rest": _FORM,
    "model_host/sampling/sampler.py: Sampler.weigh: 0 < sampling.top_p < 1 at 1": _FORM,
    "model_host/sampling/sampler.py: Sampler.weigh: sampling.min_p > 0 -> "
    "sampling.min_p >= 0": _FORM,
    "model_host/sampling/state.py: SamplerState.scores: never mask is None and "
    "self._changes is None and (not is_early)": _FORM,
    "model_host/sampling/state.py: SamplerState.scores: never memory is not None": _FORM,
    "replica/order/coverage.py: a queue adds its answer's ancestors": _NEVER,
    "replica/order/ends.py: the first ends": _UNASKED,
}  # fmt: skip

_LATE = "no vector has a frame of progress behind the first token"
_BOUND = "no vector of the draw stands at this bound, if there is one"

OPEN: dict[str, str] = {
    "replica/conversation/drafts.py: DraftStream.receive: never not draft.token_ids "
    "and (not draft.data)": _LATE,
    "replica/conversation/drafts.py: DraftStream.receive: never self.token_count or "
    "self.byte_count": _LATE,
    "replica/conversation/drafts.py: DraftStream.receive: other junction in "
    "self.token_count or self.byte_count": _LATE,
    "model_host/sampling/sampler.py: _prefix: other sign in STEPS_DOWN + 1": _BOUND,
    "model_host/sampling/sampler.py: _prefix: other sign in needed - before": _BOUND,
    "model_host/sampling/state.py: _Changes.apply: self._counts > 0 -> self._counts >= 0": _BOUND,
    "model_host/sampling/state.py: _Changes.apply: changed > 0 -> changed >= 0": _BOUND,
    "model_host/sampling/state.py: _Changes.apply: counts > 0 -> counts >= 0 (2)": _BOUND,
}
"""Mutants that may differ from the core, and survive."""
