"""Make the pictures of docs/gallery.md by running its blocks: those named on the command line, or all."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from PIL import Image

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
STYLE = {"savefig.dpi": 110, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def main(names: list[str]) -> None:
    """Run the blocks in the folder of the pictures, and reduce each picture to a palette."""
    matplotlib.use("Agg")
    plt.rcParams.update(STYLE)
    os.chdir(HERE / "gallery")
    begin, *blocks = BLOCK.findall((HERE / "gallery.md").read_text(encoding="utf-8"))
    for block in blocks:
        (picture,) = re.findall(r'plt\.savefig\("(.*?)"\)', block)
        if names and picture not in names:
            continue
        exec(compile(begin + block, picture, "exec"), {})
        plt.close("all")
        Image.open(picture).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(picture, optimize=True)
        print(picture, Path(picture).stat().st_size, "bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
