"""The tree that errors.py draws is the tree that it defines."""

import inspect
import re

import pytest

from orchestrator import errors

LINE = re.compile(r"^ {4}((?:│   |    )*)(?:[├└]── )?(\w+)(?: \((\w+)\))?(?: +(\d+)(?=  |$))?(?: |$)")


def drawn():
    """Return name -> (parent, further base, exit code) as the docstring draws it."""
    tree, stack = {}, []
    for line in errors.__doc__.partition("::\n\n")[2].splitlines():
        match = LINE.match(line)
        if match is None or not match[2].endswith("Error"):
            continue
        depth = (len(match[1]) // 4 + 1) if "── " in line else 0
        del stack[depth:]
        parent = stack[-1] if stack else None
        inherited = tree[parent][2] if parent else 1
        tree[match[2]] = (parent, match[3], int(match[4]) if match[4] else inherited)
        stack.append(match[2])
    return tree


def classes():
    return {
        name: found
        for name, found in inspect.getmembers(errors, inspect.isclass)
        if found.__module__ == errors.__name__
    }


def test_the_drawing_names_every_class_and_no_other():
    assert set(drawn()) == set(classes())


@pytest.mark.parametrize("name", sorted(classes()))
def test_parent_and_exit_code_are_as_drawn(name):
    parent, further, code = drawn()[name]
    found = classes()[name]
    bases = [base.__name__ for base in found.__bases__]
    assert bases == [parent or "Exception", *([further] if further else [])]
    assert found.exit_code == code


@pytest.mark.parametrize("name", sorted(classes()))
def test_an_error_carries_message_and_next_step_apart(name):
    error = classes()[name]("what was wrong", next_step="what to do")
    assert (str(error), error.message, error.next_step) == ("what was wrong", "what was wrong", "what to do")


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_class_says_what_it_is_for(name):
    assert classes()[name].__doc__.strip().endswith(".")


def test_the_module_imports_nothing():
    """It is used in every container, where a leaf's start-up time counts."""
    source = inspect.getsource(errors)
    assert re.findall(r"^\s*(?:import|from) (\S+)", source.partition('"""\n\n')[2], re.MULTILINE) == ["__future__"]
