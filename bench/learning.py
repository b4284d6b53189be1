"""200 steps of a 4-layer GPT with AdamW on real text: Inkle's losses beside eager's.

    python bench/learning.py
    python bench/learning.py --update        into docs/coverage.md

The text is the manual that every Python brings along (``pydoc_data.topics``), as bytes. Eager trains
from several seeds; the spread of their curves is the noise. Inkle trains from the first seed, forward,
backward and optimizer compiled: the mean distance of its curve from eager's of that seed has to be a
fifth of the distance of the nearest other seed's, or less.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import common
import torch
import torch.nn.functional as F
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- learning:begin -->", "<!-- learning:end -->"
WIDTH, HEADS, LAYERS, LENGTH, BATCH = 128, 4, 4, 128, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def text() -> torch.Tensor:
    from pydoc_data.topics import topics

    joined = "\n".join(topics[name] for name in sorted(topics))
    return torch.tensor(list(joined.encode()), dtype=torch.int64)


def train(seed: int, steps: int, backend: str | None, data: torch.Tensor) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(seed)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(ids).flatten(0, 1), wanted.flatten())

    update: Any = optimizer.step
    if backend:
        loss_of, update = (torch.compile(f, backend=backend) for f in (loss_of, update))
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(data) - LENGTH - 1, (BATCH,), generator=generator)
        rows = data[starts[:, None] + torch.arange(LENGTH + 1)]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(rows[:, :-1], rows[:, 1:])
        loss.backward()
        update()
        losses.append(loss.item())
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--update", action="store_true", help="write docs/coverage.md")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    import inkle

    data = text()
    eager = [train(seed, arguments.steps, None, data) for seed in range(arguments.seeds)]
    found = train(0, arguments.steps, "inkle", data)
    compiled = [r for r in inkle.reports() if r.compiled]
    if not compiled or len(compiled) != len(inkle.reports()):
        print("a graph ran in eager")
        return 1
    noise = [min(abs(e[i] - eager[0][i]) for e in eager[1:]) for i in range(arguments.steps)]
    apart = [abs(a - b) for a, b in zip(found, eager[0])]
    shown = [i for i in (1, 25, 50, 100, 150, 200) if i <= arguments.steps]
    rows = [[f"eager, seed {n}", *(f"{e[i - 1]:.4f}" for i in shown)] for n, e in enumerate(eager)]
    rows.append(["Inkle, seed 0", *(f"{found[i - 1]:.4f}" for i in shown)])
    result = common.table(["loss at step", *map(str, shown)], rows)
    tail = arguments.steps // 4
    result += (f"\n\nLargest distance of Inkle's curve from eager's of the same seed: {max(apart):.1e}; "
               f"mean of the last {tail} steps {sum(apart[-tail:]) / tail:.1e}, where the nearest other "
               f"seed is {sum(noise[-tail:]) / tail:.1e} away. Text: {len(data)} bytes.")  # fmt: skip
    print(result)
    if arguments.update:
        common.update_docs(os.path.join(ROOT, "docs", "coverage.md"), BEGIN, END, result)
    return 0 if sum(apart) < 0.2 * sum(noise) else 1


if __name__ == "__main__":
    sys.exit(main())
