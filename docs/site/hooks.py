"""What the site has beside the pages of docs/: README, CONTRIBUTING, CHANGELOG, and the reference of public names.

Links are written for readers of the repository, so those of README lead to `docs/x.md`, and those of docs/ to
`../README.md`: here they are turned to the pages of the site. A link to a file that is no page becomes its path.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import textwrap
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ADDED = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
PAGES = {path: name for name, path in ADDED.items()}

PREAMBLE = (
    (ROOT / "docs/site/preamble.py").read_text(encoding="utf-8").partition('"""\n\n')[2].replace("  # noqa: F401", "")
)

# The page of each package.
REFERENCE = {
    "pullback": "pullback", "nn": "pullback.nn", "functional": "pullback.nn.functional", "init": "pullback.nn.init",
    "optim": "pullback.optim", "training": "pullback.relax.training", "callbacks": "pullback.callbacks",
    "frontend": "pullback.relax.frontend",
    "relax": "pullback.relax", "transform": "pullback.relax.transform", "ir": "pullback.ir", "te": "pullback.te",
    "relay": "pullback.relay",
    "runtime": "pullback.runtime", "distributed": "pullback.distributed", "sklearn": "pullback.sklearn",
    "testing": "pullback.testing", "nd": "pullback.nd",
}  # fmt: skip
TRAINER = "pullback.relax.training.trainer.Trainer"
EXAMPLES = '??? note "Examples begin with this"\n\n' + textwrap.indent(f"```python\n{PREAMBLE}```\n", "    ")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
INNER_LIST = re.compile(r"^  (?=[-*] )", re.MULTILINE)
REMARK = re.compile(r"^( *```\w+) \(.*\)$", re.MULTILINE)  # ```sh (not run by the tests)
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, path in ADDED.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    places: dict[str, str] = {TRAINER: "trainer"}
    for name, package in REFERENCE.items():
        content = reference_page(package, name, places)
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    inherited = "    options:\n      inherited_members: true\n      heading_level: 1\n"
    files.append(File.generated(config, "reference/trainer.md", content=f"::: {TRAINER}\n{inherited}"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links for readers of the repository into links of the site; remarks behind a block's language go, and lists
    in lists are indented by four spaces, as Python-Markdown wants them."""
    markdown = REMARK.sub(r"\1", markdown)
    source = page.file.src_uri
    folder = posixpath.dirname(ADDED.get(source, f"docs/{source}"))

    def turned(match: re.Match[str]) -> str:
        image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        goal = PAGES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(goal) is None and (ROOT / path).exists():
            return text if text.startswith("`") else f"{text} (`{path}`)"
        return f"{image}[{text}]({posixpath.relpath(goal, posixpath.dirname(source) or '.')}{anchor})"

    parts = FENCE.split(markdown)  # those at odd places are blocks of code
    return "".join(part if k % 2 else INNER_LIST.sub("    ", LINK.sub(turned, part)) for k, part in enumerate(parts))


def reference_page(package: str, page: str, places: dict[str, str]) -> str:
    """The public functions and classes of a package, by their docstrings. ``places``: the page of each, filled here;
    what has a page already is a link to it."""
    module = importlib.import_module(package)
    lines = [f"# {package}", "", inspect.cleandoc(module.__doc__ or "").partition("\n\n")[0], "", EXAMPLES, ""]
    for name in public(package):
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue  # packages have pages of their own
        path = f"{value.__module__}.{value.__qualname__}"
        if path not in places:
            places[path] = page
            lines += [f"::: {path}", ""]
        else:
            lines += [f"## {name}", "", f"[{path}]({places[path]}.md#{path})", ""]
    return "\n".join(lines)


def public(package: str) -> list[str]:
    """Names of a package's functions, classes and packages that users may use, in order."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, value in vars(module).items() if getattr(value, "__module__", None) == package]
    return sorted((n for n in names if not n.startswith("_")), key=str.lower)
