"""`inherits:` and `override:`; where each value came from; digests."""

from __future__ import annotations

import pickle

import pytest

from flymono.specs import SpecError, UserError, load

from .folder import SpecFolder

HEAD = "schema_version: 1\nkind: arch\nname: gfx951\ninherits: gfx950\n"
CHILD = HEAD + "title: a smaller one\noverride:\n  workgroup: {lds_bytes: 131072}\n  tp: [2]\n"


def child(folder: SpecFolder, text: str, name: str = "gfx951") -> list[str]:
    folder.write(f"arch/{name}.yaml", text)
    return folder.shown()


def test_values_and_origins(folder: SpecFolder) -> None:
    assert child(folder, CHILD) == []
    specs = load(folder.root)
    arch, parent = specs.arch["gfx951"], specs.arch["gfx950"]
    assert (arch.workgroup.lds_bytes, arch.workgroup.wave_size, arch.tp) == (131072, 64, (2,))
    assert arch.mfma == parent.mfma
    origins = {
        path: specs.origin("gfx951", *path)
        for path in [
            ("workgroup", "lds_bytes"),
            ("workgroup", "wave_size"),
            ("title",),
            ("mfma", 0, "scaled"),
        ]
    }
    assert [(o.where.file.rsplit("/")[-1], o.where.line, o.how) for o in origins.values()] == [
        ("gfx951.yaml", 7, "override"),
        ("gfx950.yaml", 10, "inherited from gfx950"),
        ("gfx951.yaml", 5, "override"),
        ("gfx950.yaml", 22, "default"),
    ]
    assert specs.origin("gfx950", "tp").how == "stated"


def test_a_chain_of_three(folder: SpecFolder) -> None:
    child(folder, CHILD)
    grandchild = CHILD.replace("gfx951", "gfx952").replace("gfx950", "gfx951").replace("131072", "98304")
    assert child(folder, grandchild.replace("  tp: [2]\n", ""), "gfx952") == []
    specs = load(folder.root)
    assert specs.arch["gfx952"].workgroup.lds_bytes == 98304
    assert specs.arch["gfx952"].tp == (2,)
    assert specs.origin("gfx952", "tp").how == "inherited from gfx951"
    assert specs.origin("gfx952", "cache", "nt").how == "inherited from gfx950"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD.replace("gfx950", "gfx95"), ["4:11 UNKNOWN_PARENT"]),
        (HEAD.replace("gfx950", "gfx951"), ["4:11 INHERIT_CYCLE"]),
        (HEAD + "tp: [2]\n", ["5:1 OVERRIDE_ONLY"]),
        (HEAD + "override: 3\n", ["5:11 WRONG_TYPE"]),
        (HEAD + "override: {lds: 3}\n", ["5:12 OVERRIDE_UNKNOWN"]),
        (HEAD + "override: {name: other}\n", ["5:12 OVERRIDE_UNKNOWN"]),
        (HEAD + "override: {workgroup: {lds: 3}}\n", ["5:24 OVERRIDE_UNKNOWN"]),
        (HEAD + "override: {tp: [2, 4]}\n", ["5:12 OVERRIDE_SAME"]),
        (HEAD + "override: {workgroup: {lds_bytes: big}}\n", ["5:35 WRONG_TYPE"]),
        (HEAD + "override: {workgroup: {lds_bytes: 1e5}}\n", ["5:35 AMBIGUOUS"]),
        (HEAD + "override: {capabilities: {mfma_bf16_k32: false}}\n", ["MFMA_WITHOUT_CAPABILITY"]),
        (HEAD.replace("inherits: gfx950\n", "override: {tp: [2]}\n"), ["4:1 OVERRIDE_ALONE"]),
        (HEAD.replace("gfx950", "[gfx950]"), ["4:11 WRONG_TYPE"]),
    ],
)
def test_mistakes(folder: SpecFolder, text: str, expected: list[str]) -> None:
    child(folder, text)
    shown = [line.replace("arch/gfx951.yaml:", "") for line in folder.shown()]
    shown = [line for line in shown if not line.endswith("MISSING_KEY")]
    assert [line.split()[-1] if "." in line else line for line in shown] == expected


def test_a_refused_parent_is_reported_once(folder: SpecFolder) -> None:
    folder.write("arch/gfx950.yaml", "a: [")
    assert child(folder, CHILD) == ["arch/gfx950.yaml:1:5 YAML_SYNTAX"]


def test_digest_is_of_the_resolved_content(folder: SpecFolder) -> None:
    shipped = load(folder.root)
    folder.edit("arch/gfx950.yaml", "# v_pk_fma", "# another remark; v_pk_fma")
    folder.edit("arch/gfx950.yaml", "mach: 0x4f", "mach: 79")
    assert load(folder.root).digest("gfx950") == shipped.digest("gfx950")
    folder.edit("arch/gfx950.yaml", "lds_bytes: 163840", "lds_bytes: 131072")
    edited = load(folder.root)
    assert edited.digest("gfx950") != shipped.digest("gfx950")
    assert edited.digest("gfx942") == shipped.digest("gfx942")
    assert len(shipped.digest("arch/gfx950")) == 64


def test_digest_of_a_child_equals_the_same_spec_in_full(folder: SpecFolder) -> None:
    child(folder, HEAD + "title: t\noverride:\n  workgroup: {lds_bytes: 131072}\n")
    inherited = load(folder.root).digest("gfx951")
    text = (folder.root / "arch/gfx950.yaml").read_text()
    text = text.replace("163840", "131072").replace("name: gfx950", "name: gfx951")
    child(folder, text.replace("title: AMD CDNA4, Instinct MI350X and MI355X", "title: t"))
    assert load(folder.root).digest("gfx951") == inherited


def test_overrides_pass_the_checks_of_a_file(folder: SpecFolder) -> None:
    child(folder, CHILD)
    specs = load(folder.root, {"gfx950.workgroup.lds_bytes": 98304, "arch/gfx951.tp": [4]})
    assert (specs.arch["gfx950"].workgroup.lds_bytes, specs.arch["gfx951"].tp) == (98304, (4,))
    assert specs.origin("gfx950", "workgroup", "lds_bytes").how == "given"
    bad = {
        "gfx950.workgroup.lds_bytes": -1,
        "gfx950.fp8.colour": 1,
        "gfx9.tp": [1],
        "gfx951.tp": [2],
        "gfx942.mfma": 3,
    }
    with pytest.raises(SpecError) as error:
        load(folder.root, bad)
    codes = sorted(f.code.name for f in error.value.findings)
    assert codes == ["OUT_OF_RANGE", "OVERRIDE_UNKNOWN", "UNKNOWN_KEY", "WRONG_TYPE"]


def test_names_and_pickles(folder: SpecFolder) -> None:
    specs = load(folder.root)
    again = pickle.loads(pickle.dumps(specs))
    assert again == specs
    assert again.arch["gfx942"].has("mfma_fp8")
    for name in ("gfx94", "nothing/at/all"):
        with pytest.raises(UserError, match="is named"):
            specs.spec(name)
    with pytest.raises(UserError, match="no arch spec") as error:
        again.arch["gfx94"]
    assert "did you mean `gfx942`?" in error.value.render()


def test_spec_error_survives_a_pickle(folder: SpecFolder) -> None:
    with pytest.raises(SpecError) as error:
        load(folder.root, {"gfx950.fp8.max": -1})
    again = pickle.loads(pickle.dumps(error.value))
    assert again.render() == error.value.render()
