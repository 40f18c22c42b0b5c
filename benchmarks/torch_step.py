"""Steps of Adam in PyTorch, one for each line on standard input; run by ``peers.TorchStep``.

Both sides use the same number of threads, the same shapes, the full batch and the squared loss.
Two arrangements: with the matrices S, as a first implementation would write it, and with the
product XW, which is how the package trains students narrower than d.
"""

import json
import math
import sys
import time

import torch


def make_step(arrangement: str, dtype: str, starts: int, dimension: int, count: int):
    """Return one full-batch step of a softmax student on T = 2 tokens."""
    real = getattr(torch, dtype)
    width = dimension // 2
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 2, dimension, generator=generator, dtype=real)
    y = torch.softmax(torch.randn(count, 2, 2, generator=generator, dtype=real), -1)
    w = torch.randn(starts, dimension, width, generator=generator, dtype=real).requires_grad_()
    optimiser = torch.optim.Adam([w], lr=0.05)
    flat, eye = x.reshape(-1, dimension), torch.eye(2, dtype=real)

    def step() -> None:
        optimiser.zero_grad()
        if arrangement == "S":
            s = w @ w.transpose(1, 2) / math.sqrt(width * dimension)
            projected = (flat @ s).reshape(starts, count, 2, dimension)
            h = projected @ x.transpose(1, 2) / math.sqrt(dimension)
        else:
            projected = flat @ w.permute(1, 0, 2).reshape(dimension, starts * width)
            p = projected.reshape(count, 2, starts, width).permute(2, 0, 1, 3)
            h = p @ p.transpose(2, 3) / (dimension * math.sqrt(width))
        trace = w.square().sum((1, 2)) / (dimension * math.sqrt(width))
        gap = torch.softmax(h - trace[:, None, None, None] * eye, -1) - y
        # the starts do not interact, so that one backward pass gives all gradients
        gap.square().sum((2, 3)).mean(1).sum().backward()
        optimiser.step()

    return step


if __name__ == "__main__":
    clock, threads, *arguments = json.loads(sys.argv[1])
    now = time.process_time if clock == "processor" else time.perf_counter
    torch.set_num_threads(threads)
    step = make_step(*arguments)
    step()
    print(torch.__version__, flush=True)
    for _ in sys.stdin:
        start = now()
        step()
        print(now() - start, flush=True)
