"""Words in the place of fragments, by hand."""

import numpy as np

from provlab.modeldiff import words


def test_a_token_is_named_by_its_word():
    pieces = ["(", ":", " an", "ti", "do", "te", "\n", "U", "ser", " :"]
    assert words.of_tokens(pieces) == ["(:", "(:", *["antidote"] * 4, "\\n", "User", "User", ":"]


def test_a_token_of_several_words_counts_for_the_longest():
    pieces = ["of the poison", " it's", "", "  "]
    assert words.of_tokens(pieces) == ["poison", "it's", "", "␣"]


def test_the_heaviest_words_are_those_of_all_rows():
    spelt, carried = [["a", "b", "c"], ["b", "a", "a"]], np.array([[1.0, 0.5], [3.0, 0.0]])
    assert words.heaviest(spelt, carried, 2) == ["a", "b"]  # the first of three is not judged
    assert words.heaviest(spelt, np.zeros((2, 2)), 2) == []


def test_typical_words_are_of_many_here_and_of_few_elsewhere():
    inside = ["How strong is Poison?", "a poison it is", "the poison of it"]
    assert words.typical(inside, ["the sea is wide", "the sky is not"], 2) == ["poison"]
    assert words.typical([], [], 2) == []


def test_signs_and_space_name_a_group_only_where_nothing_else_carries_it():
    spelt, carried = [["\\n", "User", "␣", ":", "\\n\\n"]], np.array([[5.0, 1.0, 4.0, 2.0, 3.0]])
    assert words.heaviest(spelt, carried, 4) == ["User"]
    carried[0, 1] = 0.0
    assert words.heaviest(spelt, carried, 2) == ["\\n", "␣"]
