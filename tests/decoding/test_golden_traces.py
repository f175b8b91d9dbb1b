"""Greedy traces of every family's published sampler: final ids, the step of every commit, the number of passes."""

import json
from dataclasses import replace

import pytest
import torch

from dare.decoding import propose as proposing
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.models.checkpoint import load_checkpoint
from dare.models.tokens import read_json
from rows import keys

SDAR_SETTINGS = {"sdar", "sdar_moe"}
DREAM_RULES = {"topk_margin": "margin", "confidence_threshold": "maskgit_plus"}


@pytest.fixture
def golden(shared, tmp_path):
    """Load a golden model with the traces' special ids, and its traces by name."""

    def load(family, group="traces"):
        folder = shared / "golden" / family
        config, generate = read_json(folder / "config.json"), read_json(folder / "generate.json")
        ids = {name: generate[name] for name in ("mask_token_id", "eos_token_id") if generate.get(name) is not None}
        ids.setdefault("eos_token_id", config.get("eos_token_id") or 296)
        (tmp_path / "config.json").write_text(json.dumps({**config, **ids}))
        (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
        return load_checkpoint(str(tmp_path)).model, {trace["name"]: trace for trace in generate[group]}

    return load


def _prompts(trace):
    """The prompts without their left padding, which DARE never makes."""
    valid = trace.get("attention_mask") or [[1] * len(row) for row in trace["prompt_ids"]]
    return [row[-sum(mask) :] for row, mask in zip(trace["prompt_ids"], valid, strict=True)]


def _decode(model, trace, length, **settings):
    prompts = _prompts(trace)
    decoding = DecodingConfig(max_new_tokens=length, **{"stop_at_eos": False, **settings})
    return denoise(model, prompts, decoding, keys(len(prompts)), torch.arange(len(prompts)))


def _answer(rollouts, row):
    where_T = rollouts.seqs.response_BT[row]
    return rollouts.seqs.ids_BT[row, where_T].tolist(), rollouts.unmask_step_BT[row, where_T].tolist()


def _order(steps):
    """Steps renumbered without gaps: a pass that decides nothing leaves no mark."""
    used = {step: rank for rank, step in enumerate(sorted({step for step in steps if step >= 0}))}
    return [used.get(step, -1) for step in steps]


def _same(rollouts, trace, length, ids_only=False):
    for row in range(len(trace["prompt_ids"])):
        ids, steps = _answer(rollouts, row)
        assert ids == trace["final_ids"][row][-length:], trace["name"]
        if not ids_only:
            assert _order(steps) == _order(trace["commit_step"][row][-length:]), trace["name"]


def _per_block(steps, block, length):
    """The ``steps`` over the whole canvas that give this many per block."""
    for total in range(1, steps * length + 1):
        decoding = DecodingConfig(max_new_tokens=length, steps=total)
        if decoding.steps_for(block) == steps:
            return total
    raise AssertionError(f"no setting gives {steps} steps to a block of {block} in {length}")


@pytest.mark.parametrize("group", ["traces", "fastdllm_traces"])
def test_llada_and_fast_dllm(golden, group):
    """Every setting: steps, threshold, factor; guidance; EOS suppression; no, prefix and dual cache."""
    model, traces = golden("llada", group)
    for name, trace in traces.items():
        s = trace["settings"]
        how = {key: s[key] for key in ("threshold", "factor") if s.get(key)} or {"steps": s["steps"]}
        ends = (s.get("eos_id", 290), s.get("eot_id", 295))
        eos = "never" if s.get("logits_eos_inf") else "last" if s.get("confidence_eos_eot_inf") else "free"
        # the reference forbids EOS alone where it touches logits, EOS and EoT where it touches confidence
        model.spec = replace(model.spec, eos_ids=ends[:1] if eos == "never" else ends)
        cache = trace.get("cache") if trace.get("cache") in ("prefix", "dual") else "none"
        rest = {"block_size": s["block_length"], "cfg_scale": s.get("cfg_scale", 0), "eos": eos, "cache": cache}
        rollouts = _decode(model, trace, s["gen_length"], **how, **rest)
        _same(rollouts, trace, s["gen_length"], ids_only=eos == "last")
        assert rollouts.forwards_B.tolist() == [trace["num_forward"]] * len(rollouts.forwards_B), name
        if eos == "last":
            assert "without_flag_final_ids" in trace
            assert trace["without_flag_final_ids"] != trace["final_ids"]
            _eos_last(rollouts, trace, s["gen_length"], s["block_length"], ends)


def _eos_last(rollouts, trace, length, block, ends):
    """Text in the reference's order; end tokens, all of confidence zero, after it in either order."""
    ids, steps = _answer(rollouts, 0)
    wanted = trace["commit_step"][0][-length:]
    for start in range(0, length, block):
        inside = range(start, start + block)
        text = [at for at in inside if ids[at] not in ends]
        end = [at for at in inside if ids[at] in ends]
        assert [steps[at] for at in text] == [wanted[at] for at in text]
        assert all(steps[late] > steps[early] for late in end for early in text)


def test_dream(golden):
    """Entropy, MaskGIT-plus and margin order with Dream's time steps, and its capped threshold."""
    model, traces = golden("dream")
    compared = 0
    for name, trace in traces.items():
        s = trace["settings"]
        if "block_length" in s or s["top_p"]:
            continue
        rule = DREAM_RULES.get(s["alg"], s["alg"])
        how = {"schedule": "timestep"}
        if "threshold" in s:
            how = {"threshold": s["threshold"], "steps_bound": "maximum"}
        rollouts = _decode(model, trace, 16, rule=rule, block_size=None, steps=s["steps"], **how)
        _same(rollouts, trace, 16)
        passes = len({step for step in trace["commit_step"][0] if step >= 0})
        assert rollouts.forwards_B[0] == passes <= trace["num_forward"], name
        compared += 1
    assert compared == 14


def test_dream_top_p_ties_go_to_the_first_position(golden):
    """Top-p leaves one token at several positions, so their entropy ties at 0; the reference takes an arbitrary one."""
    model, traces = golden("dream")
    trace = traces["entropy_top_p_0.9"]
    first = _decode(model, trace, 16, rule="entropy", block_size=None, steps=8, schedule="timestep", top_p=0.9)
    prompt = _prompts(trace)[0]
    ids = torch.tensor([[*prompt, *[model.spec.mask_id] * 16]])
    with torch.no_grad():
        p_TV = model.head(model.hidden(ids, torch.tensor([ids.shape[1]])))[0, len(prompt) :].softmax(-1)
    tied = (p_TV.amax(-1) > 0.9).nonzero()[:, 0].tolist()
    theirs = trace["commit_step"][0][-16:].index(0)
    assert len(tied) > 1
    assert theirs in tied
    assert min(at for at, step in enumerate(_answer(first, 0)[1]) if step == 0) == tied[0]


@pytest.mark.parametrize("cache", ["none", "block"])
@pytest.mark.parametrize("family", sorted(SDAR_SETTINGS))
def test_sdar(golden, monkeypatch, family, cache):
    """Static, dynamic and sequential; the exact cache changes nothing, and its passes are the denoising ones alone."""
    monkeypatch.setattr(proposing, "sample", lambda scores_MV, uniform_M: scores_MV.argmax(-1))
    model, traces = golden(family)
    for name, trace in traces.items():
        s, length = trace["settings"], len(trace["final_ids"][0]) - len(trace["prompt_ids"][0])
        ends = tuple(s.get("stopping_criteria_idx", model.spec.eos_ids))
        model.spec = replace(model.spec, block_size=s["block_length"], eos_ids=ends)
        settings = {
            "rule": "left_to_right" if s["remasking_strategy"] == "sequential" else "maskgit_plus",
            "steps": _per_block(s["denoising_steps"], s["block_length"], length),
            "temperature": s["temperature"],
            "top_k": s["top_k"] or None,
            "top_p": s["top_p"] if s["top_p"] < 1 else None,
            "stop_at_eos": "stopping_criteria_idx" in s,
        }
        if "confidence_threshold" in s:
            settings |= {"threshold": s["confidence_threshold"], "steps_bound": "minimum"}
        rollouts = _decode(model, trace, length, cache=cache, **settings)
        if "stopping_criteria_idx" in s:
            # the reference leaves masks behind the stop, DARE fills the rest with EOS
            ids = [end if end != model.spec.mask_id else ends[0] for end in trace["final_ids"][0][-length:]]
            assert _answer(rollouts, 0)[0] == ids
            continue
        _same(rollouts, trace, length)
        assert rollouts.forwards_B[0] == trace["num_denoise_forward"], name


@pytest.mark.parametrize("cache", ["none", "block"])
@pytest.mark.parametrize("family", ["llada20", "llada21"])
def test_llada2(golden, family, cache):
    """Threshold with a least count; LLaDA2.1 edits too. Answers are cut after the first EOS, as the reference does.

    Left out: the trace of LLaDA2.1's shipped mask, a bias of 1 where the mask should be.
    """
    model, traces = golden(family)
    for name, trace in traces.items():
        if trace["mask_mode"] != "log":
            continue
        s, prompt = trace["settings"], len(trace["prompt_ids"][0])
        size = s["block_length"]
        length = -(-(prompt + s["gen_length"]) // size) * size - prompt
        model.spec = replace(model.spec, block_size=size, eos_ids=(s["eos_id"],))
        least = {"threshold": s["threshold"], "steps_bound": "minimum", "rule": "maskgit_plus"}
        if family == "llada20":
            steps = min(size, s["steps"], s["gen_length"] // s.get("minimal_topk", 1))
        else:
            steps = size // s.get("num_to_transfer", 1)
            least |= {"edit_threshold": s["editing_threshold"], "max_post_steps": s.get("max_post_steps", 16)}
        stops = "eos_seen" in name
        steps = _per_block(steps, size, length)
        rollouts = _decode(model, trace, length, cache=cache, steps=steps, stop_at_eos=stops, **least)
        ids, commits = _answer(rollouts, 0)
        final = trace["final_ids"][0]
        final = final[prompt:] if len(final) > s["gen_length"] else final
        assert ids[: len(final)] == final, name
        wanted = trace["commit_step"][0][prompt : prompt + len(final)]
        assert _order(commits[: len(final)]) == _order(wanted), name
        if not stops:
            assert rollouts.forwards_B[0] == trace["num_forward"], name
        if family == "llada21":
            _edits(rollouts, trace)


def _edits(rollouts, trace):
    """What the model was shown at each pass, edits included."""
    for seen_T, step in zip(rollouts.states_BST[0], trace["history"], strict=False):
        window, block = step["window"], step["block_tokens"]
        assert seen_T[window - len(block) : window].tolist() == block, trace["name"]
