"""d-TreeRPO: goldens of the authors' code, loops written from the paper, real trees, and learning."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from test_golden_objectives import _cases, _close, _mean_and_gradient

from cells import masked_run
from dare.algorithms.dtreerpo import DTreeRPO
from dare.algorithms.tree import edge_views, first_leaves, imitate, tree_advantage
from dare.batch import Batch
from dare.config import load_config
from dare.decoding.config import DecodingConfig
from dare.decoding.denoise import denoise
from dare.decoding.readers import Uncached
from dare.rewards import registry
from dare.train.config import RLConfig
from dare.train.rl import train_rl
from dare.types import Outcome, Sequences, Views
from rows import keys, pack, text_rollouts
from toy import toy_model

SPEC = toy_model().spec
EOS = SPEC.eos_ids[0]


def test_tree_advantages(shared):
    compared = 0
    for case, _, given, authors, release in _cases(shared, "dtreerpo"):
        if "leaf_rewards" not in given:
            continue
        parent, leaves = given["parent"].tolist(), given["leaf_index"].tolist()
        ways = [[parent[parent[leaf]], parent[leaf], leaf] for leaf in leaves]
        first = {node: row for row, way in reversed(list(enumerate(ways))) for node in way}
        node_BL = torch.tensor([[first[node] for node in way] for way in ways])
        for prompt in range(given["leaf_rewards"].shape[1]):
            found_BK = tree_advantage(given["leaf_rewards"][:, prompt], node_BL)
            for row, way in enumerate(ways):
                for level, node in enumerate(way[1:]):
                    assert _close(found_BK[row, level], authors["node_advantages"][node, prompt]), case
                    assert _close(found_BK[row, level], release["edge_advantages"][node - 1, prompt]), case
        compared += 1
    assert compared >= 2


def _as_rollouts(given, settings):
    """Every edge as a row of three passes: the parent, the edge, and the rest, which is filled with EOS."""
    parent_BT, child_BT, mask_id = given["parent_ids"], given["child_ids"], settings["mask_id"]
    step_BT = (parent_BT == mask_id).long() + (child_BT == mask_id).long()
    response_BT = torch.zeros_like(parent_BT, dtype=torch.bool)
    response_BT[:, settings["prompt_length"] :] = True
    ids_BT = torch.where(child_BT == mask_id, settings["eos_id"], child_BT)
    seqs = Sequences(ids_BT, response_BT, torch.full((len(ids_BT),), ids_BT.shape[1]))
    rollouts = replace(text_rollouts(seqs), unmask_step_BT=torch.where(response_BT, step_BT, -1))
    return replace(rollouts, forwards_B=torch.full((len(ids_BT),), 3))


def test_loss(shared):
    compared = 0
    for case, settings, given, authors, release in _cases(shared, "dtreerpo"):
        if "parent_logits" not in given:
            continue
        group_B, advantage_B = given["group_ids"], given["advantages"]
        rollouts, row_B = _as_rollouts(given, settings), torch.arange(len(group_B))
        parent_B = (group_B[:, None] == group_B).long().argmax(1)
        whole = edge_views(rollouts, torch.stack([parent_B, parent_B, row_B, row_B], 1), [settings["eos_id"]])
        views = Views(*(part[:, 1:2] for part in (whole.masked_BKT, whole.weight_BKT, whole.rate_BKT)))
        views = replace(views, loss_weight_BKT=whole.loss_weight_BKT[:, 1:2])
        prompt = settings["prompt_length"]
        assert torch.equal(views.scored_BKT[:, 0, prompt:], authors["active"].bool()), case
        config = DTreeRPO(
            kl_coef=settings["beta"],
            clip_low=settings["epsilon"],
            clip_high=settings["epsilon"],
            distill=settings["lambda_max"] if settings["self_distillation"] else 0.0,
            distill_growth=settings["gamma"],
            distill_temperature=settings["tau_max"],
            distill_cooling=settings["beta_tau"],
        )
        weight, temperature = config.distillation(settings["global_step"] / settings["max_steps"])
        if config.distill:
            assert _close(weight, authors["lambda_t"]) and _close(temperature, authors["tau_t"]), case
            views = imitate(views, advantage_B[:, None], torch.stack([parent_B, row_B], 1), weight, temperature)
        old_BKT, reference_BKT = (
            torch.nn.functional.pad(given[name], (prompt, 0))[:, None] for name in ("old_logps", "ref_logps")
        )
        batch = Batch(rollouts.seqs, views, rollouts.counted_BT, old_BKT, reference_BKT, advantage_B[:, None, None])
        leaf = given["parent_logits"].clone().requires_grad_(True)
        logp_BTV = leaf.log_softmax(-1)[group_B]
        logp_BT = logp_BTV.gather(-1, rollouts.seqs.ids_BT[..., None])[..., 0]
        algorithm = config.build(SPEC)
        mean = algorithm(torch.where(views.scored_BKT, logp_BT[:, None], 0.0), batch)[0] / algorithm.units(batch)
        # the entropy of what is imitated does not depend on the policy
        constant = _entropy(views, rollouts.seqs.ids_BT, parent_B) * weight if config.distill else 0.0
        # the authors add 1e-8 inside the logarithm
        assert _close(mean.detach() - constant, authors["loss"], 1e-7), case
        assert _close(mean.detach() - constant, release["loss"], 1e-7), case
        grad = torch.autograd.grad(mean, leaf)[0]
        assert torch.allclose(grad, authors["grad_parent_logits"], rtol=1e-7, atol=1e-10), case
        assert torch.allclose(grad, release["grad_parent_logits"], rtol=1e-7, atol=1e-10), case
        compared += 1
    assert compared >= 5


def _entropy(views, ids_BT, parent_B):
    """Mean entropy of the imitated distributions over (parent, position), by loops."""
    scale = views.imitation_BKT.sum()
    total, places = 0.0, 0
    for parent in sorted(set(parent_B.tolist())):
        rows = (parent_B == parent).nonzero()[:, 0].tolist()
        for place in range(ids_BT.shape[1]):
            q = {}
            for row in rows:
                token = int(ids_BT[row, place])
                q[token] = q.get(token, 0.0) + float(views.imitation_BKT[row, 0, place])
            mass = sum(q.values())
            if mass > 0:
                places += 1
                total -= sum(share / mass * math.log(share / mass) for share in q.values() if share > 0)
    return total / places if float(scale) else 0.0


class _Tree:
    """Made-up trees: two prompts, ``roots`` times ``branches`` leaves of ``length`` tokens, one per pass."""

    def __init__(self, seed, length, roots, branches, levels, **settings):
        self.config = DTreeRPO(
            group_size=roots * branches ** (levels - 1), roots=roots, branches=branches, levels=levels, **settings
        )
        generator = torch.Generator().manual_seed(seed)
        self.prompts, self.length, self.levels = [[0, EOS], [1, 0, 1]], length, levels
        self.steps = [torch.randperm(length, generator=generator).tolist() for _ in range(2)]
        self.texts, self.ways = [], []
        for prompt in range(2):
            self._grow(prompt, [None] * length, (prompt,), generator)
        asked = [self.prompts[way[0]] for way in self.ways]
        seqs = pack(list(zip(asked, self.texts, strict=True)), SPEC.pad_id)
        step_BT = torch.full_like(seqs.ids_BT, -1)
        for row, way in enumerate(self.ways):
            step_BT[row, seqs.response_BT[row]] = torch.tensor(self.steps[way[0]])
        rollouts = replace(
            text_rollouts(seqs),
            unmask_step_BT=step_BT,
            forwards_B=torch.full((len(step_BT),), length),
            group_B=torch.tensor([way[0] for way in self.ways]),
            counted_BT=seqs.through_eos([EOS]),
        )
        # quarters, so that advantages that cancel are exactly zero
        reward_B = torch.randint(0, 5, (len(step_BT),), generator=generator).double() / 4
        reward_B[len(reward_B) // 2 :] = 0.5  # the second tree has no advantage
        self.outcome = Outcome(rollouts, reward_B, 0.4)

    def _grow(self, prompt, text, way, generator):
        level = len(way) - 1
        if level == self.levels:
            self.texts.append(text)
            self.ways.append(way)
            return
        for child in range(self.config.branches if level else self.config.roots):
            words = torch.randint(0, 3, (self.length,), generator=generator).tolist()
            mine = [self.span(prompt, place) == level for place in range(self.length)]
            filled = [word if new else old for word, new, old in zip(words, mine, text, strict=True)]
            self._grow(prompt, filled, (*way, child), generator)

    def span(self, prompt, place):
        return self.steps[prompt][place] * self.levels // self.length

    def value(self, node):
        if len(node) == self.levels + 1:
            return float(self.outcome.reward_B[self.ways.index(node)])
        children = sorted({way[: len(node) + 1] for way in self.ways if way[: len(node)] == node})
        return sum(map(self.value, children)) / len(children)

    def edges(self):
        """(parent, child, advantage, number of siblings, row of its first leaf, active places)."""
        found = []
        for child in sorted({way[:depth] for way in self.ways for depth in range(2, self.levels + 2)}):
            siblings = {way[: len(child)] for way in self.ways if way[: len(child) - 1] == child[:-1]}
            others = [self.value(node) for node in siblings if node != child]
            advantage = self.value(child) - (sum(others) / len(others) if others else 0.0)
            row = next(row for row, way in enumerate(self.ways) if way[: len(child)] == child)
            active = []
            for place in range(self.length):
                span = self.span(child[0], place)
                if span == len(child) - 2:
                    active.append(len(self.prompts[child[0]]) + place)
                if span <= len(child) - 2 and self.texts[row][place] == EOS:
                    break
            found.append((child[:-1], child, advantage, len(siblings), row, active))
        return found


def _naive(tree, logp, old, reference):
    """Mean over edges, then the self-distillation, position by position."""
    config, edges, total = tree.config, tree.edges(), 0.0
    for _, child, advantage, _, row, active in edges:
        for place in active:
            at = (row, len(child) - 2, place)
            difference, apart = logp[at] - old[at], logp[at] - reference[at]
            ratio = difference.exp() if difference < 20 else math.exp(20) * (1 + difference - 20)
            inside = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
            loss = -torch.minimum(ratio * advantage, inside * advantage)
            loss = loss + config.kl_coef * ((-apart).exp() + apart - 1)
            total = total + loss / len(active) / len(edges)
    u = tree.outcome.progress
    weight = config.distill * (math.exp(config.distill_growth * u) - 1) / (math.exp(config.distill_growth) - 1)
    temperature = config.distill_temperature * (1 - u) ** config.distill_cooling
    terms = []
    for parent in sorted({edge[0] for edge in edges}):
        better = [edge for edge in edges if edge[0] == parent and edge[2] > 0 and edge[3] > 1]
        places = sorted({place for edge in better for place in edge[5]})
        for place in places:
            here = [edge for edge in better if place in edge[5]]
            power = [math.exp(edge[2] / temperature) for edge in here]
            scores = [logp[edge[4], len(edge[1]) - 2, place] for edge in here]
            terms.append(-sum(p * score for p, score in zip(power, scores, strict=True)) / sum(power))
    return total + weight * sum(terms) / len(terms) if terms and weight else total


SHAPES = {
    "tree": {"length": 6, "roots": 3, "branches": 2, "levels": 2},
    "deep": {"length": 8, "roots": 2, "branches": 2, "levels": 3},
    "only child": {"length": 5, "roots": 2, "branches": 1, "levels": 2},
    "one token": {"length": 1, "roots": 4, "branches": 3, "levels": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", ["inside", "clip", 50.0, -50.0])
def test_loops_from_the_paper(shape, shift):
    for seed in range(4):
        tree = _Tree(seed, distill=0.3, kl_coef=0.2, **SHAPES[shape])
        algorithm = tree.config.build(SPEC)
        views = algorithm.views(tree.outcome, 0)
        generator = torch.Generator().manual_seed(seed)
        logp, old, reference = (
            -torch.rand(views.weight_BKT.shape, dtype=torch.float64, generator=generator) for _ in range(3)
        )
        if shift == "clip":
            old = logp - math.log1p(tree.config.clip_high)
        elif shift != "inside":
            old = logp - shift
        credit_BKT = algorithm.credit(tree.outcome, views)
        batch = Batch(tree.outcome.rollouts.seqs, views, tree.outcome.rollouts.counted_BT, old, reference, credit_BKT)
        leaf = logp.clone().requires_grad_(True)
        wanted = _naive(tree, leaf, old, reference)
        mean, grad_BKT, metrics = _mean_and_gradient(algorithm, logp, batch)
        assert _close(mean, wanted.detach(), 1e-10)
        if shift != "clip":  # at the very edge either side may be taken
            assert _close(grad_BKT, torch.autograd.grad(wanted, leaf)[0], 1e-10)
        assert algorithm.units(batch) == len(tree.edges())
        assert grad_BKT.isfinite().all() and all(math.isfinite(value) for value in metrics.values())


def test_some_of_the_made_up_edges_score_nothing():
    edges = [edge for seed in range(4) for edge in _Tree(seed, **SHAPES["deep"]).edges()]
    assert any(not edge[5] for edge in edges) and any(len(edge[5]) > 1 for edge in edges)


def test_gradient_where_the_behaviour_policy_is_the_live_one():
    tree = _Tree(1, distill=0.0, kl_coef=0.0, **SHAPES["tree"])
    algorithm = tree.config.build(SPEC)
    views = algorithm.views(tree.outcome, 0)
    credit_BKT = algorithm.credit(tree.outcome, views)
    seqs, counted_BT = tree.outcome.rollouts.seqs, tree.outcome.rollouts.counted_BT
    batch = Batch(seqs, views, counted_BT, advantage_BKT=credit_BKT)
    grad_BKT = _mean_and_gradient(algorithm, -torch.rand(views.weight_BKT.shape).double(), batch)[1]
    wanted_BKT = torch.zeros_like(grad_BKT)
    for _, child, advantage, _, row, active in tree.edges():
        wanted_BKT[row, len(child) - 2, active] = -advantage / max(1, len(active)) / len(tree.edges())
    assert _close(grad_BKT, wanted_BKT, 1e-12)


def test_siblings_share_their_first_passes_and_part(monkeypatch):
    read = []
    monkeypatch.setattr(Uncached, "_read", _counting(Uncached._read, read))
    model, config = toy_model(vocab_size=9), DTreeRPO(group_size=12, roots=3, branches=2, levels=3)
    decoding = DecodingConfig(max_new_tokens=12, block_size=4, steps=6, temperature=1.0, stop_at_eos=False)
    assert config.conflict(decoding) is None and decoding.fixed_passes == 6
    prompt_B, sample_B = keys(2).repeat_interleave(12), torch.arange(24) % 12
    key_BL = config.noise_keys(prompt_B, sample_B)
    prompts = [[1, 2]] * 12 + [[3]] * 12
    rollouts = denoise(model, prompts, decoding, key_BL, torch.arange(24) // 12)
    assert torch.equal(rollouts.key_B, key_BL[:, -1]) and (rollouts.forwards_B == 6).all()
    node_BL = first_leaves(torch.arange(24), [12, 4, 2, 1])
    for first, second in ((a, b) for a in range(24) for b in range(a) if (a < 12) == (b < 12)):
        step_T = rollouts.unmask_step_BT[first]
        for level in range(3):
            before = [_decided(rollouts, row, 2 * level + 2) for row in (first, second)]
            if node_BL[first, level + 1] == node_BL[second, level + 1]:
                assert before[0] == before[1]
        assert step_T.max() == 5
    for level in range(1, 4):
        nodes = node_BL[:, level].unique().tolist()
        assert len({str(_decided(rollouts, row, 2 * level)) + str(row < 12) for row in nodes}) > len(nodes) // 2
    # a pass reads each node once, of each prompt
    assert [len(rows) for rows in read] == [2, 6, 6, 12, 12, 24]


def _decided(rollouts, row, passes):
    step_T, ids_T = rollouts.unmask_step_BT[row], rollouts.seqs.ids_BT[row]
    return [(place, int(ids_T[place])) for place in ((step_T >= 0) & (step_T < passes)).nonzero()[:, 0].tolist()]


def _counting(read, seen):
    def counted(self, ids_NT, lengths_N, open_NT, first):
        hidden = self.model.hidden
        self.model.hidden = lambda ids, *rest: seen.append(ids) or hidden(ids, *rest)
        states_MD = read(self, ids_NT, lengths_N, open_NT, first)
        del self.model.hidden
        return states_MD

    return counted


def test_one_row_stands_for_an_edge():
    tree = _Tree(0, **SHAPES["deep"])
    views = tree.config.build(SPEC).views(tree.outcome, 0)
    assert views.masked_BKT.any(-1).sum(0).tolist() == [4, 8, 16]
    assert not (views.scored_BKT & ~views.masked_BKT).any()
    for earlier, later in pairwise(range(3)):  # what is masked at a later level is masked at an earlier one too
        both = views.masked_BKT[:, [earlier, later]].any(-1).all(-1)
        assert (views.masked_BKT[both, later] <= views.masked_BKT[both, earlier]).all()


def test_the_published_settings_load(tmp_path):
    path = Path(__file__).parents[2] / "configs" / "algorithm" / "dtreerpo.yaml"
    config = load_config(RLConfig, [str(path), f"output={tmp_path}", "model.path=tiny:masked"])
    assert config.algorithm == DTreeRPO()


def _layers(tmp_path):
    return masked_run(tmp_path / "run", "name: dtreerpo, roots: 4, branches: 2, updates: 2", "stop_at_eos: false", 12)


def test_distillation_divergence_and_group_guards_in_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.REWARDS, "ones", lambda completion, **_: len(completion) / 100)
    extra = ["train={batch: 2, steps: 3}", "algorithm.kl_coef=0.01"]
    for place, layer in enumerate(["algorithm.distill=0.1", "algorithm={distill: 0.0, drop_zero_variance: true}"]):
        folder = train_rl(load_config(RLConfig, [*_layers(tmp_path / str(place)), *extra, layer]))
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            assert all(math.isfinite(value) for value in json.loads(line).values() if isinstance(value, float))
        last = json.loads(line)
        assert last["kl"] > 0 and ("imitation" in last) == (place == 0)


@pytest.mark.parametrize(
    "layer, message",
    [
        ("model.path=tiny:block", "block_causal attention"),
        ("algorithm.group_size=6", "set group_size=8"),
        ("algorithm.mismatch_cap=2.0", "learnt from whole"),
        ("algorithm.drop_zero_variance=true", "set distill=0"),
        ("algorithm.baseline=std", "has no effect in dtreerpo"),
        ("decoding.stop_at_eos=true", "set stop_at_eos=false"),
        ("decoding.schedule=timestep", "schedule=even"),
        ("decoding={steps: 3, block_size: 4}", "divide evenly"),
        ("decoding.steps=1", "cannot be cut into levels=2"),
        ("decoding={remask: running_confidence}", "remask"),
    ],
)
def test_refusals(tmp_path, layer, message):
    with pytest.raises(Exception, match=message):
        load_config(RLConfig, [*_layers(tmp_path), layer])
