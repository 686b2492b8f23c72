"""level1.json, played against the code: the hub's bytes are those of the transcript."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.answers import answer
from antiphon.conformance.questions import cases_of, differences
from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica import refusals
from replica.ids import Digest, tagged_sha256
from replica.io.serving.status import status_of
from replica.limits import TICKET_LIFETIME_S
from replica.link.auth import Authenticator, prove
from replica.link.codec import draft_from_pb, entries_from_pb
from replica.link.messages import Hello, HostInfo, Ping, ProfileInfo
from replica.link.steps import finished
from replica.log.codec.entries import entry_from_pb, entry_to_pb
from replica.log.entry import public_key
from syncd.hub import Hub
from syncd.io.service import _outcome, _watch_response
from syncd.links import watch
from syncd.links.fan_out import HubEffects
from syncd.policy import Policy

FILE = Path(__file__).parents[2] / "spec" / "vectors" / "level1.json"
STEPS: dict[str, dict[str, Any]] = {v["name"]: v for v in json.loads(FILE.read_text())["vectors"]}


def of(kind: str) -> list[Any]:
    return [pytest.param(v, id=name) for name, v in STEPS.items() if v["of"] == kind]


def raw(name: str, field: str) -> bytes:
    return bytes.fromhex(STEPS[name][field])


def key(data: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(data))


@pytest.mark.parametrize("vector", of("entry"))
def test_an_entry_is_what_the_transcript_says(vector: dict[str, Any]) -> None:
    cases = list(cases_of("entry", {"vectors": [vector]}))
    assert cases
    for case in cases:
        assert differences(case, answer(case.question)) == []


def test_both_steps_of_the_proof_have_the_bytes_of_the_transcript() -> None:
    step = STEPS["authenticate"]
    now_ms = int(step["expire_time_ms"]) - TICKET_LIFETIME_S * 1000
    hub = Authenticator(key(step["hub_private_key"]), bytes.fromhex(step["hub_secret"]))
    ada = key(step["private_key"])
    nonce = bytes.fromhex(step["client_nonce"])
    challenge = hub.challenge(public_key(ada), nonce, now_ms)
    assert challenge.server_nonce.hex() == step["hub_nonce"]
    assert challenge.signature.hex() == step["hub_signature"]
    proof = prove(ada, nonce, challenge, expected_server=hub.public, now_ms=now_ms)
    assert proof.hex() == step["client_signature"]
    requests = [pb.AuthenticateRequest.FromString(bytes.fromhex(r)) for r in step["requests"]]
    assert [r.SerializeToString().hex() for r in requests] == step["requests"]
    ticket = hub.admit(public_key(ada), nonce, challenge.expire_time_ms, proof, now_ms)
    assert ticket.hex() == step["ticket"]
    first, second = (
        pb.AuthenticateResponse.FromString(bytes.fromhex(r)) for r in step["responses"]
    )
    assert first.challenge == requests[1].challenge
    assert (first.challenge.hub_key, second.ticket) == (hub.public, ticket)


class Play:
    """The hub of the transcript, with its host linked, and what it wrote to the watcher."""

    def __init__(self) -> None:
        step = STEPS["authenticate"]
        self.ada, self.hal = (
            public_key(key(step["private_key"])),
            public_key(key(STEPS["seal"]["private_key"])),
        )
        policy = Policy(host_keys=frozenset({self.hal}))
        self.hub = Hub(public_key(key(step["hub_private_key"])), policy)
        profile = Digest(
            pb.HostsResponse.FromString(raw("hosts", "response")).hosts[0].info.profiles[0].digest
        )
        info = HostInfo(self.hal, "", (ProfileInfo(profile, "Scripted", 8192),))
        self.host = self.hub.connect(self.hal, 0.0)
        self.hub.receive(self.host, Hello((1,), host=info), 0.0)
        self.watcher = self.hub.connect(self.ada, 0.0, watches=True)
        self.written: list[str] = []

    def perform(self, effects: HubEffects) -> None:
        frames = [frame.message for to, frame in effects.send if to == self.watcher]
        news = [item for to, item in (*effects.answered, *effects.hints) if to == self.watcher]
        found = [_watch_response(item) for item in (*frames, *news)]
        self.written += [data.hex() for data in found if data is not None]

    def push(self, name: str) -> None:
        """Push as the transcript does, and compare the response."""
        request = pb.PushRequest.FromString(raw(name, "request"))
        assert request.SerializeToString() == raw(name, "request")
        message = entries_from_pb(request)
        effects, outcomes = self.hub.begin_push(self.ada).whole(message, 0.0)
        held = self.hub.shelf[message.conversation]
        found = [_outcome(i, fault, held, lambda: {self.hal}) for i, fault in outcomes.items()]
        assert pb.PushResponse(outcomes=found).SerializeToString() == raw(name, "response")
        self.perform(effects)

    def append(self, name: str) -> None:
        """Let the host append an entry of the transcript."""
        entry = entry_from_pb(
            log_pb2.Entry(
                header=raw(name, "header"), signature=raw(name, "signature"), body=raw(name, "body")
            )
        )
        message = entries_from_pb(pb.Entries(entries=[entry_to_pb(entry)]))
        self.perform(self.hub.receive(self.host, message, 0.0))

    def draft(self, number: int) -> None:
        """Let the host stream a frame of the transcript."""
        given = bytes.fromhex(STEPS["watch"]["responses"][number]["bytes"])
        draft = draft_from_pb(pb.WatchResponse.FromString(given).draft)
        self.perform(self.hub.receive(self.host, draft, 0.0))


def test_a_hub_writes_the_bytes_of_the_transcript() -> None:
    play = Play()
    play.push("push")
    request = pb.WatchRequest.FromString(raw("watch", "request"))
    assert (list(request.cursor), request.drafts) == ([], True)
    opening = finished(watch.opening_steps(request.conversation, (), drafts=request.drafts))
    for message in (watch.GREETING, opening):
        play.perform(play.hub.receive(play.watcher, message, 0.0))
    play.append("seal")
    play.draft(4)
    play.draft(5)
    play.append("generation")
    play.push("push-2")
    play.perform(play.hub.receive(play.watcher, watch.HEARTBEAT, 0.0))
    assert play.written == [one["bytes"] for one in STEPS["watch"]["responses"]]


def test_hosts_names_the_vouched_host_of_the_transcript() -> None:
    play = Play()
    found = play.hub.connected.hosts(play.hub.policy.vouches_for)
    (stated,) = pb.HostsResponse.FromString(raw("hosts", "response")).hosts
    assert [(host.key, host.vouched) for host in found] == [(stated.info.key, stated.vouched)]
    assert pb.HostsRequest().SerializeToString() == raw("hosts", "request")
    assert isinstance(watch.HEARTBEAT, Ping)


def test_a_retry_id_yields_salt_and_epoch() -> None:
    given = raw("retry", "author") + raw("retry", "retry_id")
    assert tagged_sha256(b"antiphon/v1/salt", given)[:16] == raw("retry", "salt")
    epoch = int.from_bytes(tagged_sha256(b"antiphon/v1/epoch", given)[:8], "little")
    assert str(epoch) == STEPS["retry"]["epoch"]


@pytest.mark.parametrize("vector", of("trailer"))
def test_a_trailer_has_the_bytes_of_the_vector(vector: dict[str, Any]) -> None:
    kinds = (refusals.Unauthenticated, refusals.RateLimited, refusals.ConversationUnknown)
    kind = next(one for one in kinds if one.reason == vector["reason"])
    wait_ms = vector["retry_after_ms"]
    error = kind(vector["detail"], retry_after_s=None if wait_ms is None else wait_ms / 1000)
    error.__dict__["next_step"] = vector["next_step"]  # the texts are not part of the protocol
    assert status_of(error).SerializeToString().hex() == vector["bytes"]
    assert status_of(error).code == vector["code"]
