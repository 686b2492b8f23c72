// Bytes of level 1: the strict wire subset, ids, signatures, headers and bodies (spec/02-entry).
// Entries are encoded by hand: protobuf libraries write set defaults, and lose 64-bit numbers.
import { createHash, createPrivateKey, createPublicKey, sign, verify } from 'node:crypto';

export const KIND = { GENESIS: 1, MEMBER: 2, MESSAGE: 3, REQUEST: 5, SEAL: 6, GENERATION: 7 };
export const TRACK = { CONVERSATION: 1, MEMBERSHIP: 3 };
const USER = 2, HOST = 4, PKCS8 = Buffer.from('302e020100300506032b657004220420', 'hex');

export const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts)).digest();
export const le8 = (number) => Buffer.from(new BigUint64Array([BigInt(number)]).buffer); // on little-endian machines
export const pae = (tag, data) => Buffer.concat([le8(tag.length), Buffer.from(tag), le8(data.length), data]);

const varint = (n) => (n < 0x80n ? [Number(n)] : [Number(n & 0x7fn) | 0x80, ...varint(n >> 7n)]);
function field(number, value) {
  const tag = (wire) => varint(BigInt((number << 3) | wire)), content = value?.present ?? value;
  if (value?.fixed !== undefined) return Buffer.from([...tag(1), ...le8(value.fixed)]);
  if (!Buffer.isBuffer(content)) return Buffer.from([...tag(0), ...varint(BigInt(content))]);
  return Buffer.concat([Buffer.from([...tag(2), ...varint(BigInt(content.length))]), content]);
}

// Encode {number: value}: a Buffer, a number, {fixed} for fixed64, an array for a repeated field, {present} for what may be empty.
export function message(fields) {
  const isSet = (v) => v?.fixed !== undefined || v?.present || (Buffer.isBuffer(v) ? v.length : v);
  return Buffer.concat(Object.entries(fields).flatMap(([number, value]) =>
    (Array.isArray(value) ? value.map((one) => ({ present: one })) : [value].filter(isSet))
      .map((one) => field(Number(number), one))));
}

// Return a function of a field number: all values of that field, numbers as BigInt. Throws where the bytes are no message.
export function read(bytes) {
  const found = new Map();
  let at = 0;
  const content = (length) => bytes.subarray(at, (at += length));
  const number = (byte = BigInt(content(1)[0])) => (byte < 0x80n ? byte : (byte & 0x7fn) | (number() << 7n));
  const readers = { 0: number, 1: () => content(8).readBigUInt64LE(), 2: () => content(Number(number())), 5: () => content(4) };
  while (at < bytes.length) {
    const tag = Number(number()), value = readers[tag & 7](); // there are no groups
    found.get(tag >> 3)?.push(value) ?? found.set(tag >> 3, [value]);
  }
  if (at > bytes.length) throw new Error('the message is cut off');
  return (one) => found.get(one) ?? [];
}

// Return what an action returns, or undefined where it throws: a peer's bytes that can't be read.
export const readable = (action) => { try { return action(); } catch { return undefined; } };

export class Key {
  constructor(seed) {
    this.private = createPrivateKey({ key: Buffer.concat([PKCS8, seed]), format: 'der', type: 'pkcs8' });
    this.public = Buffer.from(createPublicKey(this.private).export({ format: 'jwk' }).x, 'base64url');
  }
  sign = (data) => sign(null, data, this.private);
}

const PRIME = 2n ** 255n - 19n, ORDER_8 = 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n;
function isPoint(bytes) {
  const y = BigInt.asUintN(255, BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`));
  return y < PRIME && ![0n, 1n, PRIME - 1n, ORDER_8, PRIME - ORDER_8].includes(y); // of small order: anybody can sign for it
}

// VERIFY of spec/02-entry §4: canonical points of no small order; the library checks S and the equation.
export const isSigned = (by, signature, data) => readable(() => {
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: by.toString('base64url') }, format: 'jwk' });
  return isPoint(by) && isPoint(signature.subarray(0, 32)) && verify(null, data, key, signature);
}) === true;

// The bytes that a hub (role 1) and a client (role 2) sign (spec/04-link §3), without TLS.
export function transcript(role, clientKey, clientNonce, challenge) {
  return pae('antiphon/v1/authenticate', Buffer.concat([challenge.hub_key, clientKey, clientNonce,
    challenge.hub_nonce, Buffer.alloc(32), le8(challenge.expire_time_ms), Buffer.from([role])]));
}

export const entryId = (header) => sha256(pae('antiphon/v1/entry', header));
// Sign an entry. `place` has conversation, track, seq, prev, parents, basis and lamport.
export function signed(key, epoch, kind, content, place, { salt, timeMs }) {
  const body = Buffer.concat([salt, content]);
  const header = message({
    1: place.conversation, 2: key.public, 3: { fixed: epoch }, 4: place.track, 5: place.seq, 6: place.prev,
    7: [...(place.parents ?? [])].sort(Buffer.compare), 8: place.basis, 9: place.lamport, 10: kind,
    12: sha256(body), 13: body.length, 14: timeMs, // conflict is left out: QUEUE
  });
  return { id: entryId(header), header, signature: key.sign(pae('antiphon/v1/signature', header)), body };
}

export const genesis = (owner) => message({ 1: [owner] });
export const grantHost = (host) => message({ 1: message({ 1: host, 2: HOST }) });
export const said = (text) => message({ 1: USER, 2: [message({ 1: message({ 1: Buffer.from(text) }) })] });
export const request = (host) => message({ 1: host, 3: { present: Buffer.alloc(0) } }); // greedy

// Return the text of a GENERATION's body, and why it ended; `fault` says why there is nothing to show.
export const shown = (body) => readable(() => {
  const content = read(body.subarray(16));
  const texts = content(2).flatMap((part) => read(part)(1)).flatMap((text) => read(text)(1));
  return { text: texts.map(String).join(''), detail: content(5).map(String).join(''), fault: body.length ? '' : 'BODY_MISSING: the hub lacks it' };
}) ?? { text: '', fault: 'BODY_VOID: the answer does not parse' }; // ENT-7

// Read a google.rpc.Status: its ErrorInfo, and the wait of its RetryInfo. Throws where it has no ErrorInfo.
export function stated(status) {
  const details = Object.fromEntries(read(status)(3).map((any) => [String(read(any)(1)[0]).split('google.rpc.')[1], read(any)(2)[0] ?? []]));
  const info = read(details.ErrorInfo), pairs = info(3).map((pair) => [1, 2].map((n) => String(read(pair)(n)[0])));
  const delay = read(read(details.RetryInfo ?? [])(1)[0] ?? []), int = (n) => Number(BigInt.asIntN(64, delay(n)[0] ?? 0n));
  return { domain: String(info(2)[0]), reason: String(info(1)[0]), nextStep: Object.fromEntries(pairs).next_step,
    retryable: Boolean(details.RetryInfo), waitMs: int(1) * 1000 + int(2) / 1e6 };
}

// Read the header of a peer's entry, and compute its id; undefined where it can't be read.
export const opened = ({ header }) => readable(() => {
  const fields = read(header), bytes = (n) => Buffer.from(fields(n)[0] ?? []), int = (n) => BigInt(fields(n)[0] ?? 0);
  return { id: entryId(header), conversation: bytes(1), author: bytes(2), epoch: int(3), track: Number(int(4)), seq: int(5),
    parent: fields(7).length === 1 ? bytes(7).toString('hex') : '', kind: Number(int(10)), digest: bytes(12) };
});

// Return whether an entry is its author's, and its body, where it is there, the one that was signed.
export const isWhole = ({ header, signature, body }, author, digest) =>
  isSigned(author, signature, pae('antiphon/v1/signature', header)) && (!body.length || sha256(body).equals(digest));
