"""What a server says when a layer or a step does not run on our kernels: one catalogue of codes.

Invariants
 - `ServeCode` and `unsupported.Code` (reasons of builds) together are every code of a serving reason. A code
   has a phase (when it can be known) and a class (what the server does: `unsupported.Class`).
 - Texts are templates here and nowhere else: `reason(code, ...)` fills them for message, log line and report;
   docs/findings.md prints them as they are.
 - `host_line` names the line of vLLM's own mono path that a code's line stands for (runtime.md 2.6), so that
   whoever knows those logs finds their way.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..unsupported import Class, Code, Phase, Reason, ReasonCode

REFUSED = "ValueError: --monokernel {why}."
OFF = "mono decode off for some layers: {why}"
FFN_ONLY = "the FFN launch for layers with {why}"
SKIPPED = "skipped a step: {why}"
OURS = "-"
"""Nothing of vLLM's own path says this."""


@dataclass(frozen=True)
class Entry:
    """A line of the catalogue; `text` and `fix` are `str.format` templates."""

    phase: Phase
    klass: Class
    text: str
    fix: str
    host_line: str = OURS


class ServeCode(ReasonCode):
    """Why a server, a layer or a step does not run on the kernels, beyond what builds refuse."""

    EXPERT_PARALLEL = "expert-parallel"
    DATA_PARALLEL = "data-parallel"
    PIPELINE_PARALLEL = "pipeline-parallel"
    CONTEXT_PARALLEL = "context-parallel"
    COMPUTE_UNITS = "compute-units"
    MOE_BACKEND = "moe-backend"
    MOE_A4W4 = "moe-a4w4"
    DUAL_BATCH = "dual-batch"
    LORA = "lora"
    SLEEP_MODE = "sleep-mode"
    KV_TRANSFER = "kv-transfer"
    KV_OFFLOAD = "kv-offload"
    HIP_RUNTIMES = "hip-runtimes"
    BUNDLE_MISSING = "bundle-missing"
    BUNDLE_ARCH = "bundle-arch"
    BUNDLE_ALTERED = "bundle-altered"
    BUNDLE_STALE = "bundle-stale"

    SWITCHED_OFF = "switched-off"
    HOST_VERSION = "host-version"
    HOST_SHAPE = "host-shape"
    FUSED_SEAM = "fused-seam"
    SEQUENCE_PARALLEL = "sequence-parallel"
    LAYER_UNKNOWN = "layer-unknown"
    MADE_OTHERWISE = "made-otherwise"

    INDEXER = "indexer"
    COMPRESSOR_ALONE = "compressor-alone"
    CONSUMER_ON_HOST = "consumer-on-host"

    WEIGHTS_CONVERTED = "weights-converted"
    WEIGHTS_UNFIT = "weights-unfit"
    OUT_OF_MEMORY = "out-of-memory"
    RELOAD_FAILED = "reload-failed"

    RANKS_DIFFER = "ranks-differ"
    RANK_SILENT = "rank-silent"
    PEER_MEMORY = "peer-memory"
    CACHE_LAYOUT = "cache-layout"

    WIDTH_NOT_BUILT = "width-not-built"
    NO_CONTEXT = "no-context"
    PIECEWISE = "piecewise"
    NO_METADATA = "no-metadata"
    SPLIT_STEP = "split-step"
    LAYER_METADATA = "layer-metadata"
    PREFILLS = "prefills"
    NO_DECODES = "no-decodes"
    DECODE_TOKENS = "decode-tokens"
    STAGE_ENTRY = "stage-entry"
    COMPRESSED_METADATA = "compressed-metadata"
    WINDOW_WIDTH = "window-width"
    WINDOW_METADATA = "window-metadata"
    NO_KERNEL_LAYERS = "no-kernel-layers"

    @property
    def entry(self) -> Entry:
        """The code's line of the catalogue."""
        return CATALOGUE[self]

    @property
    def about(self) -> str:
        return self.entry.text

    @property
    def phase(self) -> Phase:
        return self.entry.phase

    @property
    def klass(self) -> Class:
        return self.entry.klass


def _stop(text: str, fix: str, host_line: str = OURS, phase: Phase = Phase.CONFIG) -> Entry:
    return Entry(phase, Class.STOP, text, fix, host_line)


def _stock(text: str, fix: str, host_line: str = OURS, phase: Phase = Phase.CONFIG) -> Entry:
    return Entry(phase, Class.STOCK, text, fix, host_line)


def _ffn(text: str, fix: str, host_line: str = FFN_ONLY, phase: Phase = Phase.CONFIG) -> Entry:
    return Entry(phase, Class.FFN, text, fix, host_line)


def _step(text: str, fix: str, host_line: str = SKIPPED) -> Entry:
    return Entry(Phase.STEP, Class.STEP, text, fix, host_line)


_HOSTS = "none needed: the host has its reasons"
_BUNDLE = "flymono bundle --arch {arch} --tp {tp} -o DIR makes it"

CATALOGUE: dict[ServeCode, Entry] = {
    # ---- the deployment: an opt-in that cannot run is an error
    ServeCode.EXPERT_PARALLEL: _stop(
        "experts are spread over ranks; on every rank the kernels read its part of all {experts} experts",
        "serve without --enable-expert-parallel and --enable-eplb",
        REFUSED,
    ),
    ServeCode.DATA_PARALLEL: _stop(
        "data-parallel size {size}: ranks of a layer would be in steps of different widths",
        "--data-parallel-size 1, and a server for each replica",
        REFUSED,
    ),
    ServeCode.PIPELINE_PARALLEL: _stop(
        "pipeline-parallel size {size}: a stage begins with a residual that no launch takes, and index "
        "sources may be on another stage than their consumers",
        "--pipeline-parallel-size 1",
    ),
    ServeCode.CONTEXT_PARALLEL: _stop(
        "context-parallel size {size}: a rank's KV cache holds a part of a request, K2 reads all of it",
        "serve without --decode-context-parallel-size and --prefill-context-parallel-size",
    ),
    ServeCode.COMPUTE_UNITS: _stop(
        "the GPU shows {units} compute units; a launch keeps {grid} workgroups resident at once, since they "
        "wait for one another",
        "serve on a whole GPU (compute partition SPX), with at least {grid} compute units",
        REFUSED,
    ),
    ServeCode.MOE_BACKEND: _stop(
        "the routed experts run on {backend}; kernels of {arch} read the tensors that {want} holds",
        "--moe-backend aiter",
        REFUSED,
    ),
    ServeCode.MOE_A4W4: _stop(
        "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4 is set: experts would take FP4 activations, the kernels take FP8",
        "unset VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4",
        REFUSED,
    ),
    ServeCode.DUAL_BATCH: _stop(
        "dual-batch overlap: two halves of a step would run launches side by side, each of which fills "
        "the GPU",
        "serve without --enable-dbo",
    ),
    ServeCode.LORA: _stop(
        "LoRA adapters: the kernels read the base weights alone and would ignore them",
        "serve without --enable-lora, or merge the adapter into the checkpoint",
    ),
    ServeCode.SLEEP_MODE: _stop(
        "sleep mode drops or moves weights at addresses that launches and captured graphs hold",
        "serve without --enable-sleep-mode",
    ),
    ServeCode.KV_TRANSFER: _stop(
        "a KV connector waits at each layer's attention, which a whole layer does not call",
        "serve without --kv-transfer-config",
    ),
    ServeCode.KV_OFFLOAD: _stop(
        "KV offloading moves blocks at each layer's attention, which a whole layer does not call",
        "serve without --kv-offloading-size and --kv-offloading-backend",
    ),
    ServeCode.HIP_RUNTIMES: _stop(
        "two HIP runtimes are mapped: {paths}",
        "leave one of them: torch's streams and pointers mean nothing to the other",
    ),
    ServeCode.BUNDLE_MISSING: _stop(
        "no bundle for {arch} TP{tp}: {where}", _BUNDLE + ", FLYMONO_BUNDLE=DIR names it"
    ),
    ServeCode.BUNDLE_ARCH: _stop("the bundle is for {found}, the GPU is {arch}", _BUNDLE, REFUSED),
    ServeCode.BUNDLE_ALTERED: _stop("the bundle's {artefact} is {what}", _BUNDLE + " anew"),
    ServeCode.BUNDLE_STALE: _stop("the bundle was made from other specs: {what}", _BUNDLE + " anew"),
    # ---- a layer, or all of them, on the host's path
    ServeCode.SWITCHED_OFF: _stock("FLYMONO={value}: switched off", "unset FLYMONO"),
    ServeCode.HOST_VERSION: _stock(
        "vLLM {found} is not a release of {want}",
        "install vLLM {want}, or see docs/upgrade.md; FLYMONO_ANY_VLLM=1 skips this check",
    ),
    ServeCode.HOST_SHAPE: _stock(
        "vLLM's layer is not the one this was written for: {what}", "install vLLM {want}"
    ),
    ServeCode.FUSED_SEAM: _stock(
        "the host has no fused mHC seam: AITER's fused seam and the kernels' round alike, its own chain "
        "does not",
        "serve with AITER's fused seam (VLLM_ROCM_USE_AITER=1 and an AITER that has it)",
        OFF,
    ),
    ServeCode.SEQUENCE_PARALLEL: _stock(
        "a sequence-parallel layer holds a part of a step's rows on each rank",
        "serve without sequence parallelism",
        OFF,
    ),
    ServeCode.LAYER_UNKNOWN: _stock(
        "{model} has no layer {layer}; its last is {last}",
        "take a model spec that describes this checkpoint",
        OFF,
    ),
    ServeCode.MADE_OTHERWISE: _stock(
        "the host's layer was made for {made}, and is now planned {planned}",
        "report this: layers of one server differ",
    ),
    # ---- the host's attention, then the FFN launch
    ServeCode.INDEXER: _ffn(
        "the indexer is {found}; on {arch} a selection from K1's bf16 qr is known to equal the host's for "
        "{want} alone",
        "{option}",
    ),
    ServeCode.COMPRESSOR_ALONE: _ffn("a compressor without an indexer", "take a model spec that says so"),
    ServeCode.CONSUMER_ON_HOST: _ffn(
        "layers {consumers} take their keys from this index source and run the host's attention, which would "
        "read a pack of keys that a whole source does not write",
        "see the reasons of these layers",
        OURS,
    ),
    # ---- weights
    ServeCode.WEIGHTS_CONVERTED: _stop(
        "{tensor} is already in another format: {what}",
        "load the checkpoint itself, without the weight cache",
        phase=Phase.WEIGHTS,
    ),
    ServeCode.WEIGHTS_UNFIT: _stop(
        "{tensor}: {what}", "serve the published checkpoint, or FLYMONO=0", phase=Phase.WEIGHTS
    ),
    ServeCode.OUT_OF_MEMORY: _stop(
        "no memory for the copy of {tensor}: {what}",
        "a GPU with more memory, or a smaller KV cache (`flymono plan memory --arch {arch}` has the sum)",
        phase=Phase.WEIGHTS,
    ),
    ServeCode.RELOAD_FAILED: _stop(
        "a reload ended half-way at {tensor}: {what}",
        "reload again from the start, or restart",
        phase=Phase.WEIGHTS,
    ),
    # ---- ranks, peer memory, caches
    ServeCode.RANKS_DIFFER: _stock(
        "ranks {ranks} planned otherwise than rank {first}: {what}",
        "start all ranks with one configuration",
        phase=Phase.CACHES,
    ),
    ServeCode.RANK_SILENT: _stock(
        "ranks {ranks} did not answer within {seconds} s", "see their logs", phase=Phase.CACHES
    ),
    ServeCode.PEER_MEMORY: _stock(
        "rank {rank}, {what}",
        "allow IPC between the ranks (containers: --ipc=host)",
        phase=Phase.CACHES,
    ),
    ServeCode.CACHE_LAYOUT: _ffn(
        "{cache}: {what}", "serve with the default KV cache layout", OURS, phase=Phase.CACHES
    ),
    # ---- a step
    ServeCode.WIDTH_NOT_BUILT: _step(
        "{what}{rows} rows: the bundle has none of that width (of up to {limit} rows: {built})",
        "flymono bundle --arch {arch} --tp {tp} --widths {rows} -o DIR, or capture {near} rows",
        OURS,
    ),
    ServeCode.NO_CONTEXT: _step("a forward outside of the host's forward context", "none needed"),
    ServeCode.PIECEWISE: _step(
        "a PIECEWISE graph, which is replayed for mixed steps too",
        'FULL graphs of decode steps: --compilation-config \'{{"cudagraph_mode":"FULL_AND_PIECEWISE"}}\'',
    ),
    ServeCode.NO_METADATA: _step("no attention metadata: a profile or dummy run", "none needed"),
    ServeCode.SPLIT_STEP: _step(
        "attention metadata of a step in parts (dual-batch overlap)", "serve without --enable-dbo"
    ),
    ServeCode.LAYER_METADATA: _step("no window metadata of layers {layers}", _HOSTS),
    ServeCode.PREFILLS: _step(
        "{prefills} prefills among {rows} rows: only steps of decodes alone run on the kernels",
        "none needed: the next step of decodes alone does",
    ),
    ServeCode.NO_DECODES: _step("no decode in the step", "none needed"),
    ServeCode.DECODE_TOKENS: _step("{tokens} decode tokens in {rows} rows", "none needed"),
    ServeCode.STAGE_ENTRY: _step(
        "the first layer's input has {dims} dimensions and not {want}: the start of a pipeline stage",
        "--pipeline-parallel-size 1",
    ),
    ServeCode.COMPRESSED_METADATA: _step("no compressed-cache metadata of layers {layers}", _HOSTS),
    ServeCode.WINDOW_WIDTH: _step(
        "window lists {width} wide, the builds read {want}",
        "serve with the draft count that the plan was made for",
    ),
    ServeCode.WINDOW_METADATA: _step("window lists, lengths or requests of rows are missing", "none needed"),
    ServeCode.NO_KERNEL_LAYERS: _step("no layer is planned on a kernel", "flymono plan model says why", OURS),
}

HOST_LINES: dict[ReasonCode, str] = {
    Code.ARCH_UNKNOWN: REFUSED,
    Code.TP_NOT_OFFERED: REFUSED,
    Code.ROUTING_UNKNOWN: OFF,
    Code.RATIO_UNKNOWN: FFN_ONLY,
    Code.KV_DTYPE_UNKNOWN: FFN_ONLY,
    Code.ROWS_OUT_OF_RANGE: SKIPPED,
}
"""The same of codes that builds have."""


def host_line(code: ReasonCode) -> str:
    """The line of vLLM's own path that this code's line stands for; `-` where it has none."""
    return code.entry.host_line if isinstance(code, ServeCode) else HOST_LINES.get(code, OURS)


def reason(code: ServeCode, **values: object) -> Reason:
    """The reason of this code; `values` fill its templates (a missing one is a bug)."""
    entry = CATALOGUE[code]
    return Reason(code, entry.text.format(**values), entry.fix.format(**values))


def listed(numbers: tuple[int, ...] | list[int]) -> str:
    """`2, 5, 8-14`: numbers in words, runs of three and more by their ends."""
    runs = list[list[int]]()
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    parts = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(parts) or "none"
