"""The turns a template has: system turns, alternation, and the role of results."""

from dataclasses import replace

import pytest

from model_host.rendering.template import Template
from model_host.rendering.turns import turn_rules_of
from tests.model_host.rendering.test_render import CHATML
from tests.model_host.templates import (
    ALTERNATING,
    GEMMA2,
    GEMMA3,
    LLAMA2,
    LLAMA31,
    MISTRAL,
    NEMO,
    QWEN,
)


@pytest.mark.parametrize("source", [CHATML, QWEN, LLAMA31, LLAMA2, GEMMA3])
def test_a_template_has_system_turns_if_a_conversation_may_begin_with_one(source: str):
    assert turn_rules_of(Template(source)).has_system


@pytest.mark.parametrize("source", [ALTERNATING, GEMMA2, MISTRAL])
def test_a_template_that_refuses_the_role_has_none(source: str):
    assert not turn_rules_of(Template(source)).has_system


def test_a_template_that_moves_a_system_message_to_the_last_question_has_none():
    template = Template(NEMO)
    assert template.literals(["system", "user"], header=True)
    assert not turn_rules_of(template).has_system


@pytest.mark.parametrize("source", [ALTERNATING, LLAMA2, GEMMA2, GEMMA3, MISTRAL, NEMO])
def test_turns_of_the_user_are_joined_where_turns_must_alternate(source: str):
    assert turn_rules_of(Template(source)).joins_user


@pytest.mark.parametrize("source", [CHATML, QWEN, LLAMA31])
def test_turns_of_the_user_stand_apart_elsewhere(source: str):
    assert not turn_rules_of(Template(source)).joins_user


def test_a_template_that_wants_a_system_turn_first_is_asked_behind_one():
    wants = "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}"
    known = replace(turn_rules_of(Template(QWEN)), default_system="")
    assert turn_rules_of(Template(wants + QWEN)) == known


def test_a_template_without_the_role_gets_results_in_turns_of_the_user():
    turns = turn_rules_of(Template(ALTERNATING))
    assert (turns.result_role, turns.marks_results) == ("user", True)


def test_results_are_marked_once_by_the_template_or_by_the_recipe():
    assert not turn_rules_of(Template(QWEN)).marks_results
    assert turn_rules_of(Template(CHATML)).marks_results
    assert turn_rules_of(Template(CHATML)).result_role == "tool"


@pytest.mark.parametrize(
    ("source", "text"),
    [(QWEN, "You are Qwen."), (CHATML, "Be kind"), (LLAMA31, ""), (LLAMA2, ""), (MISTRAL, "")],
)
def test_a_template_may_have_a_system_text_of_its_own(source: str, text: str):
    assert turn_rules_of(Template(source)).default_system == text


def test_what_a_template_writes_before_every_turn_is_no_system_text():
    before = "{{ 'Today.' }}" + LLAMA31
    assert turn_rules_of(Template(before)).default_system == ""
    alone = "{% if messages[0].role != 'system' %}Hello. {% endif %}" + LLAMA31
    assert turn_rules_of(Template(alone)).default_system == ""
