"""Runs and merges read off the names of segments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.keyed.layout import Merge, Run, blocks_of, free_number, piece_name
from holdfast.state.keyed.segment import Segment


def segment(name: str) -> Segment:
    return Segment(name, f"/nowhere/{name}.arrow", 10, 100, 7)


def segments(*names: str) -> list[Segment]:
    return [segment(name) for name in names]


def test_plain_segments_are_runs_of_their_own() -> None:
    assert blocks_of([]) == []
    one, two = segments("s1-delta", "s2-delta")
    assert blocks_of([one, two]) == [Run((one,)), Run((two,))]


def test_pieces_of_a_finished_merge_are_one_run() -> None:
    pieces = segments(piece_name("s7", 3, 4), piece_name("s8", 3, 1), piece_name("s9", 3, 0))
    delta = segment("s9-delta")
    assert blocks_of([*pieces, delta]) == [Run(tuple(pieces)), Run((delta,))]
    assert Run(tuple(pieces)).rows == 30


def test_the_newest_piece_says_which_segments_are_still_inputs() -> None:
    base, old = segments("base", "s1-delta")
    inputs = segments(piece_name("s4", 0, 0), piece_name("s5", 0, 0), "s6-delta")
    pieces = segments(piece_name("s7", 1, 9), piece_name("s8", 1, 3))
    new = segment("s9-delta")
    merge = Merge(1, (Run(tuple(inputs[:2])), Run((inputs[2],))), Run(tuple(pieces)))
    assert blocks_of([base, old, *inputs, *pieces, new]) == [Run((base,)), Run((old,)), merge, Run((new,))]
    assert merge.segments == (*inputs, *pieces)


def test_two_merges_may_be_under_way() -> None:
    listed = segments("a", "b", piece_name("s1", 0, 2), "c", "d", piece_name("s2", 1, 2), "e")
    kinds = [type(block) for block in blocks_of(listed)]
    assert kinds == [Merge, Merge, Run]


def test_names_that_cannot_be_true_are_runs() -> None:
    too_many = segments("a", piece_name("s1", 0, 2))
    assert [type(block) for block in blocks_of(too_many)] == [Run, Run]
    into_another = segments("a", "b", piece_name("s1", 0, 2), "c", piece_name("s2", 1, 3))
    assert [type(block) for block in blocks_of(into_another)] == [Merge, Run, Run]


@given(
    st.lists(
        st.sampled_from(["x-delta", "y-merge0-left0", "y-merge0-left2", "z-merge1-left1", "z-merge1-left5"])
    )
)
def test_the_blocks_are_the_list(names: list[str]) -> None:
    listed = segments(*names)
    assert [segment for block in blocks_of(listed) for segment in block.segments] == listed
    assert piece_name("p", free_number(listed), 0) not in {name.replace("y", "p") for name in names}


def test_a_new_merge_gets_a_number_of_its_own() -> None:
    assert free_number([]) == 0
    assert free_number(segments("a-delta", piece_name("s1", 4, 0), piece_name("s2", 2, 1))) == 5
