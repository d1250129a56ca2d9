"""For each pass of `python -m pullback opt` a module that it changes: what the passes do, one after another, is shown
by these too.

``SAMPLES`` maps the name of a pass, with its language where both have one of that name, to the list that runs it and
the text of the module.
"""

from __future__ import annotations

import itertools
import re
import textwrap


def graph(text: str) -> str:
    """A module of graph functions and kernels; ``def f(x: {2, 3}, w: {3}):`` stands for float32 tensors."""
    lines = [
        "@R.function\n" + line if line.startswith("def ") and not before.startswith("@") else line
        for before, line in itertools.pairwise(["", *textwrap.dedent(text).strip().splitlines()])
    ]
    body = textwrap.indent(re.sub(r": \{([^}]*)\}", r': R.Tensor((\1,), "float32")', "\n".join(lines)), "    ")
    return f"from pullback.script import ir as I, relax as R, tir as T\n\n\n@I.ir_module\nclass Module:\n{body}\n"


def relay(text: str) -> str:
    """A module of relay, or its function ``main`` of parameters and a body."""
    return '#[version = "0.0.5"]\n' + textwrap.dedent(text).strip() + "\n"


TRAINER = graph("""
    I.module_attrs({"param_num": 1, "state_num": 0})

    def backbone(x: {4, 3}, w: {3, 2}):
        y = R.matmul(x, w)
        return y
""")
_SETUP = 'SetupTrainer(MSELoss(), SGD(0.1), [R.Tensor((4, 2), "float32"), R.Tensor((4, 2), "float32")])'

SAMPLES: dict[str, tuple[str, str]] = {
    "AddRandomState": (
        "AddRandomState",
        graph("""
            def main(x: {4, 3}):
                y = R.nn.dropout(x, 0.5)
                return y
        """),
    ),
    "AdjointKernel": (
        'AdjointKernel("square")',
        graph("""
            @T.prim_func
            def square(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
                for i in range(4):
                    y[i] = x[i] * x[i]
        """),
    ),
    "BindParams": (
        'BindParams("main", {"w": [2.0, 3.0]})',
        graph("""
            @R.function
            def main(x: R.Tensor((2,), "float64"), w: R.Tensor((2,), "float64")):
                return R.multiply(x, w)
        """),
    ),
    "BindSizes": (
        'BindSizes({"n": 8})',
        graph("""
            def main(x: {"n", 3}):
                return R.exp(x)
        """),
    ),
    "CanonicalizeBindings": (
        "CanonicalizeBindings",
        graph("""
            def main(x: {3}):
                y = x
                t = (y, x)
                z = R.add(t[0], t[1])
                return z
        """),
    ),
    "CheckAccesses": (
        "CheckAccesses",
        graph("""
            @T.prim_func
            def take(x: T.Buffer((4,), "float32"), at: T.Buffer((2,), "int64"), y: T.Buffer((2,), "float32")):
                for i in range(2):
                    y[i] = x[at[i]]
        """),
    ),
    "ChooseLayouts": (
        "FuseOps, ChooseLayouts",
        graph("""
            def main(x: {2, 16, 12, 12}, w: {32, 16, 3, 3}, v: {32, 32, 3, 3}):
                y = R.nn.relu(R.nn.conv2d(x, w))
                z = R.nn.relu(R.nn.conv2d(y, v))
                return R.sum(z)
        """),
    ),
    "DeadCodeElimination of the graph IR": (
        "DeadCodeElimination",
        graph("""
            def main(x: {3}):
                y = R.exp(x)
                z = R.sin(x)
                return z
        """),
    ),
    "DecomposeOpsForInference": (
        "DecomposeOpsForInference",
        graph("""
            def main(x: {2, 3, 4, 4}, gamma: {3}, beta: {3}, mean: {3}, var: {3}):
                y = R.nn.batch_norm(x, gamma, beta, mean, var)
                return y[0]
        """),
    ),
    "DecomposeOpsForTraining": (
        "DecomposeOpsForTraining",
        graph("""
            def main(x: {2, 3}, gamma: {3}, beta: {3}):
                y = R.nn.layer_norm(x, gamma, beta, axes=[-1])
                return y
        """),
    ),
    "DefineOutputs": (
        "DefineOutputs",
        graph("""
            @T.prim_func
            def half(x: T.Buffer((4,), "float32"), y: T.Buffer((8,), "float32")):
                for i in range(4):
                    y[i] = x[i]
        """),
    ),
    "EliminateCommonSubexpr of the graph IR": (
        "EliminateCommonSubexpr",
        graph("""
            def main(x: {3}):
                y = R.exp(x)
                z = R.exp(x)
                return R.add(y, z)
        """),
    ),
    "FoldConstant of the graph IR": (
        "FoldConstant",
        graph("""
            def main(x: {3}):
                c = R.add(R.const(1.0), R.const(2.0))
                return R.add(x, c)
        """),
    ),
    "FoldScale": (
        "FoldScale",
        graph("""
            def main(x: {2, 2}):
                y = R.matmul(x, R.const([[1.0, 2.0], [3.0, 4.0]]))
                z = R.multiply(y, R.const([2.0, 0.5]))
                return z
        """),
    ),
    "FoldTranspose": (
        "FoldTranspose",
        graph("""
            def main(a: {2, 3}, b: {3, 4}):
                y = R.matmul(a, b)
                z = R.permute_dims(y)
                return z
        """),
    ),
    "KeepCopies": (
        'Gradient("main"), KeepCopies',
        graph("""
            def main(x: {3}):
                a = R.grad.start_checkpoint(x)
                b = R.exp(a)
                c = R.sin(b)
                d = R.grad.end_checkpoint(c)
                return R.sum(d)
        """),
    ),
    "FreeCopies": (
        'Gradient("main"), KeepCopies, FreeCopies',
        graph("""
            def main(x: {3}):
                a = R.grad.start_checkpoint(x)
                b = R.exp(a)
                c = R.sin(b)
                d = R.grad.end_checkpoint(c)
                return R.sum(d)
        """),
    ),
    "FuseOps of the graph IR": (
        "FuseOps",
        graph("""
            def main(x: {2, 3}, w: {3, 4}, b: {4}):
                h = R.matmul(x, w)
                y = R.add(h, b)
                return y
        """),
    ),
    "Gradient": (
        'Gradient("main")',
        graph("""
            def main(x: {3}):
                y = R.exp(x)
                z = R.sum(y)
                return z
        """),
    ),
    "HoistInvariants": (
        "InlineFunctions, HoistInvariants",
        graph("""
            def main(xs: {5, 3}, w: {3, 3}, h: {3}):
                @R.region
                def body(i: R.Tensor((), "int64"), h: {3}, x: {3}, w: {3, 3}):
                    v = R.exp(w)
                    return (R.add(R.matmul(x, v), h),), ()

                (y,), _, _ = R.loop((), (h,), (xs,), (w,), body, length=5)
                return y
        """),
    ),
    "HoistSums": (
        "InlineFunctions, CanonicalizeBindings, HoistSums",
        graph("""
            def main(xs: {5, 3, 4}, ds: {5, 3, 2}, w: {4, 2}):
                @R.region
                def body(i: R.Tensor((), "int64"), w: {4, 2}, x: {3, 4}, d: {3, 2}):
                    p = R.matmul(R.permute_dims(x), d)
                    return (R.add(w, p),), ()

                (y,), _, _ = R.loop((), (w,), (xs, ds), (), body, length=5)
                return y
        """),
    ),
    "IndependentLanes": (
        "IndependentLanes",
        graph("""
            @T.prim_func
            def flip(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
                t = T.alloc_buffer((4,), "float32")
                for b in T.vectorized(4):
                    t[b] = x[b] * x[b]
                    y[b] = t[3 - b]
        """),
    ),
    "InferByConvention": (
        f"{_SETUP}, InferByConvention",
        graph("""
            I.module_attrs({"param_num": 1, "state_num": 0})

            def backbone(x: {4, 3}, w: {3, 2}):
                y = R.nn.dropout(R.matmul(x, w), 0.5)
                return y
        """),
    ),
    "InlineCustomGradients": (
        "InlineFunctions, InlineCustomGradients",
        graph("""
            def main(x: {3}):
                @R.region
                def f(x: {3}):
                    return R.exp(x)

                @R.region
                def g(x: {3}, dy: {3}):
                    return R.multiply(dy, R.exp(x))

                y = R.custom_gradient(f, g, (x,))
                return y
        """),
    ),
    "InlineFunctions": (
        "InlineFunctions",
        graph("""
            def twice(x: {3}):
                return R.add(x, x)

            def main(x: {3}):
                y = Module.twice(x)
                return R.exp(y)
        """),
    ),
    "JoinRun": (f"{_SETUP}, JoinRun(8, 4)", TRAINER),
    "JoinStep": (f"{_SETUP}, JoinStep", TRAINER),
    "JVP": (
        'JVP("main")',
        graph("""
            def main(x: {3}):
                y = R.exp(x)
                return y
        """),
    ),
    "LegalizeOps": (
        "LegalizeOps",
        graph("""
            def main(x: {2, 3}, w: {3, 4}):
                y = R.matmul(x, w)
                return y
        """),
    ),
    "LiftWorkspaces": (
        "LiftWorkspaces",
        graph("""
            @T.prim_func
            def twice(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
                t = T.alloc_buffer((4,), "float32", scope="workspace")
                for i in range(4):
                    t[i] = x[i] + x[i]
                for i in range(4):
                    y[i] = t[3 - i]
        """),
    ),
    "LowerToTir": (
        "FuseOps, LowerToTir",
        graph("""
            def main(x: {2, 3}, w: {3, 4}):
                h = R.matmul(x, w)
                y = R.nn.relu(h)
                return y
        """),
    ),
    "MixedPrecision": (
        "MixedPrecision",
        graph("""
            def main(x: {2, 3}, w: {3, 4}):
                y = R.matmul(x, w)
                return y
        """),
    ),
    "ToMixedPrecision of the graph IR": (
        "ToMixedPrecision",
        graph("""
            def main(x: {2, 3}, w: {3, 4}):
                y = R.matmul(x, w)
                return y
        """),
    ),
    "MoveViews": (
        "MoveViews",
        graph("""
            def main(x: {4, 6}, w: {6, 768}):
                y = R.matmul(x, w)
                p = R.split(y, 2, axis=1)
                q = R.reshape(p[0], (4, 6, 64))
                k = R.reshape(p[1], (4, 6, 64))
                return R.add(q, k)
        """),
    ),
    "RaiseOps": (
        "LegalizeOps, RaiseOps",
        graph("""
            def main(x: {2, 3}, w: {3, 4}):
                y = R.matmul(x, w)
                return y
        """),
    ),
    "RebatchInputs": (
        'RebatchInputs(32, "main")',
        graph("""
            def main(x: {64, 3}, w: {3, 4}):
                y = R.matmul(x, w)
                return y
        """),
    ),
    "Rematerialize": (
        'Gradient("main"), CanonicalizeBindings, Simplify, CanonicalizeBindings, Rematerialize',
        graph("""
            def main(x: {64, 32}, w: {32, 64}, v: {64, 64}):
                h = R.nn.relu(R.matmul(x, w))
                y = R.nn.relu(R.matmul(h, v))
                return R.sum(y)
        """),
    ),
    "RepeatBroadcasts": (
        "RepeatBroadcasts",
        graph("""
            def main(x: {64, 32}, mean: {64, 1}, r: {64, 1}):
                c = R.subtract(x, mean)
                v = R.sum(R.square(c))
                y = R.multiply(c, r)
                return (v, y)
        """),
    ),
    "ResolveMatchCast": (
        "ResolveMatchCast",
        graph("""
            def main(x: {2, 3}):
                y = R.match_cast(x, R.Tensor((2, 3), "float32"))
                return R.exp(y)
        """),
    ),
    "SetupTrainer": (_SETUP, TRAINER),
    "SharePrefixes": (
        "SharePrefixes",
        graph("""
            def main(a: {2}, b: {2}, c: {2}):
                ab = R.concat([a, b])
                abc = R.concat([a, b, c])
                return (ab, abc)
        """),
    ),
    "Simplify": (
        "Simplify",
        graph("""
            def main(x: {3}):
                y = R.multiply(x, R.const(1.0))
                return R.exp(y)
        """),
    ),
    "SimplifyLoops": (
        "InlineFunctions, SimplifyLoops",
        graph("""
            def main(xs: {5, 3}, w: {3, 3}, h: {3}, g: {3}):
                @R.region
                def body(i: R.Tensor((), "int64"), h: {3}, g: {3}, x: {3}, w: {3, 3}):
                    return (R.add(R.matmul(x, w), h), R.exp(g)), ()

                (y, _), _, _ = R.loop((), (h, g), (xs,), (w,), body, length=5)
                return y
        """),
    ),
    "Specialize": (
        'Specialize("copy", [(8, 4), (8, 4)])',
        graph("""
            @T.prim_func
            def copy(x: T.Buffer(("n", 4), "float32"), y: T.Buffer(("n", 4), "float32")):
                n = T.int64()
                for i, j in T.grid(n, 4):
                    y[i, j] = x[i, j]
        """),
    ),
    "SplitGradient": (
        'SplitGradient("main")',
        graph("""
            def main(x: {2, 3}, w: {3, 4}):
                y = R.tanh(R.matmul(x, w))
                return y
        """),
    ),
    "SyncBatchNorm": (
        "SyncBatchNorm(4)",
        graph("""
            def main(x: {2, 3, 4, 4}, gamma: {3}, beta: {3}, mean: {3}, var: {3}):
                y = R.nn.batch_norm(x, gamma, beta, mean, var)
                return y
        """),
    ),
    "UnroundedProducts": (
        "UnroundedProducts",
        graph("""
            @R.function
            def main(a: R.Tensor((2, 3), "bfloat16"), b: R.Tensor((3, 4), "bfloat16")):
                y = R.matmul(a, b)
                z = R.astype(y, "float32")
                return z
        """),
    ),
    "VMap": (
        'VMap("main", in_axes=(0, None))',
        graph("""
            def main(x: {3}, w: {3, 4}):
                y = R.matmul(x, w)
                return y
        """),
    ),
    "DataParallel": (f"{_SETUP}, DataParallel(Mesh(2))", TRAINER),
    "ZeRO": (f"{_SETUP}, DataParallel(Mesh(2)), ZeRO(1)", TRAINER),
    "GatherAgain": (
        f"{_SETUP}, DataParallel(Mesh(2)), ZeRO(3), JoinStep, InlineFunctions, DecomposeOpsForTraining,"
        " CanonicalizeBindings, EliminateCommonSubexpr, GatherAgain",
        graph("""
            I.module_attrs({"param_num": 2, "state_num": 0})

            def backbone(x: {4, 3}, w: {3, 3}, v: {3, 2}):
                y = R.matmul(R.tanh(R.matmul(x, w)), v)
                return y
        """),
    ),
    "PackConstants": (
        "FuseOps, LowerToTir, PackConstants",
        graph("""
            def main(x: {2, 8, 10, 10}):
                y = R.nn.conv2d(x, R.const(I.full((16, 8, 5, 5), 0.5, "float32")))
                return y
        """),
    ),
    "BackwardFoldScaleAxis": (
        "BackwardFoldScaleAxis",
        relay("""
            def @main(
              %x: Tensor[(1, 2, 5, 5), float32],
              %w: Tensor[(4, 2, 3, 3), float32],
              %s: Tensor[(4, 1, 1), float32]
            ) {
              multiply(nn.conv2d(%x, %w, kernel_size=[3, 3], channels=4), %s)
            }
        """),
    ),
    "ForwardFoldScaleAxis": (
        "ForwardFoldScaleAxis",
        relay("""
            def @main(
              %x: Tensor[(1, 2, 5, 5), float32],
              %w: Tensor[(4, 2, 3, 3), float32],
              %s: Tensor[(2, 1, 1), float32]
            ) {
              nn.conv2d(multiply(%x, %s), %w, kernel_size=[3, 3], channels=4)
            }
        """),
    ),
    "FoldScaleAxis": (
        "FoldScaleAxis",
        relay("""
            def @main(
              %x: Tensor[(1, 2, 5, 5), float32],
              %w: Tensor[(4, 2, 3, 3), float32],
              %s: Tensor[(2, 1, 1), float32]
            ) {
              nn.conv2d(multiply(%x, %s), %w, kernel_size=[3, 3], channels=4)
            }
        """),
    ),
    "BatchingOps": (
        "BatchingOps",
        relay("""
            def @main(
              %x: Tensor[(2, 3), float32],
              %a: Tensor[(4, 3), float32],
              %b: Tensor[(4, 3), float32],
              %c: Tensor[(4, 3), float32]
            ) {
              (nn.dense(%x, %a), nn.dense(%x, %b), nn.dense(%x, %c))
            }
        """),
    ),
    "CanonicalizeCast": (
        "CanonicalizeCast",
        relay("""
            def @main(%x: Tensor[(3), int8]) {
              %0 = cast(%x, dtype="int32");
              add(abs(%0), negative(%0))
            }
        """),
    ),
    "CanonicalizeOps": (
        "CanonicalizeOps",
        relay("""
            def @main(%x: Tensor[(1, 2, 5, 5), float32], %b: Tensor[(2), float32]) { nn.bias_add(%x, %b) }
        """),
    ),
    "CombineParallelBatchMatmul": (
        "CombineParallelBatchMatmul(2)",
        relay("""
            def @main(%x: Tensor[(5, 2, 3), float32], %a: Tensor[(5, 4, 3), float32], %b: Tensor[(5, 4, 3), float32]) {
              (nn.batch_matmul(%x, %a, transpose_b=True), nn.batch_matmul(%x, %b, transpose_b=True))
            }
        """),
    ),
    "CombineParallelConv2D": (
        "CombineParallelConv2D(2)",
        relay("""
            def @main(
              %x: Tensor[(1, 2, 5, 5), float32],
              %a: Tensor[(4, 2, 3, 3), float32],
              %b: Tensor[(4, 2, 3, 3), float32]
            ) {
              (nn.conv2d(%x, %a, kernel_size=[3, 3], channels=4), nn.conv2d(%x, %b, kernel_size=[3, 3], channels=4))
            }
        """),
    ),
    "CombineParallelDense": (
        "CombineParallelDense(2, to_batch=False)",
        relay("""
            def @main(%x: Tensor[(2, 3), float32], %a: Tensor[(4, 3), float32], %b: Tensor[(4, 3), float32]) {
              (nn.dense(%x, %a), nn.dense(%x, %b))
            }
        """),
    ),
    "ConvertLayout": (
        'ConvertLayout({"nn.conv2d": ["NHWC", "default"]})',
        relay("""
            def @main(%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(4, 2, 3, 3), float32]) {
              nn.relu(nn.conv2d(%x, %w, kernel_size=[3, 3], channels=4))
            }
        """),
    ),
    "DeadCodeElimination of relay": (
        "DeadCodeElimination",
        relay("""
            def @main(%a: Tensor[(3), float32]) {
              let %x = exp(%a);
              let %r = ref(%a);
              let %y = add(%a, %a);
              multiply(%y, %y)
            }
        """),
    ),
    "DefuseOps": (
        "FuseOps, DefuseOps",
        relay("""
            def @main(%x: Tensor[(3), float32]) { exp(add(%x, 1f)) }
        """),
    ),
    "DynamicToStatic": (
        "DynamicToStatic",
        relay("""
            def @main(
              %x: Tensor[(6), float32],
              %y: Tensor[(2, 3), float32]
            ) { dyn.reshape(%x, shape_of(%y, dtype="int64")) }
        """),
    ),
    "EliminateCommonSubexpr of relay": (
        "EliminateCommonSubexpr",
        relay("""
            def @main(%x: Tensor[(3), float32]) {
              %0 = add(%x, 1f);
              %1 = add(%x, 1f);
              multiply(%0, %1)
            }
        """),
    ),
    "EtaExpand": (
        "EtaExpand(expand_global_var=True)",
        relay("""
            def @twice(%f: fn (float32) -> float32, %x: float32) -> float32 { %f(%f(%x)) }
            def @square(%x: float32) -> float32 { multiply(%x, %x) }
            def @main(%x: float32) -> float32 { @twice(@square, %x) }
        """),
    ),
    "FastMath": (
        "FastMath",
        relay("""
            def @main(%x: Tensor[(3), float32]) { tanh(exp(%x)) }
        """),
    ),
    "FlattenAtrousConv": (
        "FlattenAtrousConv",
        relay("""
            def @main(%x: Tensor[(1, 5, 5, 4), float32], %w: Tensor[(3, 3, 4, 1), float32]) {
              %0 = nn.space_to_batch_nd(%x, block_shape=[2, 2], paddings=[[2, 3], [2, 3]]);
              %1 = nn.conv2d(%0, %w, padding=[0, 0, 0, 0], groups=4, channels=4,
                kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWOI");
              nn.batch_to_space_nd(%1, block_shape=[2, 2], crops=[[0, 1], [0, 1]])
            }
        """),
    ),
    "FoldConstant of relay": (
        "FoldConstant",
        relay("""
            def @main(%y: Tensor[(3), float32]) { multiply(%y, add(1f, 2f)) }
        """),
    ),
    "FuseOps of relay": (
        "FuseOps(fuse_opt_level=2)",
        relay("""
            def @main(%x: Tensor[(3), float32]) { exp(add(%x, 1f)) }
        """),
    ),
    "Inline": (
        "Inline",
        relay("""
            def @f(%y: float32, Inline=1) -> float32 { exp(%y) }
            def @main(%x: float32) -> float32 { add(@f(%x), %x) }
        """),
    ),
    "LambdaLift": (
        "LambdaLift",
        relay("""
            def @main(%x: float32) -> float32 {
              let %f = fn (%y: float32) -> float32 { add(%x, %y) };
              %f(%x)
            }
        """),
    ),
    "LazyGradientInit": (
        "LazyGradientInit",
        relay("""
            def @main(%x: Tensor[(3), float32]) { exp(add(zeros_like(%x), %x)) }
        """),
    ),
    "PartialEvaluate": (
        "PartialEvaluate",
        relay("""
            def @main(%d: float32) {
              let %r = ref(%d);
              let %f = fn (%y: float32) { multiply(%y, ref_read(%r)) };
              %f(ref_read(%r))
            }
        """),
    ),
    "RemoveUnusedFunctions": (
        "RemoveUnusedFunctions",
        relay("""
            def @f(%x: float32) -> float32 { %x }
            def @g(%x: float32) -> float32 { @f(%x) }
            def @main(%x: float32) -> float32 { @f(%x) }
        """),
    ),
    "SimplifyExpr": (
        "SimplifyExpr",
        relay("""
            def @main(%x: Tensor[(2, 3), float32]) { reshape(reshape(%x, newshape=[3, 2]), newshape=[6]) }
        """),
    ),
    "SimplifyInference": (
        "SimplifyInference",
        relay("""
            def @main(%x: Tensor[(2, 3), float32]) { nn.dropout(%x, rate=0.5f).0 }
        """),
    ),
    "SplitArgs": (
        "SplitArgs(2)",
        relay("""
            def @main(
              %x: Tensor[(2), float32],
              %y: Tensor[(2), float32],
              %z: Tensor[(2), float32]
            ) { concatenate((%x, %y, %z)) }
        """),
    ),
    "standard_passes": (
        "standard_passes",
        relay("""
            def @main(%x: Tensor[(2, 3), float32]) { multiply(nn.dropout(%x, rate=0.5f).0, add(1f, 2f)) }
        """),
    ),
    "ToANormalForm": (
        "ToANormalForm",
        relay("""
            def @main(%a: float32, %b: float32) {
              %0 = add(%a, %b);
              multiply(%0, %0)
            }
        """),
    ),
    "ToBasicBlockNormalForm": (
        "ToBasicBlockNormalForm",
        relay("""
            def @main(%c: bool, %a: float32, %b: float32) {
              %0 = add(%a, %a);
              if (%c) { %0 } else { multiply(%0, %b) }
            }
        """),
    ),
    "ToGraphNormalForm": (
        "ToGraphNormalForm",
        relay("""
            def @main(%a: float32, %b: float32) {
              let %x = add(%a, %b);
              let %y = multiply(%x, %x);
              %y
            }
        """),
    ),
    "ToMixedPrecision of relay": (
        "ToMixedPrecision",
        relay("""
            def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) { nn.relu(nn.dense(%x, %w)) }
        """),
    ),
    "PlanDevices": (
        "PlanDevices",
        relay("""
            def @main(%x: Tensor[(2, 3), float32]) { on_device(%x) }
        """),
    ),
}
