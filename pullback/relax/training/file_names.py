"""Names of files that are saved again and again, which have the step, the epoch or both: "runs/{step:08d}.bin"."""

from __future__ import annotations

import re
import string
from pathlib import Path

from pullback.ir.errors import ArgumentError

_FIELDS = ("step", "epoch")
_SPEC = re.compile(r"(0?[0-9]+)?d?")
_HINT = 'such as "runs/{step:08d}.safetensors", or a name without fields, which is replaced each time'


class FileNames:
    """The files of a template. Raises ArgumentError for one that is none."""

    def __init__(self, template: str) -> None:
        self.template = template
        folder, name = Path(template).parent, Path(template).name
        try:
            parts = list(string.Formatter().parse(name))
            others = [n for _, n, _, _ in string.Formatter().parse(str(folder)) if n is not None]
        except ValueError as error:
            raise ArgumentError(f"the path {template!r} is no template: {error}", hint=_HINT) from None
        fields = [n for _, n, _, _ in parts if n is not None]
        odd = [f"{{{n}{':' + s if s else ''}}}" for _, n, s, c in parts if n is not None and not _is_fitting(n, s, c)]
        if others or odd or len(set(fields)) < len(fields):
            problem = f"it names {odd[0]}" if odd else "its folder has a field" if others else "a field comes twice"
            raise ArgumentError(
                f"the path {template!r} is no name of checkpoints: {problem}; its fields are {{step}} and {{epoch}}",
                hint=_HINT,
            )
        self.has_fields = bool(fields)
        self._folder = folder
        self._pattern = re.compile(
            "".join(re.escape(text) + (f"(?P<{n}>[0-9]+)" if n else "") for text, n, _, _ in parts)
        )

    def path(self, step: int, epoch: int) -> Path:
        return Path(self.template.format(step=step, epoch=epoch))

    def there(self) -> list[Path]:
        """The files that are there, the latest first: by steps, then by epochs."""
        if not self._folder.is_dir():
            return []
        found = [(match, path) for path in self._folder.iterdir() if (match := self._pattern.fullmatch(path.name))]
        return [path for _, path in sorted(((_numbers(match), path) for match, path in found), reverse=True)]


def _is_fitting(name: str, spec: str | None, conversion: str | None) -> bool:
    return name in _FIELDS and conversion is None and _SPEC.fullmatch(spec or "") is not None


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(match.groupdict().get(name) or 0) for name in _FIELDS)
