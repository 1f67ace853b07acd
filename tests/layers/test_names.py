"""A class name has one meaning in all of `src`."""

import names


def test_every_class_has_a_name_of_its_own(capsys):
    assert names.main() == 0, capsys.readouterr().out


def test_a_name_that_two_modules_define_is_seen(tmp_path):
    for module, text in {
        "a": "class Plan: ...",
        "b": "if True:\n    class _Plan: ...",
        "c": "class Other: ...",
    }.items():
        (tmp_path / f"{module}.py").write_text(text)
    (line,) = names.faults(tmp_path, {})
    assert line == "class Plan is defined twice, a:1 and b:2; give each meaning a name of its own"
    assert names.faults(tmp_path, {"Plan": "a reason"}) == []


def test_a_reason_that_nothing_needs_any_more_is_seen(tmp_path):
    (tmp_path / "a.py").write_text("class Plan: ...")
    assert names.faults(tmp_path, {"Plan": "a reason"}) == ["class Plan is not defined twice; take it out of ALLOWED"]
