"""The commands new, send, fork and chat."""

import asyncio

import pytest

from replica.errors import HostError
from replica.log import Message, text_of
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.scripted_host import Asked, Token, words

TALKED = (("new",),)


def test_a_new_conversation_prints_its_id_and_nothing_else(me: Terminal) -> None:
    printed = me.ok("new", "--system", "Be brief.")
    assert len(printed.strip()) == 64
    assert int(printed, 16)


@pytest.mark.usefixtures("talked")
def test_a_message_is_answered_on_stdout_with_its_cost_on_stderr(me: Terminal) -> None:
    result = me.run("send", "hello there")
    assert result.stdout == "You said: hello there\n"
    assert result.stderr.startswith("4 tokens")
    assert "cached" not in result.stderr
    verbose = me.run("send", "and again", "-v")
    assert "cached" in verbose.stderr
    assert "cached" not in me.ok("log")
    assert "cached" in me.ok("log", "-v")


@pytest.mark.usefixtures("talked")
def test_a_message_can_come_from_stdin(me: Terminal) -> None:
    assert me.ok("send", "-", typed="from a pipe\n") == "You said: from a pipe\n"


@pytest.mark.usefixtures("talked")
def test_what_is_piped_in_is_the_message(me: Terminal) -> None:
    assert me.ok("send", typed="from a pipe\n") == "You said: from a pipe\n"
    assert me.refused("send", typed="\n") == "ARGUMENT_INVALID"  # as `echo $UNSET |` writes


def test_a_chat_in_a_fresh_folder_begins_a_conversation(me: Terminal) -> None:
    result = me.run("chat", typed="hello\n")
    assert result.stdout == "You said: hello\n"
    assert "a new conversation with Scripted" in result.stderr


@pytest.mark.usefixtures("talked")
def test_a_block_between_triple_quotes_is_one_message(me: Terminal) -> None:
    assert me.ok("chat", typed='"""\none\ntwo\n"""\n') == "You said: one\ntwo\n"
    assert [r["text"] for r in me.records("log") if r["kind"] == "message"] == ["one\ntwo"]


@pytest.mark.usefixtures("talked")
def test_an_answer_that_was_cut_off_goes_on(me: Terminal) -> None:
    first = me.run("send", "hello", "--max-tokens", "2")
    assert "cut off at its limit of 2 tokens · antiphon send --continue" in first.stderr
    record = me.record("send", "--continue")
    entries = {r["id"]: r for r in me.records("log")}
    cut_off = next(i for i, r in entries.items() if r.get("finish_reason") == "length")
    assert entries[record["request"]]["parents"] == [cut_off]
    assert me.record("status")["conversations"][0]["branches"] == 1
    assert me.refused("send", "--continue") == "NOTHING_TO_CONTINUE"


def test_json_carries_ids_text_and_usage(me: Terminal) -> None:
    conversation = me.record("new")["conversation"]
    record = me.record("send", "hello")
    assert record["conversation"] == conversation
    assert record["text"] == "You said: hello"
    assert record["finish_reason"] == "stop"
    usage = record["usage"]
    parts = usage["cached_tokens"] + usage["restored_tokens"] + usage["prefilled_tokens"]
    assert usage["prompt_tokens"] == parts
    assert record["synchronized"]
    assert record["unsynced"] == 0


@pytest.mark.usefixtures("talked")
def test_without_a_request_only_the_message_is_written(me: Terminal) -> None:
    me.ok("send", "a note", "--no-request")
    kinds = [record["kind"] for record in me.records("log")]
    assert "message" in kinds
    assert "request" not in kinds


@pytest.mark.usefixtures("talked")
def test_nothing_to_say_is_refused(me: Terminal) -> None:
    assert me.refused("send", "--no-request") == "ARGUMENT_INVALID"


def test_sampling_defaults_come_from_the_conversation_and_flags_change_them(me: Terminal) -> None:
    me.ok("new", "--temperature", "0.5", "--top-k", "7", "--seed", "11")
    me.ok("send", "one")
    me.ok("send", "two", "--temperature", "0", "--seed", "12")
    first, second = (r["sampling"] for r in me.records("log") if r["kind"] == "request")
    assert (first["temperature"], first["top_k"], first["seed"]) == (0.5, 7, 11)
    assert (second["temperature"], second["top_k"], second["seed"]) == (0.0, 7, 12)


@pytest.mark.usefixtures("talked")
def test_a_seed_is_minted_and_logged_where_none_is_given(me: Terminal) -> None:
    me.ok("send", "one")
    me.ok("send", "two")
    seeds = [r["sampling"]["seed"] for r in me.records("log") if r["kind"] == "request"]
    assert all(seeds)
    assert seeds[0] != seeds[1]


@pytest.mark.usefixtures("talked")
def test_asking_again_makes_a_branch_beside_the_first_answer(me: Terminal) -> None:
    first = me.record("send", "hello")
    again = me.record("send", "--at", first["message"][:12])
    assert again["message"] is None
    assert again["generation"] != first["generation"]
    assert me.record("status")["conversations"][0]["branches"] == 2


@pytest.mark.usefixtures("talked")
def test_a_fork_makes_the_next_message_follow_an_older_answer(me: Terminal) -> None:
    first = me.record("send", "one")
    me.ok("send", "two")
    me.ok("fork", "--at", first["generation"][:12])
    third = me.record("send", "three")
    fourth = me.record("send", "four")
    entries = {record["id"]: record for record in me.records("log")}
    assert entries[third["message"]]["parents"] == [first["generation"]]
    assert entries[fourth["message"]]["parents"] == [third["generation"]]
    shown = me.ok("log")
    assert "three" in shown
    assert "You said: two" not in shown


@pytest.mark.usefixtures("talked")
def test_newest_goes_back_to_the_branch_with_the_latest_activity(me: Terminal) -> None:
    first = me.record("send", "one")
    second = me.record("send", "two")
    me.ok("fork", "--at", first["generation"])
    me.ok("fork", "--newest")
    third = me.record("send", "three")
    entries = {record["id"]: record for record in me.records("log")}
    assert entries[third["message"]]["parents"] == [second["generation"]]


def test_a_refused_request_fails_with_the_hosts_own_reason(world: World, me: Terminal) -> None:
    class Tired(HostError):
        reason = "SCRIPT_TIRED"
        next_step = "Ask later."

    def refuse(asked: Asked) -> list[Token]:
        raise Tired("the script is tired")

    world.stop_host()
    world.start_host(refuse)
    me.ok("new")
    assert me.refused("send", "hello") == "SCRIPT_TIRED"
    assert "refused: SCRIPT_TIRED" in me.ok("log")


def test_after_a_refusal_the_conversation_goes_on(world: World, me: Terminal) -> None:
    class Tired(HostError):
        reason = "SCRIPT_TIRED"

    def refuse_once(asked: Asked) -> list[Token]:
        if asked.said == "hello":
            raise Tired("not this")
        return words("Better.")

    world.stop_host()
    world.start_host(refuse_once)
    me.ok("new")
    assert me.refused("send", "hello") == "SCRIPT_TIRED"
    assert me.ok("send", "well then") == "Better.\n"


def test_a_chat_says_how_to_go_on_behind_a_refusal(world: World, me: Terminal) -> None:
    class Full(HostError):
        reason = "CONTEXT_TOO_LONG"
        next_step = "Branch off earlier."

    contexts: list[list[str]] = []

    def refuse_long(asked: Asked) -> list[Token]:
        bodies = map(asked.held.log.body, asked.seal.entries)
        contexts.append([text_of(body.parts) for body in bodies if isinstance(body, Message)])
        if asked.said == "too long":
            raise Full("it has 9 tokens, and 8 fit")
        return words("Better.")

    world.stop_host()
    world.start_host(refuse_long)
    me.ok("new")
    me.ok("send", "hello")
    result = me.run("chat", typed="too long\n/undo\nshort\n")
    assert "CONTEXT_TOO_LONG" in result.stderr
    assert "next    /undo takes the message back, and /fork ENTRY then goes" in result.stderr
    me.ok("send", "shorter")
    assert contexts == [["hello"], ["too long"], ["short"], ["shorter"]]


def test_each_step_that_send_names_behind_a_refusal_works(world: World, me: Terminal) -> None:
    class Wrong(HostError):
        reason = "GRAMMAR_INVALID"

    contexts: list[list[str]] = []

    def refuse_regex(asked: Asked) -> list[Token]:
        bodies = map(asked.held.log.body, asked.seal.entries)
        contexts.append([text_of(body.parts) for body in bodies if isinstance(body, Message)])
        if asked.request.response_format is not None:
            raise Wrong("an expression does not end")
        return words("Better.")

    world.stop_host()
    world.start_host(refuse_regex)
    me.ok("new")
    result = me.run("send", "hello", "--regex", "(((")
    step = " ".join(result.stderr.partition("next ")[2].split())
    assert result.exit_code == 1
    assert step.startswith("`antiphon send` without TEXT asks once more, with other options;")
    assert "/undo in `antiphon chat` takes the message back" in step
    assert me.ok("send") == "Better.\n"
    me.run("send", "again", "--regex", "(((")
    me.ok("chat", typed="/undo\nother words\n")
    refused, *after = [one for one in contexts if one[-1:] != ["hello"]]
    assert (refused, after) == (["again"], [["other words"]])


def test_without_a_host_nothing_is_begun(world: World, me: Terminal) -> None:
    world.stop_host()
    assert me.refused("new") == "NO_HOST"


def test_a_host_can_be_named_where_none_is_linked(world: World, me: Terminal) -> None:
    world.stop_host()
    conversation = me.record("new", "--host", "ab" * 32)["conversation"]
    record = me.records("log", conversation)[1]
    assert record["grant"] == {"key": "ab" * 32, "role": "host"}


def test_a_key_that_is_none_is_refused(me: Terminal) -> None:
    assert me.refused("new", "--host", "abc") == "ARGUMENT_INVALID"
    assert me.refused("new", "--member", f"{'ab' * 32}:king") == "ARGUMENT_INVALID"


def test_a_host_is_named_by_its_first_digits(world: World, me: Terminal) -> None:
    key = world.hub_config.host_keys[0]
    created = me.record("new", "--host", key[:8])
    assert (created["host"], created["host_reason"]) == (key, "named")
    assert me.ok("send", "hello", "--host", key[:6]) == "You said: hello\n"
    assert me.refused("send", "hello", "--host", "0123456789") == "ARGUMENT_INVALID"


@pytest.mark.usefixtures("talked")
def test_a_message_to_an_absent_host_does_not_wait(world: World, me: Terminal) -> None:
    world.stop_host()
    result = me.run("send", "hello")
    assert result.exit_code == 0
    assert "not linked" in result.stderr
    assert len(result.stdout.strip()) == 64


@pytest.mark.usefixtures("talked")
def test_waiting_for_an_absent_host_ends_with_a_typed_error(world: World, me: Terminal) -> None:
    world.stop_host()
    assert me.refused("send", "hello", "--wait", "--timeout", "0.3") == "ANSWER_OVERDUE"


@pytest.mark.usefixtures("talked")
def test_typing_over_an_answer_under_way_says_where_it_goes(world: World, me: Terminal) -> None:
    world.stop_host()
    me.ok("send", "one")
    assert "goes after it" in me.run("send", "two").stderr
    assert "a branch without it" in me.run("send", "three", "--conflict", "fork").stderr


@pytest.mark.usefixtures("talked")
def test_queued_messages_are_answered_one_after_the_other(world: World, me: Terminal) -> None:
    world.stop_host()
    me.ok("send", "one")
    me.ok("send", "two")
    world.start_host()
    assert me.ok("send", "three") == "You said: three\n"
    assert me.record("status")["conversations"][0]["branches"] == 1


@pytest.mark.usefixtures("talked")
def test_a_chat_reads_lines_and_answers_each(me: Terminal) -> None:
    shown = me.ok("chat", typed="hello\nand again\n")
    assert shown == "You said: hello\nYou said: and again\n"


@pytest.mark.usefixtures("talked")
def test_a_chat_undoes_a_turn(me: Terminal) -> None:
    me.ok("chat", typed="one\ntwo\n/undo\nthree\nfour\n")
    log = me.ok("log")
    assert "two" not in log
    assert [words in log for words in ("one", "three", "four")] == [True] * 3
    assert me.record("status")["conversations"][0]["branches"] == 2


@pytest.mark.usefixtures("talked")
def test_a_chat_answers_again_and_shows_its_state(me: Terminal) -> None:
    result = me.run("chat", typed="one\n/again\n/status\n/log\n/fork\n/help\n/nonsense\n/quit\n")
    assert result.stdout.count("You said: one") == 3
    assert "2 branches" in result.stderr
    assert "there is no /nonsense" in result.stderr


@pytest.mark.usefixtures("talked")
def test_a_chat_reports_errors_and_continues(me: Terminal) -> None:
    result = me.run("chat", typed="/fork zzzz\nstill here\n")
    assert "ID_UNKNOWN" in result.stderr
    assert "You said: still here" in result.stdout


def test_an_answer_survives_the_loss_of_the_hub(world: World, me: Terminal) -> None:
    held_up, go_on = asyncio.Event(), asyncio.Event()

    async def hold_up(index: int) -> None:
        if index == 2:
            held_up.set()
            await go_on.wait()

    world.stop_host()
    world.start_host(pace=hold_up)
    me.ok("new")

    async def lose_the_hub() -> None:
        await held_up.wait()
        assert world.hub is not None
        await world.hub.stop()
        go_on.set()
        from syncd.io.server import start

        world.hub = await start(world.hub_config)

    losing = world.background.start(lose_the_hub())
    result = me.run("send", "hello there friend")
    losing.result()
    assert result.stdout == "You said: hello there friend\n"
    assert result.stderr.startswith("the hub is away; waiting for it\nthe hub is back\n")


@pytest.mark.usefixtures("talked")
def test_a_wait_without_the_hub_is_said_and_ends_when_the_answer_had_to_begin(
    world: World, me: Terminal
) -> None:
    world.stop_hub()
    result = me.run("send", "hello", "--wait", "--within", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("the hub is away; waiting for it\n")
    assert "no answer had begun 1 s after the time set for it" in result.stderr
    assert "ANSWER_OVERDUE" in result.stderr


@pytest.mark.usefixtures("talked")
def test_a_wait_that_ends_without_the_hub_names_the_hub(world: World, me: Terminal) -> None:
    world.stop_hub()
    result = me.run("send", "hello", "--wait", "--timeout", "0.3")
    assert "no news of the answer for 0.3 s; the hub is away [HUB_UNREACHABLE]" in result.stderr
    assert "next    Start the hub or check its address" in result.stderr


@pytest.mark.usefixtures("talked")
def test_a_wait_for_an_absent_host_ends_when_the_answer_had_to_begin(
    world: World, me: Terminal
) -> None:
    world.stop_host()
    assert me.refused("send", "hello", "--wait", "--within", "1") == "ANSWER_OVERDUE"


@pytest.mark.usefixtures("talked")
def test_send_without_a_text_asks_the_same_question_again(me: Terminal) -> None:
    me.ok("send", "first")
    me.ok("send", "hello")
    first, second = (record["generation"] for record in (me.record("send"), me.record("send")))
    assert first != second
    assert len(me.records("branches")) == 3
    answers = [r["text"] for r in me.records("log") if r["kind"] == "generation"]
    assert answers == ["You said: first", *3 * ["You said: hello"]]
    me.ok("send", "--no-request", "not answered yet")
    assert me.record("send")["text"] == "You said: not answered yet"
    assert len(me.records("branches")) == 3
