"""Passes: every token of the tree once, every answer's logits once, in blocks."""

from random import Random

from model_host.engine_api import CHUNK_TOKENS
from model_host.replay.passes import Pass, Span, Wanted, logits_max, passes_of


def random_spans(walk: Random) -> list[Span]:
    """Contexts that grow and fork, as those of a conversation do."""
    contexts: list[tuple[int, ...]] = [()]
    spans = []
    for _ in range(walk.randrange(1, 12)):
        base = walk.choice(contexts)
        base = base[: walk.randrange(len(base) + 1)] if walk.random() < 0.4 else base
        prompt = (*base, *walk.choices(range(2), k=walk.randrange(1, 6)))
        answer = tuple(walk.choices(range(2), k=walk.randrange(0, 5)))
        contexts.append((*prompt, *answer))
        spans.append(Span((*prompt, *answer), len(prompt) - walk.randrange(2)))
    return spans


def test_each_prefix_is_computed_once_and_each_row_wanted_once():
    walk = Random(3)
    for _ in range(300):
        spans = random_spans(walk)
        computed: dict[tuple[int, ...], list[Wanted]] = {}
        for one in passes_of(spans):
            assert one.start == 0 or one.ids[: one.start] in computed
            for row in range(one.start, len(one.ids)):
                assert one.ids[: row + 1] not in computed
                computed[one.ids[: row + 1]] = one.wanted.get(row, [])
            assert all(row >= one.start for row in one.wanted)
        assert computed.keys() == {s.ids[: n + 1] for s in spans for n in range(len(s.ids))}
        for number, span in enumerate(spans):
            for row in range(span.first, len(span.ids)):
                uses = computed[span.ids[: row + 1]]
                assert uses.count(Wanted(number, row - span.first)) == 1


def test_the_rows_of_an_answer_come_in_order_over_all_passes():
    walk = Random(4)
    for _ in range(200):
        spans, seen = random_spans(walk), dict[int, int]()
        for one in passes_of(spans):
            for row in range(one.start, len(one.ids)):
                for use in one.wanted.get(row, ()):
                    assert use.index == seen.get(use.span, 0)
                    seen[use.span] = use.index + 1
        rows = {n: len(s.ids) - s.first for n, s in enumerate(spans)}
        assert seen == {n: count for n, count in rows.items() if count}


def test_each_span_ends_in_one_pass():
    walk = Random(5)
    for _ in range(200):
        spans = random_spans(walk)
        made = passes_of(spans)
        assert sorted(n for one in made for n in one.spans) == [*range(len(spans))]
        for one in made:
            assert all(spans[n].ids == one.ids[: len(spans[n].ids)] for n in one.spans)


def wanting(length: int, *ranges: range) -> Pass:
    return Pass(tuple(range(length)), 0, {row: [Wanted(0, 0)] for rows in ranges for row in rows})


def test_a_chunk_has_the_logits_of_the_rows_wanted_and_of_no_others():
    one = wanting(2000, range(99, 150), range(400, 420), range(1000, 1600))
    assert one.chunk(0, 512, 1000) == (512, [*range(99, 150), *range(400, 420)])
    assert one.chunk(512, 300, 1000) == (812, [])
    assert one.chunk(812, 512, 1000) == (1324, [*range(1000, 1324)])
    assert one.chunk(1600, 512, 1000) == (2000, [])


def test_a_chunk_is_bounded_in_rows_and_in_logits():
    one = wanting(4000, range(4000))
    assert one.chunk(0, 16, 1000) == (16, [*range(16)])
    assert one.chunk(0, 9999, 9999) == (CHUNK_TOKENS, [*range(CHUNK_TOKENS)])
    assert one.chunk(5, 512, 100) == (105, [*range(5, 105)])
    apart = wanting(600, range(10, 20), range(300, 310))
    assert apart.chunk(0, 512, 10) == (300, [*range(10, 20)])
    assert apart.chunk(300, 512, 10) == (600, [*range(300, 310)])
    assert logits_max(49_152) > CHUNK_TOKENS
    assert logits_max(10**9) == 1
