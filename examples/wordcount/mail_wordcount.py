"""How often is each word used in a directory of mails? Exact counts that go on when new mails come.

    mkdir -p mails/in && tar xzf mails.tar.gz -C mails/in --strip-components 1
    holdfast run examples/wordcount/mail_wordcount.py --store mails/store --until available

A word is a run of letters a to z, in lower case. What comes out is a changelog: a word appears again whenever its count
has grown, so the largest count of a word is the one that holds. `python mail_wordcount.py` shows the most frequent words.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import holdfast as hf

HERE = os.environ.get("MAILS", "mails")


def build(here: str, *, period: float = 2.0, lines_per_step: int = 50_000) -> hf.Topology:
    """The topology over the files in `here`/in, writing to `here`/out."""
    made = hf.Topology("mail_wordcount")
    files = hf.Files(f"{here}/in", "text", max_rows_per_step=lines_per_step)
    lines = made.source(files, name="mails").consistent("words", period=period)
    words = lines.select("explode(regexp_extract_all(lower(value), '([a-z]+)', 1)) as word")
    counts = words.aggregate("word", count=hf.count(), name="counts")
    counts.sink(hf.FileSink(f"{here}/out", "csv"), name="counts_out")
    return made


def merged(here: str) -> dict[str, int]:
    """The counts that hold now."""
    counts: dict[str, int] = {}
    for path in Path(here, "out").glob("part-*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                counts[row["word"]] = max(counts.get(row["word"], 0), int(row["count"]))
    return counts


topology = build(HERE)

if __name__ == "__main__":
    for word, count in sorted(merged(HERE).items(), key=lambda item: (-item[1], item[0]))[:20]:
        print(f"{count:8} {word}")
