"""`school clean` takes images in whatever order they depend on each other, and leaves what is in use."""

from orchestrator.engine.base import Container, Image, State
from orchestrator.errors import EngineError
from orchestrator.principal.take_down import _remove_images


class Images:
    """An engine that refuses to remove an image that another is built on."""

    def __init__(self, parents, used=()):
        self.parents, self.used = dict(parents), used
        self.removed = []

    def list(self, _labels):
        return [Container(id=n, name=n, state=State.EXITED, labels={}, image=n) for n in self.used]

    def images(self, _labels):
        return [Image(id=name, tags=(name,), labels={}) for name in self.parents]

    def remove_image(self, name):
        if name in self.parents.values():
            raise EngineError(f"{name} has dependent child images")
        del self.parents[name]
        self.removed.append(name)


def test_children_go_before_what_they_were_built_on():
    engine = Images({"base": None, "tools": "base", "student": "tools"})
    assert list(_remove_images(engine)) == engine.removed == ["student", "tools", "base"]


def test_what_a_container_uses_stays_and_so_does_what_it_was_built_on():
    engine = Images({"base": None, "service": "base", "student": "base"}, used=("service",))
    assert list(_remove_images(engine)) == ["student"]
