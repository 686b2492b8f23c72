"""drafts.json: tokens and visible bytes of a run → running digests, signed bytes, signatures."""

import struct
from typing import Any

from spec.vectors.make.build import Key, pae, sha256
from spec.vectors.make.misread import misread

TAG, STREAM_TAG = "antiphon/v1/draft", "antiphon/v1/draft-stream"
HOST = Key("host")
CONVERSATION, REQUEST = sha256(b"conversation"), sha256(b"request")
RUN = 0xF123456789ABCDEF

Vector = dict[str, Any]
Given = tuple[list[int], bytes]
"""The token ids and the visible bytes of a frame."""


def start(run: int = RUN, order: str = "little") -> bytes:
    """Return the running digest before the first token."""
    return sha256(pae(STREAM_TAG, REQUEST + run.to_bytes(8, order)))  # type: ignore[arg-type]


def extended(digest: bytes, ids: list[int]) -> bytes:
    """Return the running digest behind some more tokens."""
    for token in ids:
        digest = sha256(digest + struct.pack("<I", token))
    return digest


def signed_bytes(at: int, ids: list[int], offset: int, data: bytes, digest: bytes) -> bytes:
    """Return the bytes that the host signs for a frame."""
    numbers = struct.pack("<QIII", RUN, at, len(ids), offset)
    return pae(TAG, CONVERSATION + REQUEST + numbers + sha256(data) + digest)


def _frames(given: list[Given]) -> list[Vector]:
    frames, digest, at, offset = [], start(), 0, 0
    for ids, data in given:
        digest = extended(digest, ids)
        pre_image = signed_bytes(at, ids, offset, data, digest)
        frames.append(
            {
                "token_offset": at,
                "token_ids": ids,
                "byte_offset": offset,
                "data": data.hex(),
                "digest": digest.hex(),
                "pre_image": pre_image.hex(),
                "signature": HOST.private.sign(pre_image).hex(),
            }
        )
        at, offset = at + len(ids), offset + len(data)
    return frames


def _stream(
    name: str,
    comment: str,
    given: list[Given],
    *,
    rule: str | None = None,
    last: Vector | None = None,
) -> Vector:
    """Return a vector; `last` are changed fields of the last frame, whose digest is kept."""
    frames = _frames(given)
    then = {"then": frames[-1]} if rule is not None else {}
    if last is not None:
        frame = frames[-1] | last
        pre_image = signed_bytes(
            frame["token_offset"], frame["token_ids"], frame["byte_offset"],
            bytes.fromhex(frame["data"]), bytes.fromhex(frame["digest"]),
        )  # fmt: skip
        signature = last.get("signature") or HOST.private.sign(pre_image).hex()
        frames[-1] = frame | {"pre_image": pre_image.hex(), "signature": signature}
    right = frames[-1]["digest"]
    return {
        "name": name,
        "comment": comment,
        "host": HOST.public.hex(),
        "private_key": HOST.seed.hex(),
        "conversation": CONVERSATION.hex(),
        "request": REQUEST.hex(),
        "run": str(RUN),
        "start_digest": start().hex(),
        "frames": frames,
        "rule": rule,
        **then,
        "misread": misread(right, _wrong(given)) if rule is None else {},
    }


def _wrong(given: list[Given]) -> dict[str, str]:
    ids = [token for frame, _ in given for token in frame]
    bare = sha256(STREAM_TAG.encode() + REQUEST + struct.pack("<Q", RUN))
    wrong = {
        "the run big-endian": extended(start(order="big"), ids),
        "the stream's tag without lengths": extended(bare, ids),
        "the request's hex": extended(
            sha256(pae(STREAM_TAG, REQUEST.hex().encode() + struct.pack("<Q", RUN))), ids
        ),
    }
    if ids:
        wrong["tokens big-endian"] = _by(">I", ids)
        wrong["tokens of 8 bytes"] = _by("<Q", ids)
    if len(ids) > 1:
        wrong["all tokens hashed at once"] = sha256(start() + struct.pack(f"<{len(ids)}I", *ids))
    return {name: value.hex() for name, value in wrong.items()}


def _by(form: str, ids: list[int]) -> bytes:
    digest = start()
    for token in ids:
        digest = sha256(digest + struct.pack(form, token))
    return digest


def _refused() -> list[Vector]:
    two: list[Given] = [([258, 4], b"Hel"), ([9], b"lo")]
    first, second = _frames(two)
    other = extended(bytes.fromhex(first["digest"]), [10]).hex()
    unhashed = struct.pack("<QIII", RUN, 2, 1, 3) + b"lo" + bytes.fromhex(second["digest"])
    raw = HOST.private.sign(pae(TAG, CONVERSATION + REQUEST + unhashed)).hex()
    pre_image = bytes.fromhex(second["pre_image"])
    untagged, eve = pre_image[16 + len(TAG) :], Key("eve").private.sign(pre_image).hex()
    return [
        _stream("signature-key", "another key signed", two, rule="SIGNATURE",
                last={"signature": eve}),
        _stream("signature-data", "the data signed as they are, in place of their digest", two,
                rule="SIGNATURE", last={"signature": raw}),
        _stream("signature-tag", "signed without the tag", two, rule="SIGNATURE",
                last={"signature": HOST.private.sign(untagged).hex()}),
        _stream("signature-frame", "the signature of the frame before", two, rule="SIGNATURE",
                last={"signature": first["signature"]}),
        _stream("offset-tokens", "a token is left out", two, rule="OFFSET",
                last={"token_offset": 3}),
        _stream("offset-bytes", "a byte is left out", two, rule="OFFSET", last={"byte_offset": 4}),
        _stream("offset-repeated", "the frame before again", two, rule="OFFSET",
                last={**first}),
        _stream("digest-token", "a token that the digest does not cover", two, rule="DIGEST",
                last={"token_ids": [10]}),
        _stream("digest-stream", "the digest of another token", two, rule="DIGEST",
                last={"digest": other}),
        _stream("progress-late", "progress behind the first token", [two[0], ([], b"")],
                rule="PROGRESS") | {"then": _frames([two[0], ([], b""), two[1]])[-1]},
        _stream("progress-late-token", "or behind a token without bytes", [([258], b""), ([], b"")],
                rule="PROGRESS") | {"then": _frames([([258], b""), ([], b""), two[1]])[-1]},
        _stream("progress-late-data", "or behind the first bytes", [([], b"He"), ([], b"")],
                rule="PROGRESS") | {"then": _frames([([], b"He"), ([], b""), two[1]])[-1]},
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    one: list[Given] = [([258, 4, 9], b"Hello")]
    three: list[Given] = [([258], b"H"), ([4], b""), ([9], b"ello")]
    wide: list[Given] = [([2**32 - 1, 0], "é".encode()), ([65_536], b"")]
    ramp: list[Given] = [(list(range(300)), b"x" * 300), ([300], b"y")]
    return {
        "file": "drafts",
        "spec": "spec/04-link §6",
        "comment": "The frames of one run, in order. The host signs the `pre_image` of each frame."
        " `rule` null: a receiver accepts all; else it drops the last, by that rule, and accepts"
        " `then`. The digest of"
        " the last frame is the GENERATION's `draft_digest`. `misread`: what a misreading would"
        " give for it.",
        "vectors": [
            _stream("one-frame", "three tokens at once", one),
            _stream("three-frames", "one by one: the same digest; held bytes come later", three),
            _stream("wide", "ids of 4 bytes, bytes that are no ASCII", wide),
            _stream("offsets", "offsets beyond one byte", ramp),
            _stream("progress", "a frame without tokens and data", [([], b"")]),
            _stream(
                "progress-twice",
                "several of them before the first token",
                [([], b""), ([], b""), ([258], b"H")],
            ),
            _stream(
                "data-alone",
                "bytes without a token, and a token without bytes",
                [([], b"He"), ([258], b""), ([], b"y")],
            ),
            *_refused(),
        ],
    }
