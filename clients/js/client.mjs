// A level-1 client: Authenticate, Push, Watch, and no log of its own (spec/13-level-1).
// Its folder keeps the key, the hub's key, the conversation and its host, and what is not acked yet.
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';
import { createHash, randomBytes } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as e from './encode.mjs';

const PROTO = { includeDirs: [fileURLToPath(new URL('../../proto', import.meta.url))], keepCase: true, longs: String, defaults: true };
const { SyncService } = grpc.loadPackageDefinition(loader.loadSync('antiphon/v1/sync.proto', PROTO)).antiphon.v1;
const TEXT_BYTES = 511 * 1024, HEADS = 8192, CALL_MS = 20_000, SILENCE_MS = 60_000, RENEWAL_MS = 300_000, TIMER_MS = 2 ** 31 - 1, BACKOFF_MS = [200, 400, 800, 1600]; // a longer timer ends at once: TIMER_MS
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\]):\d+$/; // there is no TLS here (TRUST-3)
const OPTIONS = { 'grpc.keepalive_time_ms': 20_000, 'grpc.keepalive_timeout_ms': 10_000, 'grpc.enable_http_proxy': 0, // TRUST-11
  'grpc.initial_reconnect_backoff_ms': 200, 'grpc.max_reconnect_backoff_ms': 3_000 };
const TRANSPORT = ['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED', 'INTERNAL', 'UNKNOWN', 'RESOURCE_EXHAUSTED']; // nothing was decided
const coded = (entry, code) => Object.fromEntries(Object.entries(entry).map(([name, value]) => [name, code(value)]));

export class Refused extends Error {
  constructor(reason, detail = '', nextStep = '', { retryable = false, waitMs = 0 } = {}) {
    super();
    Object.assign(this, { reason, retryable, waitMs, message: `${reason}: ${detail} ${nextStep}`.trim() });
  }
}

// Return the typed error of a failed call: what its trailer states (spec/10-errors §2), else gRPC's own.
export function refusal(error) {
  if (error instanceof Refused) return error;
  if (typeof error.code !== 'number') throw error; // of this program or its disk
  const code = grpc.status[error.code], stated = e.readable(() => e.stated(error.metadata.get('grpc-status-details-bin')[0]));
  if (stated?.domain !== 'antiphon.v1') return new Refused(code, error.details, '', { retryable: TRANSPORT.includes(code) });
  return new Refused(stated.reason, error.details, stated.nextStep, stated);
}

// Events: draft {request, text}, answer {request, text, refused}, warning, refused, retry, durable, failed.
export class Client extends EventEmitter {
  constructor(address, folder) {
    super();
    Object.assign(this, { address, file: path.join(folder, 'client.json') });
    fs.mkdirSync(folder, { recursive: true });
    const isThere = fs.existsSync(this.file), refuse = (reason, detail, step) => { throw new Refused(reason, `${this.file} ${detail}.`, step); };
    if (isThere && fs.statSync(this.file).mode & 0o077) refuse('KEY_FILE_INVALID', 'can be used by others', 'Run `chmod 600` on it.');
    this.kept = isThere ? e.readable(() => JSON.parse(fs.readFileSync(this.file))) ?? {} : { unacked: [], seed: randomBytes(32).toString('hex') };
    const unfit = this.kept.seed && !this.kept.check ? ['KEY_FILE_UNCHECKED', 'has no checksum: an earlier version wrote it'] : ['KEY_FILE_INVALID', 'is damaged'];
    if (isThere && this.kept.check !== this.check()) refuse(...unfit, 'Put a copy of it in its place, or use another folder.');
    this.key = new e.Key(Buffer.from(this.kept.seed, 'hex'));
    this.stub = new SyncService(address, grpc.credentials.createInsecure(), OPTIONS); // connects at the first call
    this.beginEpoch();
    // texts, seals: of generations to be told and of their seals, by id; told: own requests, whether their answer was told; cursor: lane heads as of the last Hint, latest last
    Object.assign(this, { texts: new Map(), seals: new Map(), told: new Map(), drafts: new Map(), cursor: new Map(), ending: new AbortController(), flushing: Promise.resolve() });
    if (process.platform !== 'linux') return; // One process at a time: the kernel drops such a name with its process.
    this.lock = net.createServer().unref().on('error', () => this.emit('failed', new Refused('FOLDER_TAKEN', 'another process uses the folder.', 'End it first.')));
    this.lock.listen(`\0antiphon ${createHash('sha256').update(fs.realpathSync(folder)).digest('hex')}`);
  }

  // Begin fresh lanes: with each process, and where the hub refused an entry. last: per track, seq, id and lamport of the last entry.
  beginEpoch() { Object.assign(this, { epoch: randomBytes(8).readBigUInt64LE() || 1n, last: {}, hint: this.latest }); }
  check({ seed, hub, conversation, host } = this.kept) { return e.sha256(Buffer.from(JSON.stringify([seed, hub, conversation, host]))).toString('hex'); } // TRUST-10
  get conversation() { return this.kept.conversation && Buffer.from(this.kept.conversation, 'hex'); }

  // Go on in the lane of an earlier process once a Hint names its last entry as the head (02 §7): lanes are bounded.
  goOn(heads, lane = this.kept.lane) {
    const [head, fork] = heads.filter((one) => one.epoch === lane?.epoch && one.track === e.TRACK.CONVERSATION);
    if (head?.id.toString('hex') !== lane?.id || fork || this.last[1] || !lane || this.kept.unacked.length) return;
    Object.assign(this, { epoch: BigInt(lane.epoch), last: { [e.TRACK.CONVERSATION]: { ...lane, id: head.id } } });
  }

  save() { // An entry has to be durable here before it is sent (ENT-13), so that a retry has its bytes.
    fs.writeFileSync(`${this.file}.new`, JSON.stringify({ ...this.kept, public: this.key.public.toString('hex'), check: this.check() }), { mode: 0o600, flush: true });
    fs.renameSync(`${this.file}.new`, this.file);
    const folder = fs.openSync(path.dirname(this.file)); // the new name has to be durable, too
    try { fs.fsyncSync(folder); } finally { fs.closeSync(folder); }
  }

  async authenticate() {
    if (!LOOPBACK.test(this.address)) throw new Refused('TLS_REQUIRED', 'the address is not HOST:PORT on loopback.', 'Open a tunnel, and use its end here.');
    const first = { client_key: this.key.public, client_nonce: randomBytes(32) };
    const { challenge } = await this.unary('Authenticate', first);
    const shown = challenge?.hub_key.toString('hex') ?? 'no key', bytes = (role) => e.transcript(role, this.key.public, first.client_nonce, challenge);
    if (this.kept.hub && shown !== this.kept.hub) throw new Refused('PEER_IDENTITY_CHANGED', `the hub shows ${shown}.`, 'Ask the operator.');
    if (challenge?.hub_nonce.length !== 32 || challenge.certificate_digest.length || Number(challenge.expire_time_ms) <= Date.now()
      || !e.isSigned(challenge.hub_key, challenge.hub_signature, bytes(1))) {
      throw new Refused('PROOF_INVALID', 'the hub does not prove its key.', 'Compare clocks and keys.');
    }
    this.kept.hub = shown; // proved
    const { ticket } = await this.unary('Authenticate', { ...first, challenge, client_signature: this.key.sign(bytes(2)) });
    (this.metadata = new grpc.Metadata()).set('antiphon-ticket-bin', ticket);
    this.renewal ??= setInterval(() => this.authenticate().catch(() => {}), RENEWAL_MS).unref(); // extends the Watch on this connection
  }

  unary(name, request, metadata = new grpc.Metadata()) { return promisify(this.stub[name]).call(this.stub, request, metadata, { deadline: Date.now() + CALL_MS }); }
  async ticket() { return this.metadata ?? (await this.authenticate(), this.metadata); }
  async call(name, request) { return this.unary(name, request, await this.ticket()); }

  // Repeat an action until it works or fails for good.
  async retried(action) {
    for (let attempt = 0; ; attempt++) {
      this.ending.signal.throwIfAborted();
      try {
        return await action(() => (attempt = 0));
      } catch (error) {
        const known = refusal(error);
        if (known.reason === 'TICKET_INVALID') this.metadata = undefined;
        else if (known.reason === 'CURSOR_DIVERGED') this.cursor.clear();
        else if (!known.retryable) throw known;
        if (!this.ending.signal.aborted) this.emit('retry', known);
        const wait = Math.min(TIMER_MS, Math.max(known.waitMs, BACKOFF_MS[attempt] ?? 3200));
        await sleep(wait, undefined, { signal: this.ending.signal }).catch(() => {});
      }
    }
  }

  // Write an entry behind `parents`; `lamport` is that of an entry on a fresh lane.
  write(kind, content, { track, parents, basis, lamport }) {
    const prev = track && this.last[track];
    const place = { conversation: this.conversation, track, parents, basis, prev: prev?.id,
      seq: prev ? prev.seq + 1 : 0, lamport: prev ? Math.max(lamport, prev.lamport + 1) : lamport };
    const entry = e.signed(this.key, this.epoch, kind, content, place, { salt: randomBytes(16), timeMs: Date.now() });
    const { seq } = place, written = { seq, id: entry.id, lamport: place.lamport };
    this.kept = { ...this.kept, unacked: [...this.kept.unacked, coded(entry, (b) => b.toString('base64'))] };
    if (track) this.last = { ...this.last, [track]: written }; // the genesis is on no track, and its lane ends with it
    if (track === e.TRACK.CONVERSATION) this.kept.lane = { ...written, epoch: String(this.epoch), id: entry.id.toString('hex') };
    return written;
  }

  // Return the first host, if the hub vouches for it (LINK-31).
  async vouched() {
    const { hosts: [first] } = await this.retried(() => this.call('Hosts', {}));
    if (!first?.vouched || first.info?.key.length !== 32) throw new Refused('NO_HOST', 'the hub vouches for no linked host', 'Start one.');
    return first.info.key;
  }

  begin(host) {
    const genesis = this.write(e.KIND.GENESIS, e.genesis(this.key.public), { lamport: 0 });
    this.kept = { ...this.kept, host: host.toString('hex'), conversation: genesis.id.toString('hex') };
    this.hint = { parents: [genesis.id], lamport: 1 };
    this.write(e.KIND.MEMBER, e.grantHost(host), { ...this.hint, track: e.TRACK.MEMBERSHIP });
  }

  // Say something and ask the host to answer; return the request's id. Works offline after the first Hint.
  async ask(text) {
    if (!text.trim() || !text.isWellFormed()) throw new Refused('ARGUMENT_INVALID', 'the message is empty or no Unicode text.', 'Write some text.');
    if (Buffer.byteLength(text) > TEXT_BYTES) throw new Refused('BODY_TOO_LARGE', `more than ${TEXT_BYTES} bytes`, 'Send it in parts.');
    while (this.conversation && !this.hint) await once(this, 'hint', { signal: this.ending.signal });
    const host = this.conversation ?? await (this.finding ??= this.vouched().finally(() => (this.finding = undefined)));
    const { kept, last, hint } = this;
    try { return this.turn(text, host); } catch (error) {
      Object.assign(this, { kept, last, hint }); // what could not be saved is not sent later either
      throw error;
    }
  }

  turn(text, host) {
    if (!this.conversation) this.begin(host);
    const place = this.hint, at = { ...place, track: e.TRACK.CONVERSATION };
    const said = this.write(e.KIND.MESSAGE, e.said(text), at);
    const after = { ...at, parents: [said.id], lamport: said.lamport + 1 };
    const asked = this.write(e.KIND.REQUEST, e.request(Buffer.from(this.kept.host, 'hex')), after);
    this.hint = { ...place, parents: [asked.id], lamport: asked.lamport + 1 }; // until the hub sends one
    this.save();
    this.flush();
    return asked.id.toString('hex');
  }

  // Push what is not acked, always as the same bytes, until each entry has an outcome.
  flush() { this.flushing = this.flushing.then(() => this.pushAll()).catch((error) => this.fail(error)); }
  fail(error) { if (!this.ending.signal.aborted) this.emit('failed', error); } // what close() ends is no failure
  async pushAll() {
    while (this.kept.unacked.length && !this.ending.signal.aborted) {
      let size = 0; // of base64, which is longer than what a call may have: 1 MiB, 2,048 entries (spec/11-limits)
      const end = this.kept.unacked.findIndex(({ header, body }, n) => (size += header.length + body.length) > 1e6 && n > 0);
      const entries = this.kept.unacked.slice(0, end < 0 ? 500 : end).map((one) => coded(one, (text) => Buffer.from(text, 'base64')));
      await this.retried(async () => this.settle(await this.call('Push', { entries })));
    }
    if (this.conversation) this.watch();
  }

  settle({ outcomes }) {
    const left = this.kept.unacked.filter((one) => !outcomes.some(({ id }) => id.toString('base64') === one.id));
    if (left.length === this.kept.unacked.length) throw new Refused('UNAVAILABLE', 'the hub answers for no entry', '', { retryable: true });
    const refused = outcomes.filter(({ durable }) => !durable).map(({ id }) => id.toString('hex'));
    this.kept.unacked = left;
    if (refused.includes(this.kept.conversation)) ['conversation', 'host', 'lane'].forEach((name) => delete this.kept[name]); // the next turn begins anew
    if (refused.length) this.beginEpoch(); // the lane has a gap now
    this.save(); // before anybody is told, and may end the process
    if (refused.length) this.emit('hint'); // who waits for a place looks again
    const error = (fault) => new Refused(fault?.reason ?? 'UNKNOWN', fault?.detail, fault?.next_step);
    for (const { id, durable, fault, warning } of outcomes) {
      if (warning) this.emit('warning', error(warning));
      this.emit(...(durable ? ['durable', { id: id.toString('hex') }] : ['refused', error(fault), id.toString('hex')]));
    }
  }

  watch() { this.watching ??= this.retried((worked) => this.watchOnce(worked)).catch((error) => this.fail(error, (this.watching = undefined))); }
  async watchOnce(worked) {
    const request = { conversation: this.conversation, cursor: [...this.cursor.values()].slice(-HEADS), drafts: true };
    const stream = this.stream = this.stub.Watch(request, await this.ticket()), seen = new Map(this.cursor);
    const silence = setTimeout(() => stream.cancel(), SILENCE_MS); // three Beats are missing
    try {
      for await (const event of stream) {
        silence.refresh();
        worked();
        this.receive(event, seen);
      }
    } finally { clearTimeout(silence); stream.cancel(); }
    throw new Refused('UNAVAILABLE', 'the Watch ended', '', { retryable: true });
  }

  receive(event, seen) { // a Beat is nothing but a sign of life
    if (event.entries) event.entries.entries.forEach((raw) => this.receiveEntry(raw, seen));
    else if (event.draft) this.receiveDraft(event.draft);
    else if (event.answered) this.receiveAnswer(event.answered);
    else if (event.hint) {
      this.goOn(event.hint.own_heads);
      const { parents, basis, lamport, own_heads: heads } = event.hint, own = this.last[e.TRACK.CONVERSATION];
      this.latest = { parents, basis, lamport: Number(lamport) };
      if (!own || heads.some((head) => head.id.equals(own.id))) this.hint = this.latest; // an earlier one would place the next entry beside ours
      this.cursor = new Map(seen);
      this.emit('hint');
    }
  }

  receiveEntry(raw, seen) {
    const { id, author, epoch, track, seq, kind, conversation, parent, digest } = e.opened(raw) ?? {};
    if (!id) return;
    const name = id.toString('hex'), by = author.toString('hex'), lane = `${by} ${epoch} ${track}`;
    seen.delete(lane); seen.set(lane, { author, epoch: String(epoch), track, seq: String(seq), id });
    if (kind === e.KIND.SEAL) this.seals.set(name, parent);
    if (kind === e.KIND.REQUEST && author.equals(this.key.public) && !this.told.has(name)) this.told.set(name, false);
    if (kind !== e.KIND.GENERATION || by !== this.kept.host || !conversation.equals(this.conversation) || !e.isWhole(raw, author, digest)) return;
    this.texts.set(name, { parent, ...e.shown(raw.body) });
  }

  receiveDraft({ request, run, byte_offset: offset, data }, name = request.toString('hex')) {
    const draft = offset ? this.drafts.get(name) : { run, size: 0, text: '' }; // 0: a new run, or a new Watch
    if (this.told.get(name) !== false || run !== draft?.run || offset !== draft.size) return; // others' answers are drafted between
    this.drafts.set(name, { run, size: offset + data.length, text: draft.text + data });
    if (data.length) this.emit('draft', { request: name, text: draft.text + data });
  }

  // Tell the answer to an own request, by the host we named: the ids that it signed lead to the request (LINK-96).
  receiveAnswer({ request, seal, generation }) {
    const [asked, sealed, answer] = [request, seal, generation].map((id) => id.toString('hex')), shown = this.texts.get(answer);
    const isOpen = this.told.get(asked) === false; // a Watch that ended before its Hint says it again
    const isProved = shown?.parent === (sealed || asked) && (!sealed || this.seals.get(sealed) === asked);
    if (isOpen && !isProved) throw new Refused('ANSWER_UNPROVED', 'the hub names an answer that the host did not give to this request.', 'Ask the operator.');
    this.texts.delete(answer); this.seals.delete(sealed); this.drafts.delete(asked); // where it is told again, its entry comes again
    if (isOpen && this.told.set(asked, true)) this.emit('answer', { request: asked, text: shown.text, refused: shown.fault || (sealed ? '' : shown.detail) });
  }

  close() {
    this.ending.abort(new Refused('CANCELLED', 'the client is closed.'));
    clearInterval(this.renewal);
    this.stream?.cancel();
    this.lock?.close();
    this.stub.close();
  }
}
