"""Write the table of docs/models.md from the tests; a tick is a test. Run: python docs/make_models_table.py"""

import importlib
import sys

from page import ROOT, rewrite

MODULES = ("test_family_goldens", "test_family_jobs", "test_llada_moe", "test_cache_rules")
JOBS: dict[str, tuple[str, ...]] = {
    "load": ("test_save_and_load_keep_every_byte",),
    "forward": ("test_losses_and_gradient_norms", "test_losses_and_gradients"),
    "SFT": ("test_sft",),
    "LoRA": ("test_lora",),
    "RL": ("test_rl",),
    "decode": ("test_decode",),
    "cache": ("test_span_caches_follow_their_rule", "test_the_block_cache_changes_nothing"),
    "export": ("test_export",),
}
NAMES = {
    "llada": "LLaDA, LLaDA 1.5",
    "dream": "Dream, DiffuCoder",
    "sdar": "SDAR, TraDo",
    "sdar_moe": "SDAR-MoE",
    "llada_moe": "LLaDA-MoE [1]",
    "llada20": "LLaDA2.0",
    "llada21": "LLaDA2.1",
}

ALONE = {
    "DiffusionGemma [2]": {
        "load": "test_a_folder_loads_with_the_weights_it_holds",
        "forward": "test_training_reads_the_model_as_the_sampler_does",
        "SFT": "test_a_short_run_teaches_the_answer",
        "decode": "test_sampling_is_a_function_of_prompt_place_and_seed",
    }
}
"""Families with an interface of their own, and their tests in ``test_diffusion_gemma``."""


def families_of(job: tuple[str, ...]) -> set[str]:
    """The families the tests of a job are parametrised over."""
    modules = [importlib.import_module(name) for name in MODULES]
    tests = [getattr(module, test) for module in modules for test in job if hasattr(module, test)]
    return {name for test in tests for mark in test.pytestmark if mark.args[0] == "name" for name in mark.args[1]}


def table() -> str:
    """Return the table in Markdown."""
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("", "models", "decoding")]
    done = {title: families_of(job) for title, job in JOBS.items()}
    lines = ["| family | " + " | ".join(JOBS) + " |", "|---" * (len(JOBS) + 1) + "|"]
    for name, title in NAMES.items():
        lines.append(f"| {title} | " + " | ".join("✓" if name in done[job] else "–" for job in JOBS) + " |")
    own = importlib.import_module("test_diffusion_gemma")
    for title, tests in ALONE.items():
        ticks = ["✓" if hasattr(own, tests.get(job, "")) else "–" for job in JOBS]
        lines.append(f"| {title} | " + " | ".join(ticks) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    rewrite("models.md", table())
