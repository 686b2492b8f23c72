"use strict";
// The pure core of Antiphon in one file, written from spec/ and proto/ alone, in plain Node.
// It answers one question per line (spec/conform-core.md).

const crypto = require("node:crypto"), fs = require("node:fs"), path = require("node:path");
const readline = require("node:readline"), { isUtf8 } = require("node:buffer");

const hex = (bytes) => bytes.toString("hex"), unhex = (text) => Buffer.from(text, "hex");
const numberOf = (bytes) => BigInt(`0x${hex(Buffer.from(bytes).reverse()) || "0"}`);
const le = (value, size) => unhex(BigInt(value).toString(16).padStart(2 * size, "0")).reverse();
const sha256 = (...parts) => parts.reduce((h, p) => h.update(p), crypto.createHash("sha256")).digest();
function pae(tag, ...parts) {
  const name = Buffer.from(`antiphon/v1/${tag}`), data = Buffer.concat(parts);
  return Buffer.concat([le(name.length, 8), name, le(data.length, 8), data]);
}
const th = (tag, ...parts) => sha256(pae(tag, ...parts));

const cmp = (a, b) => (a < b ? -1 : a > b ? 1 : 0), sorted = (items) => [...items].sort(cmp);
const by = (...keys) => (a, b) => keys.reduce((sign, key) => sign || cmp(key(a), key(b)), 0);
const byOrder = by((e) => e.lamport, (e) => e.id);
const withFirst = (test) => by((e) => !test(e), (e) => e.lamport, (e) => e.id);
const idsOf = (entries) => entries.map((e) => e.id);
const without = (ids, left) => [...ids].filter((id) => !left.has(id));
const ascends = (ids) => ids.every((id, i) => i === 0 || ids[i - 1] < id);
const isEmpty = (value) => !value || value.length === 0;
class Groups extends Map { // lists by key
  of(key) { return this.get(key) ?? []; }
  add(key, value) { this.set(key, this.of(key)).get(key).push(value); }
}
function walk(start, follow) {
  const found = new Set(start);
  for (const id of found) follow(id).forEach((next) => found.add(next)); // the loop meets them too
  return found;
}
function collect(goesOn, read, found = []) {
  while (goesOn(found)) found.push(read());
  return found;
}

class Refused extends Error {} // its message is the reason
const need = (holds, reason) => { if (!holds) throw new Refused(reason); };
const attempt = (act, refused) => {
  try {
    return act();
  } catch (error) {
    if (error instanceof Refused) return refused(error.message);
    throw error;
  }
};
const reasonOf = (check) => attempt(() => (check(), null), (reason) => reason);

// Bytes read one after the other. One reason refuses all that is cut off or malformed.
class Cursor {
  constructor(data, reason, strict = true) { Object.assign(this, { data, reason, strict, at: 0 }); }
  need(holds) { need(holds, this.reason); }
  strictly(holds) { this.need(holds || !this.strict); }
  checked(value, test) {
    this.need(test(value));
    return value;
  }
  get ended() { return this.at === this.data.length; }
  rest(read) { return collect(() => !this.ended, () => read(this)); }
  bytes(size) {
    this.need(size <= this.data.length - this.at);
    this.at += Number(size);
    return this.data.subarray(this.at - Number(size), this.at);
  }
  byte() { return this.bytes(1)[0]; }
  varint() {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte >= 128) continue;
      this.strictly((byte !== 0 || shift === 0n) && value < 1n << 64n);
      return BigInt.asUintN(64, value);
    }
    throw new Refused(this.reason);
  }
}

// --- messages: the fields of log.proto ------------------------------------------------------

const varint = (value) => (value < 128n ? [Number(value)] : [Number(value & 127n) | 128, ...varint(value >> 7n)]);
const sized = (bytes) => [...varint(BigInt(bytes.length)), ...bytes];
const SAFE = Number.MAX_SAFE_INTEGER;
// Per type: its wire type, its default, its value from what the wire has, and the reverse.
const below = (limit) => ({
  wire: 0, none: 0, write: (value) => varint(BigInt(value)),
  read(raw, cursor) {
    cursor.strictly(raw < limit);
    return raw <= SAFE ? Number(raw) : raw;
  },
});
const fixed = (wire, size) => ({ wire, none: 0n, write: (value) => le(value, size), read: numberOf });
const message = (name) => ({
  wire: 2, write: (value) => sized(encode(name, value)),
  read: (raw, cursor, depth) => read(name, raw, cursor.reason, cursor.strict, depth + 1),
});
const TYPES = {
  uint64: below(1n << 64n), uint32: below(1n << 32n), bool: below(2n),
  fixed64: fixed(1, 8), double: fixed(1, 8), float: fixed(5, 4),
  string: { wire: 2, none: "", write: sized, read: (raw, cursor) => cursor.checked(raw, isUtf8) },
  bytes: { wire: 2, none: "", write: (value) => sized(unhex(value)), read: hex },
};
const MESSAGES = {};
(function readProto() {
  const file = path.join(__dirname, "..", "..", "proto", "antiphon", "v1", "log.proto");
  const text = fs.readFileSync(file, "utf8").replace(/\/\/.*$/gm, "");
  const messages = [...text.matchAll(/message (\w+) \{((?:[^{}]|\{[^{}]*\})*)\}/g)];
  for (const [, name] of messages) TYPES[name] = message(name);
  for (const [, name] of text.matchAll(/enum (\w+)/g)) TYPES[name] = below(1n << 31n);
  for (const [, name, body] of messages) {
    const oneofs = [...body.matchAll(/oneof \w+ \{([^{}]*)\}/g)].map(([, part]) => part.match(/\w+(?= =)/g));
    MESSAGES[name] = {};
    for (const [, label, type, field, id] of body.matchAll(/(\w+ )?(\w+) (\w+) = (\d+)/g)) {
      const form = TYPES[type], oneof = oneofs.find((names) => names.includes(field)) ?? [];
      const repeated = label === "repeated ", packed = repeated && form.wire !== 2;
      const mayLack = oneof.length > 0 || label === "optional ", repeats = repeated && !packed;
      MESSAGES[name][id] = {
        id, name: field, type, form, oneof, repeated, repeats, wire: packed ? 2 : form.wire,
        initial: mayLack ? undefined : form.none,
        mayBeEmpty: repeats || oneof.length > 0 || form.none === undefined,
      };
    }
  }
})();
const valuesOf = (f, fields) => [fields[f.name] ?? []].flat(); let fieldsLeft = 0; // of a body

// Return the known fields by name, absent ones with their defaults: of the strict subset alone
// (02 §2), or as protobuf parsers read, in any order and the last of several. Bytes become hex.
function read(name, data, reason, strict = true, depth = 0) {
  const cursor = new Cursor(data, reason, strict), shape = MESSAGES[name];
  const found = Object.fromEntries(Object.values(shape).map((f) => [f.name, f.repeated ? [] : f.initial]));
  fieldsLeft = depth === 0 ? 10_240 : cursor.strictly(depth <= 8) ?? fieldsLeft;
  for (let before = 0; !cursor.ended; ) {
    const tag = cursor.varint(), id = Number(tag >> 3n), wire = Number(tag & 7n);
    const f = shape[id] ?? { repeats: true, wire };
    cursor.need(id >= 1 && wire in RAW && (fieldsLeft-- > 0 || !strict));
    cursor.strictly(id < 2 ** 29 && wire === f.wire && (id > before || (id === before && f.repeats)));
    before = id;
    const raw = RAW[wire](cursor);
    if (![f.wire, f.form?.wire].includes(wire) || !f.form) continue;
    cursor.strictly(f.oneof.every((other) => found[other] === undefined));
    for (const other of f.oneof) found[other] = undefined;
    const one = (from) => f.form.read(RAW[f.form.wire](from), from);
    const unpacked = () => new Cursor(raw, reason, strict).rest(one);
    const value = wire === f.form.wire ? f.form.read(raw, cursor, depth) : unpacked();
    cursor.strictly(f.mayBeEmpty || !isEmpty(value));
    f.repeated ? [value].flat().forEach((one) => found[f.name].push(one)) : (found[f.name] = value);
  }
  return found;
}
const RAW = {
  0: (cursor) => cursor.varint(), 1: (cursor) => cursor.bytes(8),
  2: (cursor) => cursor.bytes(cursor.varint()), 5: (cursor) => cursor.bytes(4),
};
// Write fields in ascending order, without defaults outside a oneof.
function encode(name, fields) {
  const written = (f, value) => [...varint(BigInt(f.id * 8 + f.form.wire)), ...f.form.write(value)];
  const given = (f) => valuesOf(f, fields).filter((value) => f.mayBeEmpty || !isEmpty(value));
  return Buffer.from(Object.values(MESSAGES[name]).flatMap((f) => given(f).flatMap((value) => written(f, value))));
}

// --- Ed25519 (02 §4) ------------------------------------------------------------------------

const FIELD = (1n << 255n) - 19n, ORDER = (1n << 252n) + 27742317777372353535851937790883648493n;
const ORDER_8 = numberOf(unhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"));
const SMALL = new Set([0n, 1n, FIELD - 1n, ORDER_8, FIELD - ORDER_8]);
const isPoint = (bytes, y = BigInt.asUintN(255, numberOf(bytes))) => y < FIELD && !SMALL.has(y);
const SPKI = unhex("302a300506032b6570032100"), PKCS8 = unhex("302e020100300506032b657004220420");
const der = (type, prefix, key) => ({ key: Buffer.concat([prefix, key]), format: "der", type });
function verify(key, signature, message) {
  need(key.length === 32 && isPoint(key), "KEY_INVALID");
  const isWellFormed = signature.length === 64 && isPoint(signature.subarray(0, 32));
  const isSound = isWellFormed && numberOf(signature.subarray(32)) < ORDER;
  need(isSound && isSigned(key, signature, message), "SIGNATURE_INVALID");
}
const VERIFIED = new Set(); // the same entries come in many questions
const verifyOnce = (name, ...given) => VERIFIED.has(name) || verify(...given) || VERIFIED.add(name);
function isSigned(key, signature, message) {
  try {
    return crypto.verify(null, message, crypto.createPublicKey(der("spki", SPKI, key)), signature);
  } catch { return false; } // a point that does not decode
}
const privateOf = (seed) => crypto.createPrivateKey(der("pkcs8", PKCS8, seed));
const sign = (seed, message) => hex(crypto.sign(null, message, privateOf(seed)));
const publicOf = (seed) => crypto.createPublicKey(privateOf(seed)).export({ format: "der", type: "spki" }).subarray(12);

// --- headers and bodies (02 §1, §5, §6) -----------------------------------------------------

const [READER, WRITER, OWNER, HOST] = [1, 2, 3, 4], WRITERS = [WRITER, OWNER], AUTHORS = [...WRITERS, HOST];
const ROLES = { [READER]: "READER", [WRITER]: "WRITER", [OWNER]: "OWNER", [HOST]: "HOST" };
const [GENESIS, MEMBER, MESSAGE, TOOLS, REQUEST, SEAL, GENERATION, CANCEL] = [1, 2, 3, 4, 5, 6, 7, 8];
const [CHECKPOINT, DOCUMENT, JOIN] = [9, 12, 13];
// Per kind: the message of its body, its track (none: any), who writes it, whether it is control.
const KINDS = {
  [GENESIS]: { body: "Genesis", track: 0, roles: [OWNER], control: true },
  [MEMBER]: { body: "Member", track: 3, roles: [OWNER], control: true },
  [MESSAGE]: { body: "Message", track: 1, roles: WRITERS },
  [TOOLS]: { body: "Tools", track: 1, roles: WRITERS },
  [REQUEST]: { body: "Request", track: 1, roles: WRITERS, control: true },
  [SEAL]: { body: "Seal", track: 1, roles: [HOST], control: true },
  [GENERATION]: { body: "Generation", track: 1, roles: [HOST] },
  [CANCEL]: { body: "Cancel", track: 1, roles: WRITERS },
  [CHECKPOINT]: { body: "Checkpoint", track: 1, roles: [HOST] },
  [DOCUMENT]: { body: "Document", track: 2, roles: WRITERS },
  [JOIN]: { body: "Join", roles: AUTHORS },
};
const CONTEXT_KINDS = [MESSAGE, TOOLS, REQUEST, GENERATION];
const onlyParent = (e) => (e.parents.length === 1 ? e.parents[0] : null);
const laneOf = (e) => `${e.author}/${e.epoch}/${e.track}`, positionOf = (e) => `${laneOf(e)}/${e.seq}`;

function readHeader(data) {
  need(data.length <= 8192, "HEADER_TOO_LARGE");
  const h = read("Header", data, "WIRE_MALFORMED"), isGenesis = h.kind === GENESIS;
  const field = (holds) => need(holds, "FIELD_INVALID");
  const ids = [h.conversation, h.prev, h.basis].filter(Boolean);
  field([...ids, h.author, h.body_digest, ...h.parents].every((id) => id.length === 64));
  field(h.parents.length <= 64 && (isGenesis || h.parents.length) && ascends(h.parents));
  field(h.body_bytes >= 16 && h.seq < 2 ** 53 && h.lamport < 2 ** 53);
  field(h.epoch && h.kind && h.conflict <= 1);
  need(h.body_bytes <= 524288, "BODY_TOO_LARGE");
  if (isGenesis) need([...ids, ...h.parents, h.seq, h.lamport, h.track].every(isEmpty), "GENESIS_INVALID");
  else field(h.conversation && !h.prev === (h.seq === 0));
  const tracks = [KINDS[h.kind]?.track ?? [1, 2, 3]].flat();
  need(tracks.includes(h.track), "TRACK_INVALID");
  return h;
}

const MALFORMED = "BODY_MALFORMED", valid = (holds) => need(holds, MALFORMED);
const FREE = ["Opaque.data", "Document.update"];
const OPTIONAL = ["Request.profile", "Request.executor", "Seal.prev_seal"];
// How many elements or bytes fields have.
const BOUNDS = {
  "Genesis.owners": [1, 16], "Genesis.default_stop": [0, 16], "Revocation.cuts": [0, 1024],
  "Message.parts": [0, 256], "Message.label": [0, 64], "Generation.parts": [0, 256],
  "Request.stop": [0, 16], "Request.tool_name": [0, 256], "Request.membership_heads": [0, 64],
  "Request.json_schema": [1, 65536], "Request.regex": [1, 65536], "Request.lark": [1, 65536],
  "Seal.entries": [1, 8192], "Seal.membership_heads": [0, 64],
};
// What else holds in messages.
const RULES = {
  Genesis: (b) => new Set(b.owners).size === b.owners.length && !b.default_stop.some(isEmpty),
  Member: (b) => b.grant || b.revocation,
  Request: (b) => ascends(b.membership_heads) && !b.stop.some(isEmpty),
  Seal: (b) => ascends(b.membership_heads) && b.tokens_per_entry.length === b.entries.length,
  Generation: (b) => [0, b.token_ids.length].includes(b.logprobs.length),
  Part: (b) => Object.values(b).some((content) => content !== undefined),
  TokenLogprobs: (b) => b.top_ids.length === b.top_logprobs.length,
  Opaque: (b) => b.data !== undefined || b.blob !== undefined,
};
// Ids, keys and digests have 32 bytes, and are there unless they are optional.
function checkFields(name, found) {
  valid(!(name in RULES) || RULES[name](found));
  for (const f of Object.values(MESSAGES[name])) {
    const field = `${name}.${f.name}`, values = valuesOf(f, found);
    const [least, most] = BOUNDS[field] ?? [0, Infinity], size = found[f.name]?.length ?? least;
    valid(least <= size && size <= most);
    if (f.type in MESSAGES) values.forEach((value) => checkFields(f.type, value));
    if (f.type !== "bytes" || FREE.includes(field)) continue;
    const mayLack = name === "Generation" || OPTIONAL.includes(field);
    valid(values.every((value) => value.length === 64 || (mayLack && value === "")));
  }
}
function readBody(kind, body) {
  valid(body.length >= 16);
  const found = read(KINDS[kind].body, body.subarray(16), MALFORMED);
  checkFields(KINDS[kind].body, found);
  return found;
}
const isReadable = (e) => e.body !== null && reasonOf(() => readBody(e.kind, e.body)) === null;
function readEntry(raw) {
  const body = typeof raw.body === "string" ? unhex(raw.body) : null, data = unhex(raw.header);
  need(!body || body.length <= 524288, "BODY_TOO_LARGE");
  return { ...readHeader(data), id: hex(th("entry", data)), data, signature: unhex(raw.signature), body };
}
function checkBody(entry, body) {
  const isRight = () => body.length === entry.body_bytes && hex(sha256(body)) === entry.body_digest;
  need(!body || isRight(), "BODY_DIGEST_MISMATCH");
}
function checkAlone(entry) {
  const name = entry.id + hex(entry.signature);
  verifyOnce(name, unhex(entry.author), entry.signature, pae("signature", entry.data));
  checkBody(entry, entry.body);
  if (!KINDS[entry.kind]?.control) return;
  need(entry.body, "BODY_MISSING");
  entry.control = readBody(entry.kind, entry.body);
  if (entry.kind === GENESIS) need(entry.control.owners[0] === entry.author, "GENESIS_INVALID");
}
// The ids that a control body lists.
const LISTED = {
  [SEAL]: (b) => [b.request, b.prev_seal, ...b.entries, ...b.membership_heads],
  [MEMBER]: (b) => (b.revocation?.cuts ?? []).map((cut) => cut.id),
};

// --- admission (02 §6) ----------------------------------------------------------------------

class Log {
  constructor(conversation) {
    Object.assign(this, { conversation, entries: new Map(), pending: new Map(), granted: new Set() });
  }
  at(id) { return this.entries.get(id) ?? this.pending.get(id); }
  admit(entry) {
    need((entry.conversation || entry.id) === this.conversation, "CONVERSATION_MISMATCH");
    const known = this.at(entry.id);
    if (known) {
      if (!known.body) checkBody(known, entry.body);
      known.body ??= entry.body;
      return { verdict: "duplicate" };
    }
    checkAlone(entry);
    const listed = LISTED[entry.kind]?.(entry.control) ?? [];
    const names = [entry.conversation, entry.prev, ...entry.parents, entry.basis, ...listed];
    entry.names = [...new Set(names.filter(Boolean))];
    const missing = sorted(without(entry.names, this.entries));
    if (this.isComplete(entry)) this.checkPlace(entry);
    this.pending.set(entry.id, entry);
    const admitted = this.release();
    return admitted.length ? { verdict: "admitted", admitted } : { verdict: "pending", missing };
  }
  isComplete(entry) { return entry.names.every((id) => this.at(id)?.complete); }
  checkPlace(entry) {
    const [prev, basis] = [entry.prev, entry.basis].map((id) => this.at(id));
    const isOnTrack = (id) => [0, entry.track].includes(this.at(id).track);
    need(entry.parents.every(isOnTrack), "PARENT_INVALID");
    need(!prev || laneOf(prev) === laneOf(entry), "PREV_INVALID");
    need(!prev || prev.seq === entry.seq - 1, "SEQ_GAP");
    need(!basis || (basis.kind === SEAL && entry.track === 1), "BASIS_INVALID");
    const lamport = 1 + Math.max(-1, ...entry.names.map((id) => this.at(id).lamport));
    need(entry.lamport === lamport, "LAMPORT_INVALID");
    entry.complete = true;
  }
  release() {
    const admitted = [], isGranted = (e) => e.kind === GENESIS || this.granted.has(e.author);
    const first = (test) => [...this.pending.values()].sort(byOrder).find(test);
    for (let e; (e = first((one) => !one.complete && this.isComplete(one))); )
      if (reasonOf(() => this.checkPlace(e))) this.pending.delete(e.id);
    for (let e; (e = first((one) => one.complete && isGranted(one))); ) admitted.push(...this.insert(e));
    return admitted;
  }
  insert(entry) {
    const found = walk([entry.id], (id) => without(this.at(id).names, this.entries));
    const path = [...found].map((id) => this.at(id)).sort(byOrder);
    for (const e of path) {
      this.pending.delete(e.id);
      this.entries.set(e.id, e);
      const { owners, grant } = e.control ?? {};
      for (const key of owners ?? (grant ? [grant.key] : [])) this.granted.add(key);
    }
    return idsOf(path);
  }
  before(id) { return [this.entries.get(id).prev].filter(Boolean); }
}
function logOf(question) {
  const log = new Log(question.conversation);
  for (const raw of question.entries) reasonOf(() => log.admit(readEntry(raw)));
  return log;
}

// --- membership (03 §2) ---------------------------------------------------------------------

class Members {
  constructor(log, changes) {
    Object.assign(this, { log, ranks: new Map(), kept: new Map(), resigned: new Set() });
    Object.assign(this, { roles: new Groups(), revocations: new Groups() });
    this.changes = changes.filter((e) => e.kind === MEMBER).sort(byOrder);
    this.fold(log.entries.get(log.conversation)?.control.owners ?? []);
  }
  fold(owners) {
    const granted = [];
    for (const key of owners) this.roles.add(key, OWNER);
    for (let level = owners, depth = 0; level.length; depth++) {
      const fresh = [];
      for (const [index, key] of level.entries()) {
        this.judge(key, depth || index / owners.length);
        for (const e of this.changes.filter((e) => e.author === key && this.satisfies(e))) {
          const { grant, revocation } = e.control;
          if (revocation) this.revocations.add(revocation.key, e);
          if (!(grant?.role in ROLES)) continue;
          if (grant.role === OWNER && !this.has(grant.key, OWNER)) fresh.push(grant.key);
          this.roles.add(grant.key, grant.role);
          granted.push([grant.key, depth + 1]);
        }
      }
      level = fresh;
    }
    for (const [key, depth] of granted) if (!this.ranks.has(key)) this.judge(key, depth);
  }
  judge(key, rank) { // rank a key, and find the revocations that count against it
    this.ranks.set(key, rank);
    const isSenior = (e) => this.ranks.get(e.author) < rank;
    for (const e of this.revocations.of(key).filter(isSenior)) this.restrict(key, e);
    const isPlain = (e) => e.names.length === 1 && !e.control.revocation.cuts.length; // the first of its lane
    const isOwn = (e) => e.author === key && e.control.revocation?.key === key && this.satisfies(e);
    const own = this.changes.filter(isOwn), reads = this.roles.of(key).every((role) => role === READER);
    for (const e of reads ? own.filter(isPlain).slice(0, 1) : own) {
      this.resigned.add(e.id);
      this.restrict(key, e);
    }
  }
  restrict(key, e) {
    const placeOf = (cut) => positionOf(this.log.entries.get(cut.id));
    const isRight = (cut) => placeOf(cut) === positionOf({ ...cut, author: key });
    const inside = walk(idsOf(e.control.revocation.cuts.filter(isRight)), (id) => this.log.before(id));
    this.kept.set(key, new Set([...inside].filter((id) => this.satisfies({ author: key, id }))));
  }
  satisfies(e) { return this.kept.get(e.author)?.has(e.id) ?? true; }
  has(key, ...roles) { return roles.some((role) => this.roles.of(key).includes(role)); }
  sees(e) {
    const allowed = KINDS[e.kind]?.roles ?? (e.critical ? [OWNER] : [READER, ...AUTHORS]);
    return this.has(e.author, ...allowed) && this.satisfies(e);
  }
  covers(e) { return this.resigned.has(e.id) || (this.has(e.author, ...AUTHORS) && this.satisfies(e)); }
}

// One conversation: the log, its membership, cover and heads.
const byHead = by((h) => h.author, (h) => h.epoch, (h) => h.track, (h) => h.seq, (h) => h.id);
const laneBytes = (lane) => [unhex(lane.author), le(lane.epoch, 8), le(lane.track, 1)];
const headBytes = (h) => [...laneBytes(h), le(h.seq, 8), unhex(h.id)];
const digestOf = (heads) => hex(th("digest", ...heads.sort(byHead).flatMap(headBytes)));
const behindOnTrack = (e) => (e.track === 3 ? [e.prev, ...e.parents].filter(Boolean) : []);
class Conversation {
  constructor(log) {
    this.log = log;
    this.at = (id) => log.entries.get(id);
    this.all = [...log.entries.values()];
    this.now = new Members(log, this.all);
    const roots = idsOf(this.all.filter((e) => this.now.covers(e)));
    this.covered = walk(roots, (id) => this.at(id).names);
    const followed = new Set(this.each(this.covered).map((e) => e.prev));
    this.heads = this.each(without(this.covered, followed)).sort(byHead);
  }
  each(ids) { return [...ids].map(this.at); }
  reach(ids) { return walk(ids, (id) => this.at(id).parents); }
  reachOnTrack(ids) { return walk(ids, (id) => behindOnTrack(this.at(id))); }
  membersAt(ids) { return new Members(this.log, this.each(this.reachOnTrack(ids))); }
  membershipHeads() {
    const { now } = this, counting = now.changes.filter((e) => now.sees(e) || now.resigned.has(e.id));
    let tops = without(idsOf(counting), this.reachOnTrack(counting.flatMap(behindOnTrack)));
    const isJoin = (e) => e.kind === JOIN && e.track === 3 && now.has(e.author, OWNER, HOST);
    const joins = this.all.filter((e) => isJoin(e) && now.sees(e)).sort(byOrder).reverse();
    for (const { id } of tops.length > 64 ? joins : []) {
      const left = without(tops, this.reachOnTrack([id]));
      if (tops.length - left.length > 1) tops = [...left, id];
    }
    return idsOf(this.each(tops).sort(byOrder));
  }
}

// --- seals, coverage, tails (03 §3, §4) -----------------------------------------------------

const ROOT = { id: "", chain: [], context: [], settled: [], digest: th("context") }; // what the first seals extend
const isFork = (e) => e.kind === REQUEST && e.conflict === 1;
const isAnswer = (e, node) => e.kind === GENERATION && onlyParent(e) === node.id;
class Order extends Conversation {
  constructor(log) {
    super(log);
    Object.assign(this, { nodes: new Map([["", ROOT]]), sealOf: new Map(), void: new Map() });
    Object.assign(this, { children: new Groups(), entries: this.each(this.covered).sort(byOrder) });
    for (const e of this.entries) for (const p of e.parents) this.children.add(p, e);
    for (const e of this.entries.filter((e) => e.kind === SEAL)) {
      const reason = reasonOf(() => this.judge(e));
      if (reason) this.void.set(e.id, reason);
    }
    this.sealed = new Set([...this.sealOf.values()].flatMap((n) => n.entries));
  }
  judge(e) {
    const b = e.control, request = this.at(b.request), first = this.at(b.entries[0]);
    need(onlyParent(e) === b.request, "PARENT_NOT_REQUEST");
    need(request.kind === REQUEST, "REQUEST_INVALID");
    need(request.control.host === e.author, "HOST_NOT_NAMED");
    const m = this.membersAt(b.membership_heads);
    need(m.sees(e), "HOST_NOT_MEMBER");
    need(m.sees(request), "REQUEST_VOID");
    const prev = this.nodes.get(b.prev_seal), basis = this.resolve(request.basis);
    need(prev, "PREV_SEAL_VOID");
    if (request.conflict === 1) need(prev === basis, "BASIS_NOT_EXTENDED");
    else {
      need(basis === ROOT || prev.chain.includes(basis), "BRANCH_NOT_EXTENDED");
      need(isAnswer(first, prev) || this.isClosed(prev, request, m), "ANSWER_SKIPPED");
    }
    need(!this.sealOf.has(request.id), "SEALED_BEFORE");
    const entries = this.coverage(request, prev, isAnswer(first, prev) ? first : null, m);
    need(entries.join() === b.entries.join(), "COVERAGE_WRONG");
    const digest = entries.reduce((d, id) => sha256(d, unhex(id), unhex(this.at(id).body_digest)), prev.digest);
    need(hex(digest) === b.context_digest, "CONTEXT_DIGEST_WRONG");
    const node = { id: e.id, author: e.author, request: request.id, prev, entries, digest };
    const settled = [...prev.settled, ...entries, ...this.withdrawn(this.unlisted(request, prev), m)];
    Object.assign(node, { chain: [...prev.chain, node], context: [...prev.context, ...entries], settled });
    this.nodes.set(e.id, node);
    this.sealOf.set(request.id, node);
  }
  resolve(basis) { return this.nodes.get(basis) ?? this.resolve(this.at(basis).control?.prev_seal ?? ""); }
  replies(kind, id) { return this.children.of(id).filter((e) => e.kind === kind && onlyParent(e) === id); }
  answer(id, author) { return this.replies(GENERATION, id).find((e) => e.author === author); }
  answerOf(node) { return this.answer(node.id, node.author); }
  answerTo(id, n = this.sealOf.get(id)) { return n ? this.answerOf(n) : this.answer(id, this.at(id)?.control?.host); }
  closing(ended, m = this.now) { // the CANCELs of a request or message that have effect
    const mayClose = (e) => e.author === ended.author || m.has(e.author, OWNER);
    return this.replies(CANCEL, ended.id).filter((e) => m.sees(e) && mayClose(e));
  }
  isEnded(e, found, m) { return this.closing(e, m).some((c) => found.has(c.id)); } // by a CANCEL in C
  withdrawn(found, m) { return idsOf(this.each(found).filter((e) => e.kind === MESSAGE && this.isEnded(e, found, m))); }
  isClosed(node, request, m) { // whether the request may go on from the node without its answer
    return node === ROOT || this.isEnded(this.at(node.request), this.unlisted(request, node), m);
  }
  unsettled(ids, settled = new Set()) { return walk(without(ids, settled), (id) => without(this.at(id).parents, settled)); }
  unlisted(request, prev) { return this.unsettled([request.id], new Set(prev.settled)); } // C of ORD-6 without the answer
  coverage(request, prev, answer, m) {
    const found = this.unlisted(request, prev), gone = this.withdrawn(found, m);
    if (request.conflict === 0 && answer) found.add(answer.id);
    const entries = this.each(found), places = new Groups();
    for (const e of entries) places.add(positionOf(e), e);
    const forked = entries.filter((e) => places.of(positionOf(e)).length > 1);
    const isCut = (e) => forked.some((f) => laneOf(f) === laneOf(e) && f.seq <= e.seq);
    const isContext = (e) => e.kind !== GENERATION || this.nodes.get(onlyParent(e))?.author === e.author;
    const isKept = (e) => CONTEXT_KINDS.includes(e.kind) && m.sees(e) && !isCut(e) && isContext(e);
    const listed = entries.filter((e) => e.id === request.id || (isKept(e) && !gone.includes(e.id)));
    return idsOf(listed.sort(withFirst((e) => isAnswer(e, prev))));
  }
  tips() {
    const nodes = [...this.sealOf.values()], inner = new Set(nodes.map((n) => n.prev));
    const activity = (n) => this.answerOf(n) ?? this.at(n.id);
    return nodes.filter((n) => !inner.has(n)).sort((a, b) => byOrder(activity(a), activity(b)));
  }
  branchEnd(node) { // by the earliest seals, without forks beside a visible answer
    const leaves = (n, a) => a && this.now.sees(a) && isFork(this.at(n.request)) && !n.entries.includes(a.id);
    return [...this.sealOf.values()].reduce((end, n) => (n.prev === end && !leaves(n, this.answerOf(end)) ? n : end), node);
  }
  queued(request, basis) { // where a queued request goes on; undefined while it waits for one that forks
    const last = (e, test) => this.each(this.reach(e.parents)).filter(test).sort(byOrder).at(-1);
    const fork = last(request, isFork), end = this.branchEnd(basis), base = this.resolve(fork?.basis ?? "");
    const isOn = (node, start) => node && (start === ROOT || node.chain.includes(start));
    if (!fork || end === base || !isOn(base, basis)) return end;
    const follows = (e) => e.kind === REQUEST && this.reach([e.id]).has(fork.id);
    const first = [...this.sealOf.values()].find((n) => n.prev === base && n.entries.includes(fork.id));
    const own = (r) => [this.sealOf.get(r.id)].find((n) => isOn(n, base));
    const found = (r) => own(r) ?? (r === fork ? first : found(last(r, follows)));
    const node = found(last(request, follows)), isSame = fork.control?.host === request.control?.host;
    return node ? this.branchEnd(node) : this.isOpen(fork) && isSame ? undefined : base;
  }
  sealable(requestId) {
    const request = this.at(requestId), host = request.control?.host, { now } = this;
    if (!now.sees(request) || this.sealOf.has(requestId) || this.answerTo(requestId)) return null;
    const queues = request.conflict === 0, basis = this.resolve(request.basis);
    const m = this.membersAt(this.membershipHeads().slice(-64)), prev = queues ? this.queued(request, basis) : basis;
    if (!now.has(host, HOST) || now.kept.has(host) || !prev) return null;
    const answer = this.answerOf(prev), isClosed = this.isClosed(prev, request, m);
    const entries = this.coverage(request, prev, answer, m), prev_seal = prev.id || null;
    if (answer && (!queues || entries.includes(answer.id))) return { prev_seal, entries };
    return isClosed ? { prev_seal, entries: this.coverage(request, prev, null, m) } : null;
  }
  start(tip) {
    if (!tip) return this.log.conversation;
    return (this.answerOf(tip) ?? this.closing(this.at(tip.request))[0])?.id ?? tip.request;
  }
  descend(ids, isSeal = (e) => e.kind === SEAL) { // by children on track 1, without sealed entries and seals
    const isFree = (e) => e.track === 1 && !this.sealed.has(e.id) && !isSeal(e);
    const free = (id) => idsOf(this.children.of(id).filter(isFree));
    return walk(ids.flatMap(free), free);
  }
  isOpen(e) { return e.kind === REQUEST && this.now.sees(e) && !this.answerTo(e.id) && !this.closing(e).length; }
  late(tip) {
    const listed = new Set(tip.settled), behind = this.descend([this.start(tip)]);
    const isApart = (e) => this.sealOf.has(e.id) || (isFork(e) && this.now.sees(e)) || this.isOpen(e);
    const asked = without(without(idsOf(this.entries.filter(isApart)), listed), behind);
    const seals = [...this.sealOf.values()].filter((n) => !tip.chain.includes(n));
    const apart = new Set([...asked, ...idsOf(seals)]);
    const meetsApart = (id) => [...this.unlisted(this.at(id), tip)].some((at) => apart.has(at));
    const roots = [this.log.conversation, ...idsOf(tip.chain), ...listed];
    const ways = this.descend(roots, (e) => this.nodes.has(e.id));
    const free = without(ways, this.reach([...this.sealOf.keys(), ...asked]));
    return free.filter((id) => this.at(id).kind === MESSAGE && !meetsApart(id));
  }
  tail(tip) {
    const after = this.descend([this.start(tip)]), behind = this.descend(tip ? [tip.request] : []);
    const waiting = without(behind, after).filter((id) => this.isOpen(this.at(id)));
    const before = walk(waiting, (id) => this.at(id).parents.filter((parent) => behind.has(parent)));
    const waits = new Set([...before, ...this.descend(waiting)]), late = tip ? this.late(tip) : [];
    const found = new Set([...after, ...without(behind, waits), ...late]);
    const mayJoin = (e) => e.kind === JOIN && this.now.has(e.author, ...WRITERS);
    const isKept = (e) => (CONTEXT_KINDS.includes(e.kind) || mayJoin(e)) && this.now.sees(e);
    return this.each(found).filter((e) => isKept(e) && isReadable(e)).sort(byOrder);
  }
  frontier(tip, tail) {
    const start = this.start(tip), said = [this.at(start), ...tail];
    const reached = this.unsettled(idsOf(said), new Set(tip?.settled));
    const lacking = (e) => (e.kind === MESSAGE && !this.isEnded(e, reached) ? this.closing(e).slice(0, 1) : []);
    const ends = [...said, ...this.each(reached).flatMap(lacking)];
    const free = without(idsOf(ends), this.reach(ends.flatMap((e) => e.parents)));
    return sorted(idsOf(this.each(free).sort(byOrder).reverse().sort(by((e) => e.id !== start)).slice(0, 64)));
  }
}

// --- the document (06) ----------------------------------------------------------------------

const clientOf = (bytes) => Number(bytes.readBigUInt64LE(0) >> 11n);
const laneClient = (lane) => clientOf(th("document-client", ...laneBytes(lane)));
class Reader extends Cursor {
  number() { return Number(this.checked(this.varint(), (value) => value <= SAFE)); }
  count() { return this.checked(this.number(), (value) => value > 0); }
  text() { return this.checked(this.bytes(this.number()), isUtf8).toString("utf8"); }
  id() { return { client: this.number(), clock: this.checked(this.number(), (clock) => clock < SAFE) }; }
  list(count, read) { return collect((found) => found.length < count, read); }
  signed() {
    const first = this.byte(), isNegative = Boolean(first & 64);
    let value = BigInt(first & 63);
    for (let byte = first, shift = 6n; byte >= 128; shift += 7n) {
      byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      this.need(value <= SAFE && shift < 55n && byte !== 0);
    }
    this.need(value !== 0n || !isNegative);
    return isNegative ? -Number(value) : Number(value);
  }
  value(depth = 0) {
    const kind = this.checked(this.byte(), (type) => type in VALUES), isMap = kind === 118;
    if (VALUES[kind]) return VALUES[kind](this);
    need(depth < 64, "DOCUMENT_NESTING_TOO_DEEP");
    const found = new Map();
    this.list(this.number(), () => {
      const key = isMap ? this.text() : found.size;
      this.need(!found.has(key));
      found.set(key, this.value(depth + 1));
    });
    return isMap ? Object.fromEntries(found) : [...found.values()];
  }
  struct(clock) {
    const info = this.byte(), kind = info & 31, isGap = kind === 0 || kind === 10, s = { clock, kind };
    this.need(kind <= 10 && (!isGap || info === kind));
    if (info & 128) s.origin = this.id();
    if (info & 64) s.right = this.id();
    if (!isGap && !s.origin && !s.right) {
      if (this.checked(this.number(), (form) => form <= 1)) s.root = this.text();
      else s.parent = this.id();
      if (info & 32) s.key = this.text();
    }
    s.length = this.checked(CONTENTS[kind](this, s), (length) => clock + length <= SAFE);
    return s;
  }
  // Runs of clocks by client: after the head of each section, each run after the one before.
  sections(readHead, readRun) {
    const runs = [];
    this.list(this.number(), () => {
      let { client, count, clock: end = 0 } = readHead();
      this.need(!runs.some((run) => run.client === client));
      this.list(count, () => {
        runs.push({ client, ...readRun(end) });
        end = runs.at(-1).clock + runs.at(-1).length;
      });
    });
    return runs;
  }
  run(clock) { return { clock, length: this.checked(this.count(), (length) => clock + length <= SAFE) }; }
  update() {
    const notBefore = (end) => this.checked(this.number(), (clock) => clock >= end);
    const structs = this.sections(() => ({ count: this.count(), ...this.id() }), (end) => this.struct(end));
    const deletions = this.sections(() => ({ client: this.number(), count: this.count() }),
      (end) => this.run(notBefore(end)));
    this.need(this.ended);
    return { structs, deletions };
  }
}
const refuse = () => need(false, "DOCUMENT_VALUE_REFUSED");
const finite = (value) => (Number.isFinite(value) ? value : refuse());
// Per type of a value: read it; 118 and 117 are containers.
const VALUES = {
  127: refuse, 126: () => null, 125: (r) => r.signed(), 122: refuse, 121: () => false, 120: () => true,
  124: (r) => finite(r.bytes(4).readFloatBE(0)), 123: (r) => finite(r.bytes(8).readDoubleBE(0)),
  119: (r) => r.text(), 118: null, 117: null, 116: refuse,
};
// Per content: read it, and return the clocks it takes.
const one = (read) => (r) => (read(r), 1), count = (r) => r.count();
const CONTENTS = [
  count, count, (r) => r.list(r.count(), () => r.text()).length, one((r) => r.bytes(r.number())),
  (r) => r.text().length || r.need(false), one((r) => r.text()), one((r) => [r.text(), r.text()]),
  one((r) => [3, 5].includes(r.checked(r.number(), (type) => type <= 6)) && r.text()),
  (r, s) => (s.values = r.list(r.count(), () => r.value())).length,
  one((r) => [r.text(), r.value()]), count,
];
function checkUpdate(e, closure, brought) {
  const data = unhex(e.update);
  need(data.length <= 65536, "DOCUMENT_TOO_LARGE");
  const { structs, deletions } = new Reader(data, "DOCUMENT_MALFORMED").update();
  const own = laneClient(e), clocksOf = (id) => brought.get(id)?.clocks ?? 0;
  let clocks = 0;
  for (const s of structs) {
    need(s.client === own, "DOCUMENT_CLIENT_FOREIGN");
    need(s.clock === clocks && s.kind !== 10, "DOCUMENT_CLOCK_GAP");
    clocks += s.length;
  }
  need(clocks <= 65536, "DOCUMENT_TOO_LARGE");
  for (const s of structs) {
    const isPlain = s.kind === 1 || (s.kind === 8 && s.length === 1);
    const isPlaced = (s.origin || s.key !== undefined) && !s.right && !s.parent;
    need(isPlain && isPlaced, "DOCUMENT_CONTENT_REFUSED");
    need(s.origin || ["meta", "branches", "annotations"].includes(s.root), "DOCUMENT_ROOT_UNKNOWN");
  }
  const nameOf = (client, clock, ownEnd) => {
    const isMeant = (id) => clientOf(unhex(id)) === client && clocksOf(id);
    const meant = client === own ? [e.id] : [...closure].filter(isMeant);
    const end = client === own ? ownEnd : clocksOf(meant[0]);
    need(meant.length === 1 && clock < end, "DOCUMENT_ORIGIN_UNKNOWN");
    return `${meant[0]}/${clock}`;
  };
  for (const s of structs) s.below = s.origin && nameOf(s.origin.client, s.origin.clock, s.clock);
  const gone = deletions.flatMap(({ client, clock, length }) => {
    nameOf(client, clock + length - 1, clocks); // before the others: it bounds their number
    return Array.from({ length }, (_, i) => nameOf(client, clock + i, clocks));
  });
  return { structs, gone, clocks };
}
const lastOf = (siblings) => [...siblings].sort(by((s) => s.number, (s) => -s.clock)).pop();
const bare = () => Object.create(null); // keys may be named like properties of a prototype
const IS_ID = /^[0-9a-f]{64}$/, NOTE = /^([0-9a-f]{64})\/([^]+)$/;
function project(entries) {
  const byId = new Map(entries.map((e) => [e.id, e]));
  const behind = (e) => [...e.parents, e.prev].filter(Boolean);
  need(entries.every((e) => !without(behind(e), byId).length), "DOCUMENT_NOT_CAUSAL");
  const brought = new Map(), voids = {}, roots = new Map(), children = new Groups(), deleted = new Set();
  [...byId.values()].sort(byOrder).forEach((e, number) => {
    const closure = walk(behind(e), (id) => behind(byId.get(id)));
    const reason = reasonOf(() => brought.set(e.id, checkUpdate(e, closure, brought)));
    if (reason) voids[e.id] = reason;
    const { structs = [], gone = [] } = brought.get(e.id) ?? {};
    for (const name of gone) deleted.add(name);
    for (const s of structs) {
      let above = s.below ?? `${s.root} ${s.key}`;
      if (!s.below) roots.set(above, s);
      for (let clock = s.clock; clock < s.clock + s.length; clock++) {
        const name = `${e.id}/${clock}`;
        children.add(above, { name, number, clock, value: s.values?.[0] });
        above = name;
      }
    }
  });
  const found = { annotations: {}, branches: bare(), meta: bare() };
  for (let [name, { root, key }] of roots) {
    let value;
    while (children.has(name)) ({ name, value } = lastOf(children.of(name)));
    if (value === undefined || deleted.has(name)) continue;
    const [, entry, note] = NOTE.exec(key) ?? [];
    if (root === "meta") found.meta[key] = value;
    if (root === "branches" && IS_ID.test(value) && typeof value === "string") found.branches[key] = value;
    if (root === "annotations" && entry) (found.annotations[entry] ??= bare())[note] = value;
  }
  const digest = hex(th("projection", Buffer.from(canonical(found))));
  return { reason: null, void: voids, projection: found, digest };
}
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join()}}`;
}

// --- bundles, proofs, drafts ----------------------------------------------------------------

const MAGIC = Buffer.from("antiphon/v1/bundle\r\n");
function readBundle(data) {
  const body = data.subarray(0, -32), cursor = new Cursor(body, "BUNDLE_INVALID");
  const isWhole = sha256(body).equals(data.subarray(body.length));
  const record = () => ({ type: cursor.byte(), content: cursor.bytes(numberOf(cursor.bytes(8))) });
  cursor.need(cursor.bytes(MAGIC.length).equals(MAGIC));
  const { type, content } = record();
  cursor.need(type !== 4 || content.length === 8);
  need(!isWhole || (type === 4 && numberOf(content) === 2n), "DRAFT_UNKNOWN");
  const records = cursor.rest(record);
  cursor.need(isWhole && /^(1 )+(2 )*3$/.test(records.map((r) => r.type).join(" ")));
  const contents = (wanted) => records.filter((r) => r.type === wanted).map((r) => r.content);
  const entries = contents(1).map((message) => {
    const entry = readEntry(read("Entry", message, "WIRE_MALFORMED", false));
    checkBody(entry, entry.body);
    return entry;
  });
  const follows = (e, before) => e.conversation === entries[0].id && byOrder(before, e) < 0;
  cursor.need(entries.every((e, i) => (i ? follows(e, entries[i - 1]) : e.kind === GENESIS)));
  const blobs = contents(2).map((blob) => hex(blob.subarray(0, 32)));
  const areRight = contents(2).every((blob, i) => hex(sha256(blob.subarray(32))) === blobs[i]);
  cursor.need(areRight && new Set(blobs).size === blobs.length);
  cursor.need(contents(3)[0].equals(Buffer.concat([le(entries.length, 8), le(blobs.length, 8)])));
  return { reason: null, entries: idsOf(entries), blobs: sorted(blobs) };
}
const ofBundle = (reason) => ({ reason: reason === "DRAFT_UNKNOWN" ? reason : "BUNDLE_INVALID" });
const bytesOf = (q, ...names) => names.map((name) => unhex(q[name]));
function prove(q) {
  const [secret, hubKey, signature] = bytesOf(q, "private_key", "hub_key", "hub_signature");
  const [clientNonce, ...stated] = bytesOf(q, "client_nonce", "hub_nonce", "stated_certificate");
  const parts = [hubKey, publicOf(secret), clientNonce, ...stated, le(q.expire_time_ms, 8)];
  const transcript = (role) => pae("authenticate", ...parts, le(role, 1));
  need(q.pinned === null || q.pinned === q.hub_key, "PEER_IDENTITY_CHANGED");
  const checks = [
    q.stated_certificate === q.seen_certificate, BigInt(q.now_ms) < BigInt(q.expire_time_ms), stated.every((bytes) => bytes.length === 32),
    reasonOf(() => verify(hubKey, signature, transcript(1))) === null,
  ];
  need(checks.every(Boolean), "PROOF_INVALID");
  return { reason: null, signature: sign(secret, transcript(2)) };
}
function draftBytes(q, f) {
  const sizes = [le(f.token_offset, 4), le(f.token_ids.length, 4), le(f.byte_offset, 4)];
  const ids = [...bytesOf(q, "conversation", "request"), le(q.run, 8)];
  return pae("draft", ...ids, ...sizes, sha256(unhex(f.data)), unhex(f.digest));
}
function drafts(q) {
  const start = th("draft-stream", unhex(q.request), le(q.run, 8));
  let digest = start, tokens = 0, size = 0;
  const received = q.frames.map((f) => {
    if (reasonOf(() => verify(unhex(q.host), unhex(f.signature), draftBytes(q, f)))) return false;
    const next = f.token_ids.reduce((d, id) => sha256(d, le(id, 4)), digest);
    const follows = f.token_offset === tokens && f.byte_offset === size && hex(next) === f.digest;
    const isProgress = !f.token_ids.length && !f.data.length;
    if (!follows || (isProgress && (tokens || size))) return false;
    [digest, tokens, size] = [next, tokens + f.token_ids.length, size + f.data.length / 2];
    return true;
  });
  return { start_digest: hex(start), received, digest: hex(digest) };
}

// --- questions ------------------------------------------------------------------------------

const table = (keys, value) => Object.fromEntries(keys.map((key) => [key, value(key)]));
const ANSWERS = {
  scan: (q) => ({ reason: reasonOf(() => read(q.message, unhex(q.bytes), "WIRE_MALFORMED")) }),
  parse(q) {
    const data = unhex(q.header), h = readHeader(data), canonical = encode("Header", h).equals(data);
    const forms = { critical: h.critical === 1, create_time_ms: Number(h.create_time_ms) };
    const fields = { ...h, ...forms, epoch: String(h.epoch) };
    return { reason: null, id: hex(th("entry", data)), fields, canonical };
  },
  sign: (q) => ({ signature: sign(unhex(q.private_key), pae("signature", unhex(q.header))) }),
  verify: (q) => ({ reason: reasonOf(() => verify(...bytesOf(q, "public_key", "signature", "message"))) }),
  digest: (q) => ({ digest: digestOf(q.heads.map((h) => ({ ...h, epoch: BigInt(h.epoch) }))) }),
  salt: (q) => ({ salt: hex(th("salt", ...bytesOf(q, "author", "retry_id")).subarray(0, 16)) }),
  "call-key"(q) {
    const message = encode("Message", { speaker: 2, parts: [{ text: { text: Buffer.from(q.words) } }] });
    const key = th("call-key", unhex(q.author), Buffer.from(q.text));
    return { key: hex(key), call: hex(th("call", message)) };
  },
  bundle: (q) => attempt(() => readBundle(unhex(q.bytes)), ofBundle),
  prove, drafts,
  "sign-draft": (q) => ({ signature: sign(unhex(q.private_key), draftBytes(q, q.frame)) }),
  admit(q) {
    const log = logOf({ ...q, entries: q.given });
    return attempt(() => log.admit(readEntry(q.entry)), (reason) => ({ verdict: "refused", reason }));
  },
  fold(q) {
    const log = logOf(q), c = new Conversation(log), { now } = c, heads = c.membershipHeads();
    const namesOf = (key) => sorted(new Set(now.roles.of(key).map((role) => ROLES[role])));
    const joined = heads.length > 64 ? Math.min(64, heads.length - 63) : 0;
    return {
      visible: sorted(idsOf(c.all.filter((e) => now.sees(e)))), covered: sorted(c.covered),
      members: table(without(now.roles.keys(), now.kept), namesOf), digest: digestOf(c.heads),
      pending: sorted(log.pending.keys()), membership_heads: sorted(heads.slice(-64)),
      heads_to_join: sorted(heads.slice(0, joined)),
    };
  },
  order(q) {
    const order = new Order(logOf(q));
    const verdictOf = (id) => {
      const node = order.nodes.get(id);
      if (!node) return { verdict: order.void.has(id) ? "void" : "uncovered" };
      const { prev, context, digest } = node;
      return { verdict: "counts", prev_seal: prev.id || null, context, context_digest: hex(digest) };
    };
    const tailOf = (id) => {
      const tip = id && order.nodes.get(id), tail = order.tail(tip);
      return { tip: id, entries: idsOf(tail), frontier: order.frontier(tip, tail) };
    };
    return {
      seals: table(q.seals, verdictOf), reasons: Object.fromEntries(order.void),
      answers: table(q.answers, (id) => order.answerTo(id)?.id ?? null), tips: idsOf(order.tips()),
      sealable: table(q.sealable, (id) => order.sealable(id)), tails: q.tails.map(tailOf),
    };
  },
  compare(q) {
    const c = new Conversation(logOf(q)), unknown = q.heads.filter((h) => !c.at(h.id));
    const known = without(idsOf(q.heads), new Set(idsOf(unknown)));
    const laneAt = (h) => c.all.filter((e) => laneOf(e) === laneOf(h));
    const isForked = (h) => laneAt(h).some((e) => e.seq === h.seq);
    const continued = unknown.filter((h) => !isForked(h)).flatMap(laneAt);
    const held = new Set([...walk(known, (id) => c.log.before(id)), ...idsOf(continued)]);
    const isFirst = (e) => [0, 3].includes(e.track);
    const send = idsOf(c.each(without(c.covered, held)).sort(withFirst(isFirst)));
    const formOf = ({ author, epoch, track, seq, id }) => ({ author, epoch: String(epoch), track, seq, id });
    const [want, diverged] = [unknown, unknown.filter(isForked)].map((heads) => sorted(idsOf(heads)));
    return { heads: c.heads.map(formOf), send, want, diverged };
  },
  project: (q) => project(q.entries),
  client: (q) => ({ client_id: String(q.id ? clientOf(unhex(q.id)) : laneClient(q)) }),
  canonical: (q) => ({ bytes: hex(Buffer.from(canonical(q.value))) }),
};
function answer(question) {
  const ask = ANSWERS[question.ask];
  return ask ? attempt(() => ask(question), (reason) => ({ reason })) : { unknown: true };
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const question = JSON.parse(line);
  process.stdout.write(`${JSON.stringify({ number: question.number, ...answer(question) })}\n`);
});
