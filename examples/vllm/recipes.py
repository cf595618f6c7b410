"""The recipes, and commands made of them. No command is run here, and nothing but PyYAML is needed.

Invariants
 - A command is a list of words, never a shell line; `shown` quotes it for people.
 - What the user adds after `--` comes last, so it wins over a recipe.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent


class BadChoice(Exception):
    """A choice that no recipe has; the text lists those that there are."""


@dataclass(frozen=True)
class Command:
    """Words to run, and what to put into the environment for them."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        """The command as a person would type it."""
        return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in self.env.items()), shlex.join(self.words)])

    def run(self) -> int:
        """Run it in this terminal; its exit code (127 if the program is not installed)."""
        try:
            return subprocess.run(self.words, env={**os.environ, **self.env}, check=False).returncode
        except FileNotFoundError:
            print(f"error: {self.words[0]} is not installed here", file=sys.stderr)
            return 127


def recipes(path: Path = HERE / "recipes.yaml") -> dict[str, Any]:
    """The file's content."""
    return dict(yaml.safe_load(path.read_text()))


def chosen(what: str, name: str, among: Mapping[str, Any]) -> Any:
    """`among[name]`, or BadChoice."""
    if name not in among:
        raise BadChoice(f"there is no {what} {name!r}; take one of {', '.join(among)}")
    return among[name]


def _words(arguments: Mapping[str, Any]) -> list[str]:
    """{--flag: value} as words; True is a flag alone, a mapping is JSON."""
    out = list[str]()
    for flag, value in arguments.items():
        text = json.dumps(value) if isinstance(value, dict | list) else str(value)
        out += [flag] if value is True else [flag, text]
    return out


def serve(
    book: Mapping[str, Any], gpu: str, tp: int | None, bundle: str | None, mode: str, more: Sequence[str] = ()
) -> Command:
    """`vllm serve` on a GPU. mode: `mono`, `stock` (vLLM's own layers, plugin asked to stand aside) or `off`
    (vLLM as if flymono were not installed, without --monokernel)."""
    one = chosen("GPU", gpu, book["gpus"])
    if tp is not None and tp not in one["tp"]:
        raise BadChoice(f"{gpu} has kernels for {' and '.join(f'TP{t}' for t in one['tp'])}, not TP{tp}")
    arguments = {**book["serve"]["args"], **one["args"], "--tensor-parallel-size": tp or one["tp"][-1]}
    env = {**book["serve"]["env"], **one.get("env", {})}
    env |= {"FLYMONO_BUNDLE": bundle} if bundle else {}
    env |= {"mono": {}, "stock": {"FLYMONO": "stock"}, "off": {"FLYMONO": "0"}}[mode]
    if mode == "off":
        del arguments["--monokernel"]
    return Command(("vllm", "serve", book["model"], *_words(arguments), *more), env)


def evaluation(book: Mapping[str, Any], name: str, url: str, out: str, limit: int | None = None) -> Command:
    """`lm_eval` of one entry of `evaluations` against a server; results below `out`/`name`."""
    one = chosen("evaluation", name, book["evaluations"])
    endpoint = "chat/completions" if one["chat"] else "completions"
    model = {
        "model": book["model"], "base_url": f"{url}/v1/{endpoint}", "num_concurrent": one["concurrent"],
        "tokenized_requests": False, "timeout": 7200,
    }  # fmt: skip
    words = ["lm_eval", "--model", "local-chat-completions" if one["chat"] else "local-completions"]
    words += ["--model_args", ",".join(f"{k}={v}" for k, v in model.items())]
    words += ["--tasks", ",".join(one["tasks"]), "--gen_kwargs", f"max_gen_toks={one['max_tokens']}"]
    words += ["--num_fewshot", str(one["fewshot"])] if "fewshot" in one else []
    words += ["--apply_chat_template"] if one["chat"] else []
    lengths = {"max_seq_lengths": one.get("lengths"), "tokenizer": book["model"]}
    words += ["--metadata", json.dumps(lengths)] if "lengths" in one else []
    words += ["--limit", str(limit)] if limit is not None else []
    return Command((*words, "--output_path", str(Path(out) / name)))


def benchmark(book: Mapping[str, Any], at_once: int, url: str, out: str, label: str) -> Command:
    """`vllm bench serve` with `at_once` requests at a time; a JSON file a run in `out`."""
    s = book["sweep"]
    return Command(
        (
            "vllm", "bench", "serve", "--backend", "openai", "--base-url", url, "--model", book["model"],
            "--dataset-name", "random", "--random-input-len", str(s["input_tokens"]),
            "--random-output-len", str(s["output_tokens"]), "--ignore-eos", "--seed", "0",
            "--max-concurrency", str(at_once), "--num-prompts", str(s["prompts_each"] * at_once),
            "--save-result", "--result-dir", out, "--result-filename", result_name(label, at_once),
        )
    )  # fmt: skip


def result_name(label: str, at_once: int) -> str:
    """File of one run of the sweep."""
    return f"{label}-c{at_once}.json"
