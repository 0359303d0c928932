"""Writes a few files of orders, payments and clicks: `python make_orders.py DIRECTORY [SEED]`."""

import sys
from pathlib import Path

from holdfast.demo.generate import Volume, write_input

if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(write_input(Path(sys.argv[1]), seed, Volume(ticks=4)))
