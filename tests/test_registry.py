"""The registry, with distributions made up on disk: metadata and modules, as pip would leave them."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from slotbench import registry
from slotbench.registry import RegistryError

CORE = '''
from slotbench.interfaces import TemporalCore

class {name}(TemporalCore):
    """{summary}"""

    def forward(self, tokens, state=None):
        return None
'''


class Site:
    """A directory on the path in which distributions can be installed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(self, distribution: str, module: str, source: str, **entries: str) -> None:
        """Installs a distribution of one module; `entries` are KIND="NAME = TARGET"."""
        info = self.path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        groups = "".join(f"[slotbench.{kind}]\n{lines}\n" for kind, lines in entries.items())
        (info / "entry_points.txt").write_text(groups)
        file = self.path.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)


@pytest.fixture
def site(tmp_path, monkeypatch):
    modules = set(sys.modules)
    for table in ("_registered", "_loaded", "_failures"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    monkeypatch.syspath_prepend(tmp_path)
    registry._declared.cache_clear()
    yield Site(tmp_path)
    registry._declared.cache_clear()
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_components_of_an_installed_distribution_are_listed_and_loaded_by_name(site):
    site.install("acme-cores", "acme", CORE.format(name="Acme", summary="Made by Acme."), cores="Acme = acme:Acme")

    assert "Acme" in registry.names("cores")
    assert "acme" not in sys.modules, "listing must not import"
    assert registry.load("cores", "Acme").__name__ == "Acme"
    (entry,) = [entry for entry in registry.entries("cores") if entry.name == "Acme"]
    assert (entry.distribution, entry.target, entry.state) == ("acme-cores", "acme:Acme", "loaded")


def test_summary_is_the_first_sentence_and_needs_no_import_of_the_package(site):
    bomb = "raise RuntimeError('imported')\n"
    site.install(
        "acme",
        "acme.inner.core",
        CORE.format(name="Acme", summary="Averages, e.g. over time. Then more."),
        cores="Acme = acme.inner.core:Acme",
    )
    (site.path / "acme" / "__init__.py").write_text(bomb)

    (entry,) = [entry for entry in registry.entries("cores") if entry.name == "Acme"]
    assert entry.summary == "Averages, e.g. over time."
    assert entry.state == "available"


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One. Two.", "One."),
        ("Wrapped\n    over lines.\n\nMore.", "Wrapped over lines."),
        ("Version 2.5 of it. More.", "Version 2.5 of it."),
        ("No full stop\n\nMore.", "No full stop"),
        ("", ""),
    ],
)
def test_first_sentence(docstring, sentence):
    from slotbench.sources import first_sentence

    assert first_sentence(docstring) == sentence


def test_unknown_name_suggests_the_nearest_and_lists_the_rest(site):
    site.install("acme", "acme", "", cores="RIM = acme:RIM\nSlotRNN = acme:SlotRNN")
    with pytest.raises(RegistryError, match=r"no core named RIMM; did you mean RIM\? available: .*SlotRNN"):
        registry.load("cores", "RIMM")


def test_name_of_another_kind_is_said_to_be_one(site):
    site.install("acme", "acme", "", encoders="Eye = acme:Eye")
    with pytest.raises(RegistryError, match="Eye is the name of an encoder"):
        registry.load("cores", "Eye")


@pytest.mark.parametrize("call", [registry.names, registry.entries, lambda kind: registry.load(kind, "X")])
def test_unknown_kind_is_an_error_that_lists_the_kinds(call):
    with pytest.raises(RegistryError, match=r"no kind of component named core; did you mean cores\? kinds: encoders, "):
        call("core")


def test_failed_import_is_held_listed_and_raised_with_its_own_traceback(site):
    site.install("acme", "acme", "import nonexistent_thing\n", cores="Acme = acme:Acme")
    site.install("good", "good", CORE.format(name="Good", summary="Good."), cores="Good = good:Good")

    with pytest.raises(RegistryError, match=r"the core Acme of acme cannot be imported") as error:
        registry.load("cores", "Acme")
    assert isinstance(error.value.__cause__, ModuleNotFoundError)
    assert "acme.py" in "".join(traceback.format_exception(error.value.__cause__))
    by_name = {entry.name: entry for entry in registry.entries("cores")}
    assert by_name["Acme"].state == "broken"
    assert "nonexistent_thing" in by_name["Acme"].error
    assert registry._failures[by_name["Acme"].kind, by_name["Acme"].target] is error.value.__cause__
    assert registry.load("cores", "Good").__name__ == "Good", "a broken plugin must not harm the others"


ENDINGS = {
    "SystemExit": "import sys\nsys.exit(0)\n",
    "Mute": "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Mute\n",
    "Outcome": "class Outcome(BaseException):\n    pass\n\nraise Outcome\n",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_plugin_that_ends_the_process_at_import_is_held_as_any_other(site, tmp_path, ending):
    site.install("acme", "acme", ENDINGS[ending], cores="Acme = acme:Acme")
    with pytest.raises(RegistryError, match=rf"the core Acme of acme cannot be imported from acme:Acme:\n  {ending}"):
        registry.load("cores", "Acme")
    assert next(entry.state for entry in registry.entries("cores") if entry.name == "Acme") == "broken"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "ends.py").write_text(ENDINGS[ending])
    with pytest.raises(RegistryError, match=rf"ends\.py cannot be imported:\n  {ending}"):
        registry.load_file(tmp_path / "sub" / "ends.py")


def test_interrupt_at_import_is_no_failure_of_the_plugin(site):
    site.install("acme", "acme", "raise KeyboardInterrupt\n", cores="Acme = acme:Acme")
    with pytest.raises(KeyboardInterrupt):
        registry.load("cores", "Acme")


@pytest.mark.parametrize(("source", "error"), [("def (\n", "SyntaxError"), (None, "ModuleNotFoundError")])
def test_module_that_cannot_be_read_is_listed_as_broken(site, source, error):
    site.install("acme", "acme", source or "", cores="Acme = acme:Acme")
    if source is None:
        (site.path / "acme.py").unlink()
    (entry,) = [entry for entry in registry.entries("cores") if entry.name == "Acme"]
    assert entry.state == "broken"
    assert entry.error.startswith(error)


def test_two_distributions_of_one_name_are_an_error_that_names_both(site):
    for name in ("acme", "bcme"):
        site.install(name, name, CORE.format(name="Twin", summary="Twin."), cores=f"Twin = {name}:Twin")
    with pytest.raises(RegistryError, match=r"acme \(acme:Twin\) and bcme \(bcme:Twin\)"):
        registry.load("cores", "Twin")
    states = [(entry.distribution, entry.state) for entry in registry.entries("cores") if entry.name == "Twin"]
    assert states == [("acme", "duplicate"), ("bcme", "duplicate")]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Acme: pass", "not a subclass of slotbench.interfaces.TemporalCore"),
        (CORE.format(name="Other", summary=".") + "Acme = Other", "the entry's name must be the class's name"),
        ("", "AttributeError"),
    ],
)
def test_target_that_is_no_component_is_refused(site, source, message):
    site.install("acme", "acme", source, cores="Acme = acme:Acme")
    with pytest.raises(RegistryError, match=message):
        registry.load("cores", "Acme")


def test_registered_class_is_in_the_same_table(site):
    from slotbench.interfaces import Aggregation

    @registry.register("aggregations")
    class Sum(Aggregation):
        """Sums. Nothing more."""

        def forward(self, assignment, values):
            return assignment @ values

    assert registry.load("aggregations", "Sum") is Sum
    (entry,) = [entry for entry in registry.entries("aggregations") if entry.name == "Sum"]
    assert (entry.state, entry.summary, entry.distribution) == ("loaded", "Sums.", "test_registry.py")


def test_running_a_definition_again_replaces_it(site):
    from slotbench.interfaces import Aggregation

    def define():
        @registry.register("aggregations")
        class Again(Aggregation):
            def forward(self, assignment, values):
                return values

        return Again

    first, second = define(), define()
    assert registry.load("aggregations", "Again") is second is not first


def test_registering_a_name_that_a_distribution_has_is_an_error_that_names_both(site):
    from slotbench.interfaces import TemporalCore

    site.install("acme", "acme", CORE.format(name="Acme", summary="."), cores="Acme = acme:Acme")
    taken = type("Acme", (TemporalCore,), {"__module__": __name__, "forward": lambda *_: None})
    with pytest.raises(RegistryError, match=r"acme \(acme:Acme\) and test_registry\.py"):
        registry.register("cores")(taken)


def test_registering_under_the_wrong_kind_is_refused(site):
    with pytest.raises(RegistryError, match=r"not a subclass of slotbench.interfaces.Encoder"):
        registry.register("encoders")(type("NoEncoder", (), {}))
    assert "NoEncoder" not in registry.names("encoders")


PLUGIN = CORE.format(name="MyCore", summary="Mine.").replace(
    "class MyCore", 'from slotbench.registry import register\n\n@register("cores")\nclass MyCore'
)


def test_file_of_registered_components_is_loaded_by_path(site, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "my_core.py"
    file.write_text(PLUGIN)
    (entry,) = registry.load_file(file)
    assert (entry.name, entry.kind, entry.distribution, entry.target) == (
        "MyCore",
        "cores",
        "my_core.py",
        "my_core:MyCore",
    )
    assert registry.load("cores", "MyCore") is sys.modules["my_core"].MyCore
    assert registry.load_file(file) == [entry], "loading it again changes nothing"


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("my_core.py", None, "no plugin file"),
        ("my_core.py", "import nonexistent_thing", "nonexistent_thing"),
        ("my_core.py", "x = 1", "registers no component"),
        ("my-core.py", PLUGIN, "name it like a Python module"),
        ("json.py", PLUGIN, "has the name of another module"),
        ("wave.py", PLUGIN, "has the name of another module"),
    ],
)
def test_file_that_is_no_plugin_is_refused(site, tmp_path, name, source, message):
    (tmp_path / "sub").mkdir()
    if source is not None:
        (tmp_path / "sub" / name).write_text(source)
    with pytest.raises(RegistryError, match=message):
        registry.load_file(tmp_path / "sub" / name)


def test_listing_imports_no_torch():
    code = (
        "import sys; from slotbench import registry\n"
        "found = [entry for kind in registry.KINDS for entry in registry.entries(kind)]\n"
        "assert len(found) > 3 and all(entry.summary for entry in found), found\n"
        "bad = {'torch', 'lightning', 'numpy', 'slotbench.interfaces'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_declared_component_can_be_loaded():
    for kind in registry.KINDS:
        for name in registry.names(kind):
            assert registry.load(kind, name).__name__ == name
