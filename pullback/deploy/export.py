"""``trainer.export``: a folder with a library that trains without Python, and what is needed to use it."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback import codegen
from pullback.deploy import image, templates, web
from pullback.deploy.functions import object_code
from pullback.deploy.header import check_name, header
from pullback.deploy.program import Program, program_of
from pullback.deploy.source import check_symbols, data_blocks, runtime_source, source
from pullback.deploy.targets import FUNCTIONS, Platform, platform
from pullback.deploy.toolchain import Toolchain
from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.training.summary import ROWS
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.low_rank import updates_of
from pullback.runtime.files import path_of
from pullback.runtime.tables import Table
from pullback.version import __version__

_HOSTED = ("-fPIC", "-pthread", "-D_GNU_SOURCE")
_BARE = ("-DPB_NO_THREADS", "-DPB_NO_FILES", "-ffreestanding", "-fbuiltin")  # fabs is an instruction
_SMALL = ("-Os", "-DPB_CONVERT_BLOCK=32")  # little flash, and little stack
_COMMON = (
    "-g0", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections",
)  # fmt: skip

BESIDE = {"web": web.write}  # by Platform.beside


@dataclass(frozen=True)
class Exported:
    """What an export has written: the folder, and what its manifest says."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """That of the library."""
        return str(self.manifest["name"])

    @property
    def instance_bytes(self) -> int:
        """What an instance's tensors take. ``<name>_bytes`` adds its tables and threads, a few thousand bytes."""
        return int(self.manifest["memory"]["instance"])

    def write_data(self, train: Sequence[Any] | None, test: Sequence[Any] | None = None) -> Path:
        """Write the data sets that an image trains on and is tested with to ``image/data.c``: for each input and target
        an array of rows, in their order. Their dtype is that in flash: small integers and float16 take less of it, and
        become the model's batch by batch.

        Raises UserError for a platform whose programs are no images, ShapeError and DTypeError for what does not fit.
        """
        if not (self.folder / image.FOLDER).is_dir():
            raise UserError(
                f"a library for {self.manifest['platform']} has no image: programs there read data themselves",
                hint='images are for microcontrollers, such as target="cortex-m4"',
            )
        file = self.folder / image.FOLDER / image.DATA
        image.write_data(file, self.name, image.batch_of(self.manifest), train, test)
        return file

    def table(self) -> Table:
        """The files with their sizes, and where the memory of an instance goes."""
        files = [[name, f"{entry['bytes']:,}"] for name, entry in self.manifest["files"].items()]
        memory = [[f"memory: {name}", f"{count:,}"] for name, count in self.manifest["memory"].items()]
        return Table(["", "bytes"], [*files, *memory], f"{self.name} for {self.manifest['platform']}", left=1)

    def __repr__(self) -> str:
        return f"Exported({str(self.folder)!r}, {self.manifest['platform']}, instance of {self.instance_bytes:,} bytes)"

    def _repr_html_(self) -> str:
        return self.table().html()


def export(
    trainer: Trainer,
    folder: str | os.PathLike[str],
    target: str = "host",
    name: str | None = None,
    *,
    batch_size: int | None = None,
    sizes: Mapping[str, int] | None = None,
    embed: bool = True,
    functions: Sequence[str] | str | None = None,
    fold_frozen: bool = False,
    merge: bool | None = None,
) -> Exported:
    """See :meth:`pullback.training.Trainer.export`."""
    path = Path(path_of(folder))
    name = _name(trainer) if name is None else name
    check_name(name)
    check_symbols(name)
    earlier = _made_before(path)
    where = platform(target)
    chosen = where.functions if functions is None else _functions(functions)
    if _merges(trainer, chosen, functions is None, merge):
        trainer, chosen = trainer.without_updates(), tuple(f for f in chosen if f != STEP)
    batch = _batch(trainer, batch_size)
    tools = Toolchain.of(where)
    program = program_of(trainer, name, where, batch, _sizes(sizes), chosen, bool(fold_frozen))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path if path.is_dir() else path.parent  # a folder that is there may be another file system
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=beside) as made:
        work = Path(made) / "library"
        work.mkdir()
        trainer.save(work / f"{name}.safetensors")
        _put_in_order(work / f"{name}.safetensors")
        _write(program, tools, work, bool(embed))
        manifest = _manifest(program, tools, work, bool(embed))
        (work / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        _replace(work, path, earlier)
    return Exported(path, manifest)


STEP = "step"


def _merges(trainer: Trainer, functions: Sequence[str], by_default: bool, merge: bool | None) -> bool:
    """Whether the library is of the model without updates, whose weights they are part of."""
    if merge is None:
        return bool(updates_of(trainer.mod)) and STEP not in functions
    if merge and STEP in functions and not by_default:
        raise ArgumentError(
            "a library with a step trains the updates, which are no part of the weights then",
            hint='leave "step" out of functions, or merge=True',
        )
    return bool(merge) and bool(updates_of(trainer.mod))


def _put_in_order(file: Path) -> None:
    """The entries of a checkpoint's header by name: the package safetensors writes its metadata in any order, and the
    same trainer is to give the same bytes."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = json.dumps(json.loads(data[8 : 8 + length]), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    head = text.encode()
    head += b" " * (-len(head) % 8)
    file.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + length :])


def _write(program: Program, tools: Toolchain, work: Path, embed: bool) -> None:
    """All files of the library."""
    name, where = program.name, program.platform
    (work / f"{name}.h").write_text(header(program), encoding="utf-8")
    if where.board is None:  # it allocates memory, and throws
        (work / f"{name}.hpp").write_text(templates.cpp_header(program), encoding="utf-8")
    (work / f"{name}.c").write_text(source(program, embed), encoding="utf-8")
    (work / "pullback_runtime.c").write_text(runtime_source(), encoding="utf-8")
    (work / "LICENSE").write_text(templates.licence(), encoding="utf-8")
    objects = [] if where.sources else [f"{name}.o"]
    for variant in program.variants:
        planned = {n: f.planned for n, f in variant.functions.items()}
        objects.append(f"{name}_{variant.cpu}.o")
        code = object_code(planned, variant.target, f"{name}__{{}}_{variant.cpu}", name)
        (work / objects[-1]).write_bytes(code)
    blocks, first = data_blocks(program, embed), program.variants[-1].target
    if blocks:
        objects.append(f"{name}_data.o")
        (work / objects[-1]).write_bytes(codegen.compile_object(codegen.emit_data(blocks, first), first))
    compiled = [*flags(where), "-Wall", "-Wextra", f"-ffile-prefix-map={work}=."]
    if not where.sources:
        tools.compile([f"{name}.c"], objects[0], compiled, work)
    tools.archive(objects, f"lib{name}.a", work)
    if where.shared:
        _link_shared(program, tools, work, objects)
    templates.write_project(program, work)
    if where.beside:
        BESIDE[where.beside](program, tools, compiled, objects, work)
    for file in objects:
        (work / file).unlink()
    if where.board is not None:
        image.write_image(program, work)


def flags(where: Platform) -> list[str]:
    """Those with which C is compiled for a platform. Libraries that are shipped are small: kernels are no C, and the
    loops that take time are vectorized nevertheless."""
    level = "-O2" if where.bare or where.name == "host" else "-Os"
    return [level, *_COMMON, *(_BARE if where.bare else _HOSTED), *(_SMALL if where.board else ()), *where.flags]


def shared_name(program: Program) -> str:
    """The file name of the shared library."""
    suffix = program.platform.shared
    return f"{program.name}.dll" if suffix == "dll" else f"lib{program.name}.{suffix}"


def _link_shared(program: Program, tools: Toolchain, work: Path, objects: list[str]) -> None:
    output, suffix = shared_name(program), program.platform.shared
    own = {
        "so": [f"-Wl,-soname,{output}", "-Wl,-z,defs", "-Wl,--gc-sections", "-Wl,-s", "-pthread", "-lm"],
        "dylib": ["-s", f"-Wl,-install_name,@rpath/{output}"],
        "dll": ["-s", f"-Wl,--out-implib,lib{output}.a"],
    }[suffix]
    tools.link(["-shared", *objects, *own, "-o", output], work)


def _manifest(program: Program, tools: Toolchain, work: Path, embed: bool) -> dict[str, Any]:
    """What there is to know of the library, for people and programs."""

    def described(tensors: Any) -> list[dict[str, Any]]:
        return [
            {"name": t.name, "kind": t.kind, "shape": list(t.shape), "dtype": t.dtype, "bytes": t.nbytes,
             "rows": t.has_rows}
            for t in tensors
        ]  # fmt: skip

    kinds = {"parameters": "parameter", "states": "state", "random": "random state", "optimizer": "optimizer state"}
    changing = [t for t in program.kept if t.constant is None]
    memory = {label: sum(t.nbytes for t in changing if t.kind == kind) for label, kind in kinds.items()}
    arena, results = (max(getattr(v, k) for v in program.variants) for k in ("arena_bytes", "result_bytes"))
    memory |= {"arena": arena, "results": results, "batch": program.batch_bytes}
    own = program.kept_bytes + max(arena, program.header_bytes) + results + program.batch_bytes
    memory["instance"] = program.instance_bytes or own
    if program.platform.board is not None:
        memory["stack"] = image.stack_bytes(program)
    users = work / image.FOLDER / image.DATA
    files = sorted(p for p in work.rglob("*") if p.is_file() and p != users)
    return {
        "name": program.name,
        "pullback": __version__,
        "platform": program.platform.name,
        "targets": {v.cpu: v.target.key for v in program.variants},
        "compiler": tools.name,
        "batch": program.batch,
        "inputs": described(program.inputs),
        "targets of the loss": described(program.targets),
        "outputs": described(program.outputs),
        "kept": described(program.kept),
        "folded": [t.name for t in program.kept if t.constant is not None],
        "hyperparameters": list(program.hyperparameters),
        "functions": {
            v.cpu: {n: {"rows": f.planned.rows, "arena": f.planned.layout.arena_bytes} for n, f in v.functions.items()}
            for v in program.variants
        },
        "memory": memory,
        "constants": sum(array.nbytes for array in program.constants),
        "weights": "embedded" if embed else f"{program.name}.safetensors",
        "files": {
            p.relative_to(work).as_posix(): {
                "bytes": p.stat().st_size,
                "sha256": hashlib.sha256(p.read_bytes()).hexdigest(),
            }
            for p in files
        },
    }


def _made_before(path: Path) -> set[str]:
    """The files of a folder that an export has made; raises a UserError where it was none, and is not empty."""
    if not path.exists() or (path.is_dir() and all(p.name.startswith(".") for p in path.iterdir())):
        return set()
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        files = {"manifest.json", *manifest["files"]} if "pullback" in manifest else set()
    except (OSError, ValueError, KeyError, TypeError):
        files = set()
    if not files or any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise UserError(
            f"{path} exists, and is no folder that an export has made",
            hint="give a folder that is empty, or that does not exist yet",
        )
    return files


def _replace(work: Path, path: Path, earlier: set[str]) -> None:
    """Move files to their place: those of an earlier export make room, all others stay."""
    names = sorted(p.relative_to(work).as_posix() for p in work.rglob("*") if p.is_file())
    names.sort(key=lambda name: name == "manifest.json")  # the last one: until then, the earlier one counts
    taken = [name for name in names if name not in earlier and (path / name).exists()]
    if taken:
        raise UserError(f"{path} has a {taken[0]} that no export has made", hint="move it, or give another folder")
    for name in earlier - set(names):
        (path / name).unlink(missing_ok=True)
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(work / name, path / name)


def _name(trainer: Trainer) -> str:
    kind = "model" if trainer.model is None else type(trainer.model).__name__.lower()
    return {"sequential": "model"}.get(kind, kind)


def _functions(functions: Any) -> tuple[str, ...]:
    given = (functions,) if isinstance(functions, str) else tuple(functions)
    unknown = [str(f) for f in given if f not in FUNCTIONS]
    if unknown or not any(f.startswith("predict") for f in given):
        problem = f"there is no function {unknown[0]}" if unknown else "a library needs predict or predict_one"
        raise ArgumentError(f"{problem}; they are {', '.join(FUNCTIONS)}")
    return tuple(f for f in FUNCTIONS if f in given)


def _batch(trainer: Trainer, asked: int | None) -> int:
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        raise ArgumentError(f"batch_size must be an int ≥ 1, got {asked!r}")
    own = trainer._interface.batch
    if own is None:
        raise UserError("the model's first input has no batch dimension", hint="declare one, of size 1, say")
    if asked is None:
        return own if isinstance(own, int) else ROWS
    return asked


def _sizes(sizes: Any) -> dict[str, int]:
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping) or not all(isinstance(v, int) and v > 0 for v in sizes.values()):
        raise ArgumentError(f"sizes must be a dict from names to sizes, got {sizes!r}", hint='sizes={"t": 64}')
    return dict(sizes)
