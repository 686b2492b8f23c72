"""Several profiles in one host: chosen by the request, loaded on demand, unloaded when idle."""

import asyncio
import gc
import re
import shutil
import threading
import weakref
from pathlib import Path

import pytest
import structlog.testing

from model_host.engine import open_model
from model_host.errors import ProfileTooLarge
from model_host.io.config import HostConfig
from model_host.io.fetch import ModelUnknown
from model_host.io.server import start
from model_host.profiles import kv_bytes_min
from replica.ids import Digest, short
from replica.io.calls.host_calls import HostCalls
from replica.log.body import FinishReason, Sampling
from replica.refusals import ArgumentInvalid
from tests.model_host.io.two_profiles import KV_BYTES, change_weights, two_profiles, write_model
from tests.support.talk import Talk

pytestmark = pytest.mark.usefixtures("own_cache")

ONE = KV_BYTES + 4 * 1024 * 1024
"""Memory for one tiny model, and not for two."""


async def test_a_request_is_answered_by_the_profile_it_names(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        talk, seals = two.talk, []
        assert two.loaded == ["first"]
        for wanted in (None, two.second.profile.digest, two.first.profile.digest):
            request, answer = await talk.ask("hello", tokens=2, profile=wanted)
            assert len(answer.token_ids) == 2
            seals.append(talk.held.order.nodes[talk.held.order.seal_of[request]].seal)
        first, second = two.first.profile.digest, two.second.profile.digest
        assert [seal.profile for seal in seals] == [first, second, first]
        assert two.loaded == ["first", "second"]


async def test_all_profiles_are_described_before_any_but_the_first_is_loaded(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        async with HostCalls(two.host.address, two.replica.key, two.host.key) as calls:
            described = (await calls.describe()).profiles
        welcomed = two.replica.hub.hosts[0].info.profiles
        offered = [two.first.profile.digest, two.second.profile.digest]
        assert [profile.info.digest for profile in described] == offered
        assert [profile.digest for profile in welcomed] == offered
        assert [profile.loaded for profile in described] == [True, False]
        assert [bool(profile.numerics_class) for profile in described] == [True, False]


async def test_an_unknown_profile_is_refused_with_the_list_of_profiles(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        unknown = Digest(b"?" * 32)
        _, answer = await two.talk.ask("hello", tokens=2, profile=unknown)
        assert answer.finish_reason == FinishReason.REFUSED
        assert answer.finish_detail.startswith("PROFILE_UNKNOWN: ")
        for offer in (two.first, two.second):
            assert f"{offer.profile.name} {short(offer.profile.digest)}" in answer.finish_detail


async def test_an_idle_profile_makes_room_for_another(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        engine = weakref.ref(two.host.thread.engine.memory)
        await two.talk.ask("hello", tokens=2)
        _, answer = await two.talk.ask("hello", tokens=2, profile=two.second.profile.digest)
        assert len(answer.token_ids) == 2
        assert two.loaded == ["second"]
        gc.collect()
        assert engine() is None
        _, answer = await two.talk.ask("hello", tokens=2)
        assert len(answer.token_ids) == 2
        assert two.loaded == ["first"]
        # What happened before a profile was unloaded is still counted.
        while two.host.profiles.counts.writes.written < 3:
            await two.host.profiles.manifests(two.talk.id)


async def test_the_log_tells_the_profiles_of_one_model_apart(tmp_path: Path):
    model = write_model(tmp_path / "one")
    config = HostConfig(
        data_dir=tmp_path / "host",
        hub="127.0.0.1:9",
        model=(f"{model}@bf16", f"{model}@fp32"),
        kv_bytes_max=KV_BYTES,
        memory_bytes_max=ONE,
    )
    with structlog.testing.capture_logs() as lines:
        async with start(config) as host:
            first, second = host.profiles.offers.all
            for offer in (second, first):
                async with host.profiles.using(offer):
                    pass
    told = [(each["event"], each["model"]) for each in lines if "loading profile" in each["event"]]
    assert told == [
        ("unloading profile", "one@bf16"),
        ("loading profile", "one@fp32"),
        ("unloading profile", "one@fp32"),
        ("loading profile", "one@bf16"),
    ]


async def test_a_profile_with_running_work_is_waited_for(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        profiles, order = two.host.profiles, list[str]()

        async def use(name: str) -> None:
            offer = {"first": two.first, "second": two.second}[name]
            async with profiles.using(offer):
                order.append(name)

        async with profiles.using(two.first):
            waiting = asyncio.create_task(use("second"))
            while profiles._residency._wanted is None:  # noqa: ASYNC110  # no event says so
                await asyncio.sleep(0)
            behind = asyncio.create_task(use("first"))
            await asyncio.sleep(0)
            assert (order, two.loaded) == ([], ["first"])
        await asyncio.gather(waiting, behind)
        # The one that came later did not keep the first profile loaded.
        assert order == ["second", "first"]


async def test_a_wait_for_room_that_is_cancelled_holds_nobody_up(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        profiles = two.host.profiles
        async with profiles.using(two.first):

            async def use() -> None:
                async with profiles.using(two.second):
                    raise AssertionError

            waiting = asyncio.create_task(use())
            while profiles._residency._wanted is None:  # noqa: ASYNC110  # no event says so
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with profiles.using(two.first):
                pass


async def test_a_load_whose_caller_has_gone_is_shared_by_the_next_one(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        profiles, load_engine = two.host.profiles, two.host.profiles._load_engine
        begun, free, loads = asyncio.Event(), threading.Event(), list[str]()
        loop = asyncio.get_running_loop()

        def load(offer, model):
            loads.append(offer.profile.name)
            loop.call_soon_threadsafe(begun.set)
            assert free.wait(30)
            return load_engine(offer, model)

        profiles._load_engine = load

        async def use(offer):
            async with profiles.using(offer):
                pass

        async def come_and_go(offer):
            using = asyncio.create_task(use(offer))
            await asyncio.wait([using], timeout=0)
            await begun.wait()
            using.cancel()
            await asyncio.wait([using])

        for offer in (two.second, two.second, two.first):
            await come_and_go(offer)
        assert loads == ["second"]
        staying = [asyncio.create_task(use(two.second)) for _ in range(2)]
        free.set()
        await asyncio.gather(*staying)
        assert (loads, two.loaded) == (["second"], ["second"])


async def test_a_load_that_fails_without_its_caller_is_tried_again(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        profiles, load_engine = two.host.profiles, two.host.profiles._load_engine
        begun, free = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def fail(*_):
            loop.call_soon_threadsafe(begun.set)
            assert free.wait(30)
            raise MemoryError

        profiles._load_engine = fail

        async def use():
            async with profiles.using(two.second):
                pass

        first = asyncio.create_task(use())
        await begun.wait()
        first.cancel()
        await asyncio.wait([first])
        second = asyncio.create_task(use())
        await asyncio.wait([second], timeout=0)
        profiles._load_engine = load_engine
        free.set()
        await second
        assert two.loaded == ["second"]


async def test_a_profile_that_can_not_be_loaded_refuses_its_own_requests_alone(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        change_weights(tmp_path / "second", 2.0)
        request, answer = await two.talk.ask("hello", tokens=2, profile=two.second.profile.digest)
        assert answer.finish_reason == FinishReason.REFUSED
        other = "PROFILE_UNAVAILABLE: second: its model is another file than at the start"
        assert answer.finish_detail.startswith(other)
        assert request not in two.talk.held.order.seal_of
        (tmp_path / "second" / "model.safetensors").unlink()
        with structlog.testing.capture_logs() as lines:
            _, gone = await two.talk.ask("hello", tokens=2, profile=two.second.profile.digest)
        assert gone.finish_detail.startswith("PROFILE_UNAVAILABLE: second: MODEL_FILE_MISSING. ")
        assert str(tmp_path) not in answer.finish_detail + gone.finish_detail
        (told,) = (line for line in lines if line["event"] == "profile not loaded")
        assert str(tmp_path / "second") in told["detail"]
        _, answer = await two.talk.ask("hello", tokens=2)
        assert len(answer.token_ids) == 2


async def test_no_profile_makes_room_for_one_whose_model_is_gone(tmp_path: Path):
    async with two_profiles(tmp_path, memory_bytes_max=ONE) as two:
        await two.talk.ask("hello", tokens=2)
        (tmp_path / "second" / "model.safetensors").unlink()
        _, gone = await two.talk.ask("hello", tokens=2, profile=two.second.profile.digest)
        assert gone.finish_detail.startswith("PROFILE_UNAVAILABLE: second: MODEL_FILE_MISSING. ")
        assert two.loaded == ["first"]


async def test_a_context_that_does_not_fit_is_refused_with_both_numbers(tmp_path: Path):
    bytes_per_token = 2 * 2 * 2 * 16 * 4
    async with two_profiles(tmp_path, kv_bytes_max=(512 + 128) * bytes_per_token) as two:
        assert two.first.info.context_tokens_max == 128
        assert two.replica.hub.hosts[0].info.profiles[0].context_tokens_max == 128
        _, answer = await two.talk.ask("x" * 300, tokens=2, profile=two.second.profile.digest)
        assert answer.finish_detail.startswith("CONTEXT_TOO_LONG: the context has ")
        assert answer.finish_detail.split(" the model holds ")[1].startswith("128")
        # Nothing was loaded for it.
        assert two.loaded == ["first"]
        talk = await Talk.begin(two.replica, two.host.key)
        _, answer = await talk.ask("hi", tokens=2)
        assert len(answer.token_ids) == 2


def config_of(folder: Path, *models: str, **bounds: int) -> HostConfig:
    """Return the settings of a host of these models in fp32, which is not linked."""
    host, numerics = folder / "host", "fp32"
    return HostConfig(data_dir=host, hub="127.0.0.1:1", model=models, numerics=numerics, **bounds)


@pytest.mark.parametrize("memory", [0, 1_000, KV_BYTES])
async def test_a_default_larger_than_the_memory_stops_the_start_and_is_told_what_is_enough(
    tmp_path: Path, memory: int
):
    config = config_of(
        tmp_path,
        str(write_model(tmp_path / "first")),
        kv_bytes_max=KV_BYTES,
        memory_bytes_max=memory,
    )
    says = f"first needs .* memory_bytes_max is {memory:,}$"
    with pytest.raises(ProfileTooLarge, match=says) as refused:
        async with start(config):
            pass
    needed = re.search(r"needs ([\d,]+) bytes", refused.value.detail)
    assert needed is not None
    enough = int(needed[1].replace(",", ""))
    async with start(config.model_copy(update={"memory_bytes_max": enough})) as host:
        assert host.profiles.loaded(host.profiles.offers.default) is not None


async def test_a_default_larger_than_the_memory_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path / "cache"))
    config = config_of(
        tmp_path,
        str(write_model(tmp_path / "first")),
        kv_bytes_max=KV_BYTES,
        memory_bytes_max=KV_BYTES,
    )
    with pytest.raises(ProfileTooLarge):
        async with start(config):
            pass
    assert not (tmp_path / "cache").exists()  # no weights were converted


async def test_a_missing_model_is_refused_before_another_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path / "cache"))
    config = config_of(
        tmp_path,
        str(write_model(tmp_path / "first")),
        str(tmp_path / "gone"),
        kv_bytes_max=KV_BYTES,
    )
    with pytest.raises(ModelUnknown, match="gone"):
        async with start(config):
            pass
    assert not (tmp_path / "cache").exists()  # no weights were converted


async def test_keys_and_values_without_room_for_a_context_stop_the_start_and_name_what_is_enough(
    tmp_path: Path,
):
    file = open_model(write_model(tmp_path / "first"))
    enough = kv_bytes_min(file.config, "fp32")
    config = config_of(tmp_path, str(file.path), kv_bytes_max=1_000)
    said = f"kv_bytes_max: 1,000 bytes hold no context of first, which needs {enough:,}"
    with pytest.raises(ArgumentInvalid, match=f"^{said}$"):
        async with start(config):
            pass
    async with start(config.model_copy(update={"kv_bytes_max": enough})) as host:
        assert host.profiles.offers.default.profile.context_tokens_max == 64


async def test_a_model_given_twice_stops_the_start(tmp_path: Path):
    model = str(write_model(tmp_path / "first"))
    config = config_of(tmp_path, model, f"{model}@fp32")
    with pytest.raises(ArgumentInvalid, match="twice") as caught:
        async with start(config):
            pass
    assert caught.value.detail.count(f"{model}@fp32") == 2
    assert "--model" in caught.value.next_step


async def test_copies_of_one_model_that_stop_the_start_are_named(tmp_path: Path):
    one = write_model(tmp_path / "model")
    other = shutil.copytree(one, tmp_path / "copy" / "model")
    config = config_of(tmp_path, str(one), str(other))
    with pytest.raises(ArgumentInvalid, match="twice") as caught:
        async with start(config):
            pass
    assert f"{one}@fp32 and {other}@fp32" in caught.value.detail


def test_models_are_one_or_several_each_with_its_numerics(monkeypatch: pytest.MonkeyPatch):
    assert HostConfig(model="a").models == (("a", "auto"),)
    several = HostConfig(model=["a@q4", "b@1", "c"], numerics="fp32").models
    assert several == (("a", "q4"), ("b@1", "fp32"), ("c", "fp32"))
    monkeypatch.setenv("ANTIPHON_HOST_MODEL", '["a", "b@bf16"]')
    assert HostConfig().models == (("a", "auto"), ("b", "bf16"))
    monkeypatch.setenv("ANTIPHON_HOST_MODEL", "/models/a.gguf")
    assert HostConfig().models == (("/models/a.gguf", "auto"),)


async def test_the_recommended_sampling_reaches_clients(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        assert two.replica.hub.hosts[0].info.profiles[0].sampling is None
    write_model(tmp_path / "advised")
    (tmp_path / "advised" / "generation_config.json").write_text(
        '{"temperature": 0.6, "top_k": 20}'
    )
    config = config_of(tmp_path, str(tmp_path / "advised"))
    async with start(config) as host:
        assert host.offer.info.sampling == Sampling(temperature=0.6, top_k=20)
