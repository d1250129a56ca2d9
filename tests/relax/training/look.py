"""``python -m tests.relax.training.look FOLDER``: what a notebook shows of a training, as a page to look at.

Runs a notebook and writes page.html, and page.png where there is a Chromium to draw it.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELLS = (
    "from pullback.callbacks import EarlyStopping\n"
    "from tests.relax.training.models import classes, trainer_of\n"
    "x, y = classes(400)\n"
    "trainer = trainer_of('llvm')\n"
    "history = trainer.fit(\n"
    "    x[:300], y[:300], epochs=12, validation=(x[300:], y[300:]), metrics=['f1', 'top2'], train_metrics=True,\n"
    "    callbacks=EarlyStopping(patience=3),\n"
    ")",
    "history.plot()",
    "found = trainer_of('llvm').lr_find(x, y, end=10.0, batch_size=32)\nfound",
    "found.plot()",
    "trainer.evaluate(x, y, metrics=['auc'])",
)


def main(folder: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    root = Path(__file__).resolve().parents[3]
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(root)}}).execute()
    parts = ["<body style='font-family:sans-serif;font-size:13px'>"]
    for cell in book.cells:
        parts.append(f"<pre style='background:#f5f5f5;padding:6px'>{html.escape(cell.source)}</pre>")
        for output in cell.outputs:
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(data["text/html"])
            elif "image/png" in data:
                parts.append(f'<img style="max-width:100%" src="data:image/png;base64,{data["image/png"]}">')
            else:
                parts.append(f"<pre>{html.escape(data.get('text/plain', output.get('text', '')))}</pre>")
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "page.html"
    page.write_text("\n".join(parts))
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if browser is not None:
        picture = f"--screenshot={folder / 'page.png'}"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,1500", picture]
        subprocess.run([*command, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
