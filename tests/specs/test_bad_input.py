"""Every mistake in a shipped spec that a user can make: exactly one finding, at the place of the mistake.

Each case replaces a piece of a shipped file; `«` in the new text marks where the finding must point.
"""

from __future__ import annotations

import pytest

from flymono.specs import SpecError, load

from .folder import SpecFolder

A942, A950 = "arch/gfx942.yaml", "arch/gfx950.yaml"
MODEL, BUILD = "model/deepseek_v41_flash.yaml", "build/shipped.yaml"
SCALED = (
    "  - {name: scale_f32_16x16x128_f8f6f4, m: 16, n: 16, k: 128, a: f8f6f4, b: f8f6f4, "
    "scaled: true, passes: 8}\n"
)
FP8_942 = "  - {name: f32_16x16x32_fp8_fp8, m: 16, n: 16, k: 32, a: fp8, b: fp8, passes: 4}\ncap"

SCHEMA = [
    (A942, "  lds_bytes: 65536", "  «lds_byts: 65536", "UNKNOWN_KEY", "MISSING_KEY"),
    (A942, "title: AMD", "«colour: red\ntitle: AMD", "UNKNOWN_KEY"),
    (A942, "  permlane_swap: false", "  «permlane: false\n  permlane_swap: false", "UNKNOWN_KEY"),
    (A942, "  lds_bytes: 65536\n  wave", "  lds_bytes: 65536\n  «lds_bytes: 30000\n  wave", "DUPLICATE_KEY"),
    (A942, "workgroup:\n  lds_bytes: 65536", "«workgroup:", "MISSING_KEY"),
    (A942, "lds_bytes: 65536", "lds_bytes: «big", "WRONG_TYPE"),
    (A942, "lds_bytes: 65536", "lds_bytes: «65536.0", "WRONG_TYPE"),
    (A942, "lds_bytes: 65536", "lds_bytes: «true", "WRONG_TYPE"),
    (A942, "lds_bytes: 65536", "lds_bytes: «[65536]", "WRONG_TYPE"),
    (A942, "lds_bytes: 65536", 'lds_bytes: «"65536"', "WRONG_TYPE"),
    (A942, "lds_bytes: 65536", "lds_bytes: «0", "OUT_OF_RANGE"),
    (A942, "lds_bytes: 65536", "lds_bytes: «-1", "OUT_OF_RANGE"),
    (A942, "lds_bytes: 65536", "lds_bytes: «6_5536", "AMBIGUOUS"),
    (A942, "lds_bytes: 65536", "lds_bytes:«", "EMPTY_VALUE"),
    (A942, "mach: 0x4c", "mach: «0x14c", "OUT_OF_RANGE"),
    (A942, "  mfma_fp8: true", "  mfma_fp8: «yes", "AMBIGUOUS"),
    (A942, "  mfma_fp8: true", "  mfma_fp8: «1", "WRONG_TYPE"),
    (A942, "flavour: fnuz", "flavour: «fnus", "NOT_ONE_OF"),
    (A942, "schema_version: 1", "schema_version: «2", "NOT_ONE_OF"),
    (A942, "pass_width: auto", "pass_width: «wide", "WRONG_TYPE"),
    (A942, "pass_width: auto", "pass_width: «0", "WRONG_TYPE"),
    (A942, "a: bf16, b: bf16", "a: bf16, b: «bf61", "NOT_ONE_OF"),
    (A942, "MI300X: 304", "MI300X: «many", "WRONG_TYPE"),
    (A942, "value: 2100.0", "value: «-2100.0", "OUT_OF_RANGE"),
    (A942, "tp: [4]", "tp: «4", "WRONG_TYPE"),
    (A942, "machine:\n  xcds: 8", "machine: «[]\nm:\n  xcds: 8", "WRONG_TYPE", "UNKNOWN_KEY"),
    (A942, "kind: arch", "kind: «model", "WRONG_KIND"),
    (A942, "kind: arch", "kind: «arche", "NOT_ONE_OF"),
    (A942, "name: gfx942", "name: «gfx943", "WRONG_NAME"),
    (MODEL, "hidden: 5120", "hidden: «5120.5", "WRONG_TYPE"),
    (MODEL, "rms_eps: 1.0e-20", "rms_eps: «1e-20", "AMBIGUOUS"),
    (MODEL, "weight_block: [32, 32]", "weight_block: «[32, 32, 32]", "OUT_OF_RANGE"),
    (BUILD, "kernel: keylist", "kernel: «k9", "NOT_ONE_OF"),
]

ARCH = [
    (A942, "  bitop3: false\n", "", "CAPABILITY_UNSTATED"),
    (A950, SCALED, "", "CAPABILITY_WITHOUT_MFMA"),
    (A942, FP8_942, "cap", "CAPABILITY_WITHOUT_MFMA"),
    (A950, "mfma_scale_f8f6f4: true", "mfma_scale_f8f6f4: false", "MFMA_WITHOUT_CAPABILITY"),
    (A942, FP8_942, f"  - «{SCALED[4:]}{FP8_942}", "MFMA_WITHOUT_CAPABILITY"),
    (
        A942,
        "  - {name: f32_16x16x16_bf16, m: 16, n: 16, k: 16, a: bf16, b: bf16, passes: 4}\n",
        "",
        "MFMA_MISSING",
    ),
    (A942, "{name: f32_16x16x4_f32", "{name: «f32_16x16x8_f32", "MFMA_NAME"),
    (A942, "exponent_bias: 8", "exponent_bias: «7", "FP8_FLAVOUR"),
    (A942, 'nan: "0x80"', 'nan: «"0x7f_0xff"', "FP8_FLAVOUR"),
    (A942, "max: 224.0", "max: «448.0", "FP8_FLAVOUR"),
    (A942, "max: 224.0", "max: «225.0", "FP8_FLAVOUR"),
    (A950, "flavour: ocp, max: 448.0", "flavour: ocp, max: «480.0", "FP8_FLAVOUR"),
    (A942, "sc1: 16, device", "sc1: «3, device", "CACHE_BITS", "CACHE_BITS", "CACHE_BITS"),
    (A942, "system_scope: 17", "system_scope: «1", "CACHE_BITS"),
    (A942, "system_scope: 17", "system_scope: «81", "CACHE_BITS"),
    (A942, "device_scope: 16", "device_scope: «0", "CACHE_BITS"),
    (A942, "nt: 2", "nt: «1", "CACHE_BITS"),
    (A942, "wave_size: 64", "wave_size: «48", "FIGURE"),
    (A942, "max_threads: 1024", "max_threads: «1000", "FIGURE"),
    (A942, "vgpr_granule: 8", "vgpr_granule: «7", "FIGURE"),
    (A942, "line_bytes: 128", "line_bytes: «100", "FIGURE"),
    (A942, "compute_units: {MI300X: 304, MI325X: 304}", "compute_units: «{}", "FIGURE"),
    (A942, "pass_width: auto", "pass_width: «17", "PASS_WIDTH"),
    (A942, "tp: [4]", "tp: [4, «4]", "REPEATED"),
    (A942, "errata: []", "errata: [pk_fma_f32_op_sel_010, «pk_fma_f32_op_sel_010]", "REPEATED"),
]

LAYERS = [
    (MODEL, "  layers: 40", "  layers: 41", "LAYER_COUNT"),
    (MODEL, "draft_layers: 3", "draft_layers: 4", "LAYER_COUNT"),
    (MODEL, "1, 1, 0, 0, 0]", "1, 1, 0, 0, «1]", "LAYER_SOURCE"),
    (MODEL, "[0, 0, 2, 2,", "[0, «2, 2, 2,", "LAYER_SOURCE", "LAYER_SOURCE"),
    (MODEL, "[0, 0, 2, 2,", "[0, 0, 2, «3,", "OUT_OF_RANGE"),
    (MODEL, "[0, 0, 2, 2,", "[0, 0, 2, «1,", "LAYER_SOURCE", "LAYER_SOURCE"),
    (MODEL, "kv_source_layers: [2, 8,", "kv_source_layers: [2, «2,", "LAYER_ORDER"),
    (MODEL, "28, 32, 36]", "28, 32, «40]", "LAYER_RANGE"),
    (MODEL, "kv_source_layers: [2,", "kv_source_layers: [«0,", "LAYER_SOURCE", *["LAYER_SOURCE"] * 6),
    (MODEL, "candidate_source_layer: 20", "candidate_source_layer: «21", "LAYER_SOURCE"),
    (MODEL, "engram_layers: [1, 14]", "engram_layers: [14, «1]", "LAYER_ORDER"),
    (MODEL, "target_layers: [37, 38, 39]", "target_layers: [37, 38, «-1]", "LAYER_RANGE", "LAYER_ORDER"),
]

MODELS = [
    (MODEL, "heads: 64", "heads: «60", "DIVIDES"),
    (MODEL, "q_lora_rank: 1280", "q_lora_rank: «1281", "DIVIDES", "DIVIDES"),
    (MODEL, "hidden: 5120", "hidden: «5130", "DIVIDES", "DIVIDES"),
    (MODEL, "record_group: 64", "record_group: «60", "DIVIDES"),
    (MODEL, "rope_dim: 64", "rope_dim: «512", "EXCEEDS"),
    (MODEL, "experts_per_token: 6", "experts_per_token: «385", "EXCEEDS"),
    (MODEL, "noise_token: 128799", "noise_token: «129280", "EXCEEDS"),
    (MODEL, "beta_slow: 1", "beta_slow: «33", "EXCEEDS"),
    (MODEL, "max_positions: 1048576", "max_positions: «1048577", "EXCEEDS"),
    (MODEL, "dense_code_range: [109, 121]", "dense_code_range: «[121, 109]", "OUT_OF_RANGE"),
    (MODEL, "expert_code_range: [115, 127]", "expert_code_range: «[115, 255]", "OUT_OF_RANGE"),
    (MODEL, "windows: [128, 192]", "windows: [128, 192, «64]", "OUT_OF_RANGE"),
    (MODEL, "windows: [128, 192]", "windows: [128, 192, «192]", "REPEATED"),
]

ROWS = "{kernel: k1, arch: gfx942, tp: [4], rows: "
FIRST_GROUP = ROWS + "backbone_42, ratio: [0], fold: [false], index: [false], window: [128]"
DRAFT_GROUP = ROWS + "draft, ratio: [0], fold: [false, true], index: [false], window: [192]"
BUILDS = [
    (BUILD, FIRST_GROUP, FIRST_GROUP.replace("gfx942", "«gfx943"), "UNKNOWN_ARCH"),
    (BUILD, "model: deepseek_v41_flash", "model: «deepseek_v4", "UNKNOWN_MODEL"),
    (BUILD, FIRST_GROUP, FIRST_GROUP.replace("tp: [4]", "tp: [4, «2]"), "BUILD_TP"),
    (BUILD, FIRST_GROUP, FIRST_GROUP.replace("tp: [4]", "tp: [4, «3]"), "BUILD_TP", "DIVIDES", "DIVIDES"),
    (BUILD, FIRST_GROUP, FIRST_GROUP.replace("rows: backbone_42", "rows: [6, «6]"), "REPEATED"),
    (BUILD, FIRST_GROUP, FIRST_GROUP.replace("rows: backbone_42", "rows: «backbone_41"), "UNKNOWN_WIDTHS"),
    (BUILD, "  draft: [5, 10,", "  draft: [5, 10, «5,", "REPEATED"),
    (BUILD, "  draft: [5, 10,", "  spare: «[3]\n  draft: [5, 10,", "UNUSED_WIDTHS"),
    (BUILD, "  draft: [5, 10, 15, 20, 25, 30, 35, 40]", "  draft: «[]", "FIGURE"),
    (BUILD, FIRST_GROUP, FIRST_GROUP.replace("fold: [false]", "fold: «[]"), "FIGURE"),
    (BUILD, DRAFT_GROUP, DRAFT_GROUP.replace("ratio: [0]", "ratio: [0, «3]"), "BUILD_RATIO", "BUILD_WINDOW"),
    (BUILD, DRAFT_GROUP, DRAFT_GROUP.replace("window: [192]", "window: [192, «160]"), "BUILD_WINDOW"),
    (
        BUILD,
        DRAFT_GROUP,
        DRAFT_GROUP.replace("ratio: [0]", "ratio: [0, 2]").replace("[192]", "[«192]"),
        "BUILD_WINDOW",
    ),
    (BUILD, DRAFT_GROUP, DRAFT_GROUP.replace("index: [false]", "index: [false, «true]"), "BUILD_INDEX"),
    (BUILD, DRAFT_GROUP, "«" + DRAFT_GROUP.replace("window: [192]", "window: [192, 128]"), "BUILD_TWICE"),
]


CASES = SCHEMA + ARCH + LAYERS + MODELS + BUILDS


@pytest.mark.parametrize(
    ("file", "old", "new", "codes"),
    [pytest.param(*c[:3], c[3:], id=f"{c[3]}-{i}") for i, c in enumerate(CASES)],
)  # fmt: skip
def test_one_mistake(folder: SpecFolder, file: str, old: str, new: str, codes: tuple[str, ...]) -> None:
    folder.edit(file, old, new)
    place = folder.take_mark(file)
    shown = folder.shown()
    assert sorted(line.split()[1] for line in shown) == sorted(codes)
    assert place is None or f"{place} {codes[0]}" in shown


def test_shipped_specs_have_no_finding(folder: SpecFolder) -> None:
    assert folder.findings() == []


def test_all_findings_of_all_files_come_at_once(folder: SpecFolder) -> None:
    folder.edit(A942, "lds_bytes: 65536", "lds_bytes: no")
    folder.edit(A950, "flavour: ocp", "flavour: ocpp")
    folder.edit(MODEL, "noise_token: 128799", "noise_token: 129280")
    folder.edit(BUILD, FIRST_GROUP, FIRST_GROUP.replace("gfx942", "gfx"))
    with pytest.raises(SpecError) as error:
        load(folder.root)
    text = error.value.render()
    assert [f.code.name for f in error.value.findings] == [
        "AMBIGUOUS",
        "NOT_ONE_OF",
        "UNKNOWN_ARCH",
        "EXCEEDS",
    ]
    assert text.count("    fix: ") == 4
    assert text.endswith("error: 4 findings in the specs")


def test_a_refused_arch_is_not_called_unknown(folder: SpecFolder) -> None:
    folder.write(A942, "a: [")
    assert folder.shown() == ["arch/gfx942.yaml:1:5 YAML_SYNTAX"]


def test_builds_above_a_stated_row_limit(folder: SpecFolder) -> None:
    folder.edit(A942, "limit: auto", "limit: 40")
    assert {f.code.name for f in folder.findings()} == {"BUILD_ROWS"}


def test_an_arch_without_fp8_matrix_instructions_has_no_builds(folder: SpecFolder) -> None:
    folder.edit(A942, FP8_942, "cap")
    folder.edit(A942, "mfma_fp8: true", "mfma_fp8: false")
    assert {f.code.name for f in folder.findings()} == {"NO_STRATEGY"}


def test_scaled_matrix_instructions_read_ocp(folder: SpecFolder) -> None:
    folder.edit(A950, 'flavour: ocp, max: 448.0, exponent_bias: 7, nan: "0x7f_0xff"',
                'flavour: fnuz, max: 224.0, exponent_bias: 8, nan: "0x80"')  # fmt: skip
    assert [f.code.name for f in folder.findings()] == ["FP8_FLAVOUR"]


def test_folders(folder: SpecFolder) -> None:
    folder.write("arch/notes.txt", "x")
    folder.write("arch/gfx9.yml", "x")
    (folder.root / MODEL).unlink()
    assert folder.shown() == [
        "arch/gfx9.yml:1:1 STRAY_FILE",
        "arch/notes.txt:1:1 STRAY_FILE",
        *folder.of_kind("build", "UNKNOWN_MODEL"),
        "model:1:1 MISSING_FILES",
        *folder.of_kind("numerics", "UNKNOWN_MODEL"),
    ]
    with pytest.raises(SpecError, match="1 finding"):
        load(folder.root / "nowhere")


def test_two_models_with_one_prefix(folder: SpecFolder) -> None:
    text = (folder.root / MODEL).read_text()
    folder.write("model/other.yaml", text.replace("name: deepseek_v41_flash", "name: other"))
    assert [f.code.name for f in folder.findings()] == ["PREFIX_TAKEN"]
