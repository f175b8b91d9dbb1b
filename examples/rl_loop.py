"""One whole RL algorithm for a diffusion language model, without the framework: read it top to bottom.

A 30-line masked denoiser learns, from reward alone, to write sequences whose digits increase. The algorithm is d1 /
diffu-GRPO (arXiv 2504.12216): decode G answers in parallel, grade them, estimate every token's log-probability in one
fully masked pass, and take a clipped policy-gradient step. Run: python examples/rl_loop.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS, LENGTH = 10, 6
MASK = DIGITS  # token ids: 0..9 are digits, 10 is the mask
GROUP, PROMPTS, STEPS, UPDATES = 16, 8, 60, 2
CLIP, LEARNING_RATE = 0.5, 3e-3


class Denoiser(nn.Module):
    """A small transformer encoder. The prompt is the first digit; the state at position t predicts the token at t."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.token = nn.Embedding(DIGITS + 1, width)
        self.position = nn.Parameter(torch.randn(LENGTH + 1, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, DIGITS)

    def forward(self, ids_BT: Tensor) -> Tensor:
        return self.head(self.layers(self.token(ids_BT) + self.position))


@torch.no_grad()
def rollout(model: Denoiser, prompt_B: Tensor, steps: int = 3, temperature: float = 1.0) -> Tensor:
    """Low-confidence decoding: propose every masked token, keep the most confident ones, repeat."""
    ids_BT = torch.full((len(prompt_B), LENGTH + 1), MASK)
    ids_BT[:, 0] = prompt_B
    for _ in range(steps):
        logits_BTV = model(ids_BT)
        token_BT = torch.distributions.Categorical(logits=logits_BTV / temperature).sample()
        confidence_BT = logits_BTV.softmax(-1).gather(-1, token_BT[..., None])[..., 0]
        confidence_BT[ids_BT != MASK] = -1.0
        chosen_BK = confidence_BT.topk(LENGTH // steps, dim=1).indices
        ids_BT = ids_BT.scatter(1, chosen_BK, token_BT.gather(1, chosen_BK))
    return ids_BT


def reward(ids_BT: Tensor) -> Tensor:
    """The share of neighbours in increasing order; the prompt counts as the first digit."""
    return (ids_BT[:, 1:] > ids_BT[:, :-1]).float().mean(1)


def token_logps(model: Denoiser, ids_BT: Tensor, masked_BT: Tensor) -> Tensor:
    """log p(token) at every response position, all of them read from one masked pass."""
    logits_BTV = model(torch.where(masked_BT, MASK, ids_BT))
    return F.log_softmax(logits_BTV, -1)[:, 1:].gather(-1, ids_BT[:, 1:, None])[..., 0]


def views(batch: int, generator: torch.Generator, prompt_rate: float = 0.15) -> Tensor:
    """d1 masks the whole response, and the prompt at random so that repeated updates do not see the same input."""
    masked_BT = torch.ones(batch, LENGTH + 1, dtype=torch.bool)
    masked_BT[:, 0] = torch.rand(batch, generator=generator) < prompt_rate
    return masked_BT


def policy_loss(logp_BT: Tensor, old_BT: Tensor, advantage_B: Tensor) -> Tensor:
    """PPO's clipped surrogate on token ratios, averaged over tokens."""
    ratio_BT, advantage_B1 = (logp_BT - old_BT).exp(), advantage_B[:, None]
    clipped_BT = ratio_BT.clamp(1 - CLIP, 1 + CLIP)
    return -torch.minimum(ratio_BT * advantage_B1, clipped_BT * advantage_B1).mean()


def main() -> tuple[float, float]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    first = last = 0.0
    for step in range(STEPS):
        # Prompts, each repeated G times; small first digits leave room to increase.
        prompt_B = torch.randint(0, 4, (PROMPTS,), generator=generator).repeat_interleave(GROUP)
        ids_BT = rollout(model, prompt_B)
        reward_B = reward(ids_BT)
        # Credit: better or worse than the other answers to the same prompt.
        advantage_B = reward_B - reward_B.view(PROMPTS, GROUP).mean(1).repeat_interleave(GROUP)
        # The old and the new policy must be compared on the same views, so the views are drawn first.
        masks = [views(len(ids_BT), generator) for _ in range(UPDATES)]
        with torch.no_grad():
            olds = [token_logps(model, ids_BT, mask) for mask in masks]
        for mask, old in zip(masks, olds, strict=True):
            optimizer.zero_grad()
            policy_loss(token_logps(model, ids_BT, mask), old, advantage_B).backward()
            optimizer.step()
        last = reward_B.mean().item()
        first = first or last
        if step % 10 == 0 or step == STEPS - 1:
            print(f"step {step:3d}  reward {last:.3f}  example {ids_BT[0].tolist()}")
    return first, last


if __name__ == "__main__":
    main()
