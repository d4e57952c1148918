"""Rules of the source tree, checked by reading it: floors, sizes, language, names, and what may
load torch.
"""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# Names of methods that leave the device.
HOST_READS = {"item", "cpu", "tolist", "numpy", "nonzero", "masked_select", "unique", "argwhere"}
SRC = ROOT / "src" / "morphogen"
FLOORS = {
    "errors": 0,
    "compat": 0,
    "vocab": 1,
    "kernels": 1,
    "config": 2,
    "state": 3,
    "device": 3,
    "rules": 4,
    "hosts": 5,
    "policy": 6,
    "steps": 7,
    "ppo": 7,
    "data": 8,
    "log": 9,
    "env": 10,
    "evaluation": 11,
    "train": 12,
    "testing": 13,
    "cli": 14,
    "extras": 15,
}
ABOVE_ALL = 99  # morphogen/__init__.py and __main__.py
PURE = (
    "errors",
    "vocab",
    "config",
    "kernels",
    "state",
    "rules",
    "hosts",
    "policy",
    "steps",
    "ppo",
)  # never touch the CPU or files
FILE_MODULES = ("files.py", "tensor_trees.py", "policy_files.py")  # but these read and write them
# settings that come as arrays or tensors are read once, before anything runs
SETTINGS_READER = "plain.py"
TORCH_FREE = (
    "morphogen",
    "morphogen.errors",
    "morphogen.vocab",
    "morphogen.config",
    "morphogen.config.spec",
    "morphogen.log.run_directory",
    "morphogen.train.checkpoint_store",
    "morphogen.config.files",
    "morphogen.log.events",
    "morphogen.log.writer",
    "morphogen.log.run_log",
    "morphogen.extras.pictures.page",
    "morphogen.extras.watch.rounds_table",
    "morphogen.log.console",
    "morphogen.extras.inspection.inspect_run",
    "morphogen.train.sinks",
    "morphogen.train.stop_signals",
    "morphogen.config.reference",
    "morphogen.cli.main",
)
HEAVY = ("torch", "tensordict", "torchrl", "matplotlib", "scipy")
SAME_FILE_NAMES = {  # base names that occur twice, each with its reason
    "train.py": "training step; training run; command",
    "resume.py": "resume of a run; command",
    "reward.py": "families of reward rules; laws of reward rules",
}
SAME_CLASS_NAMES: dict[str, str] = {}
GLOBAL_DRAWS = re.compile(
    r"manual_seed|torch\.rand|torch\.normal|torch\.multinomial|np\.random|random\.(random|seed|choice)"
)
FACTORY = re.compile(
    r"torch\.(zeros|ones|empty|empty_permuted|empty_strided|full|arange|linspace|eye|tensor|as_tensor|asarray|scalar_tensor|rand\w*|tri[lu]_indices)"
)
CLAUSE = re.compile(r"(What|Who|Whom|Whose|Where|Which|Whether|When|How)\b")
PARTICIPLES = re.compile(
    r"_?(told|made|said|found|given|kept|known|named|opened|measured|asked|sown|lived|compared|fitted|drawn|written|read_by"
    r"|taken|resumed|renewed|chosen|moved|taught|settled|shown|held|paid|born|seen|met|lost|left|sent|done|gone|begun"
    r"|entered|forgotten|stood|heard|heeded|thrown|worn|torn|set_apart)"
)
PREDICATES: frozenset[str] = frozenset()
EXPANSIONS = {"expand", "expand_as", "broadcast_to"}
COPIES = {"clone", "contiguous", "repeat"}
INDEXED_WRITES = re.compile(r"(index_(add|copy|fill|put|reduce)|(\w+_)?scatter(_\w+)?)_?")
COMPILED = ("kernels", "state", "rules", "hosts", "policy", "steps", "ppo", "env")  # in graphs
PRIVATE = re.compile(
    r"_(?!_|replace$|asdict$|fields$|field_defaults$)\w*"
)  # but not the methods of named tuples
PRIVATE_NAMES = {  # allowed outside of `compat.py`, each with its reason
    "argparse._SubParsersAction": "no public way to the commands of a parser",
    "parser._actions": "no public way to the flags of a parser",
    "command._actions": "no public way to the flags of a parser",
    "argparse._ArgumentGroup": "the type of a public method's result",
    "_ArgumentGroup": "the type of a public method's result",
    "os._exit": "public and documented",
}
FILES = sorted(SRC.rglob("*.py"))
POSITIONAL = 5
NESTING = 3
BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "bench",
    "notebooks",
    "pyproject.toml",
    "src",
    "tests",
}


def room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def floor(path: Path) -> int:
    return FLOORS.get(room(path), ABOVE_ALL)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        if node.module == "morphogen":
            return [f"morphogen.{alias.name}" for alias in node.names]
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def depth(node: ast.AST) -> int:
    """Nesting of blocks inside a statement; an `elif` is no level of its own."""
    below = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.Lambda):
            continue
        chained = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        below = max(below, depth(child) - (1 if chained else 0))
    return below + isinstance(node, BLOCKS)


def test_imports_point_down_and_stand_at_the_top():
    for path in FILES:
        tree = parse(path)
        top = set(map(id, tree.body))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            typing_only = any(
                isinstance(block, ast.If)
                and ast.unparse(block.test) == "TYPE_CHECKING"
                and node in block.body
                for block in tree.body
            )
            assert id(node) in top or typing_only, (
                f"{path.name}:{node.lineno} imports inside a block"
            )
            for name in imports(node):
                if name.startswith("morphogen."):
                    other = name.split(".")[1]
                    assert other == room(path) or FLOORS[other] < floor(path), (
                        f"{path.name} imports {name}, not below it"
                    )


def test_functions_keep_their_sizes():
    for path in FILES:
        for node in ast.walk(parse(path)):
            if not isinstance(node, FUNCTIONS):
                continue
            where = f"{path.name}:{node.lineno} {node.name}"
            arguments = (*node.args.posonlyargs, *node.args.args)
            positional = [arg.arg for arg in arguments if arg.arg not in ("self", "cls")]
            assert len(positional) <= POSITIONAL, (
                f"{where} has {len(positional)} positional parameters"
            )
            nested = max((depth(child) for child in node.body), default=0)
            assert nested <= NESTING, f"{where} nests blocks too deep"


@pytest.mark.parametrize("folder", ["src", "tests", "bench"])
def test_docstrings_begin_with_a_verb_or_a_noun(folder):
    """The first word is no What, Who, Whose, Where, Which, Whether or How, unless the line is a
    question.
    """
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(parse(path)):
            first = (
                (ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None) or ""
            ).partition("\n")[0]
            assert not CLAUSE.match(first) or first.endswith("?"), f"{path.name}: {first!r}"


def test_functions_are_not_named_by_participles():
    for path in FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, FUNCTIONS) and node.name not in PREDICATES:
                assert not PARTICIPLES.fullmatch(node.name), (
                    f"{path.name}:{node.lineno} {node.name}"
                )


def test_pure_packages_never_touch_the_host():
    for path in FILES:
        if room(path) not in PURE:
            continue
        reads = () if path.name in (SETTINGS_READER, *FILE_MODULES) else HOST_READS
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Attribute):
                assert node.attr not in reads, f"{path.name}:{node.lineno} leaves the device"
            if isinstance(node, ast.Name):
                assert node.id not in ("open", "print", "input"), (
                    f"{path.name}:{node.lineno} does input or output"
                )


def test_no_draw_reads_a_global_generator():
    for path in FILES:
        if "torchrl" in path.parts:
            continue  # actors of TorchRL draw from the generator that its users seed
        assert not GLOBAL_DRAWS.search(path.read_text()), path.name


def test_tensors_are_made_on_a_named_device():
    """A program around a run may have set another default device."""
    for path in FILES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and FACTORY.fullmatch(ast.unparse(node.func)):
                named = {word.arg for word in node.keywords} & {"device", None}
                assert named, f"{path.name}:{node.lineno} makes a tensor on the default device"


def private_names(tree: ast.Module) -> list[str]:
    """Private names of other objects and modules that a source uses."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            owner = ast.unparse(node.value)
            found += [f"{owner}.{node.attr}"] if owner not in ("self", "cls") else []
        elif isinstance(node, ast.ImportFrom | ast.Import):
            parts = [alias.name for alias in node.names]
            parts += (getattr(node, "module", None) or "").split(".")
            found += [part for part in parts if re.search(r"(^|\.)_(?!_)", part)]
    return found


def test_private_names_are_found():
    source = "import a._b\nfrom a._c import d\nfrom a import _e\nself._f.g = a._h(b._replace())"
    assert private_names(ast.parse(source)) == ["a._b", "_c", "_e", "a._h"]


def test_private_names_of_others_stand_in_one_file():
    """A release of torch or tensordict may rename its private names."""
    for path in FILES:
        if path.name != "compat.py":
            assert set(private_names(parse(path))) <= PRIVATE_NAMES.keys(), path.name


def is_expanded(node: ast.AST, names: set[str]) -> bool:
    """An expansion, a view of one, or a name of one: its elements may be one place in memory."""
    while True:
        if isinstance(node, ast.Name):
            return node.id in names
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in EXPANSIONS | COPIES:
            return called.attr in EXPANSIONS
        inner = called or node
        if not isinstance(inner, ast.Attribute | ast.Subscript):
            return False
        node = inner.value


def writes_to_expansions(tree: ast.Module) -> list[int]:
    """Lines of indexed writes to an expansion, whose elements inductor writes at one place."""
    found = []
    for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
        nodes = list(ast.walk(function))
        names: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Assign) and is_expanded(node.value, names):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for node in nodes:
            bases: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if INDEXED_WRITES.fullmatch(node.func.attr):
                    bases = [node.func.value, *node.args[:1]]
            elif isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                bases = [target.value for target in targets if isinstance(target, ast.Subscript)]
            found += [node.lineno for base in bases if is_expanded(base, names)]
    return found


@pytest.mark.parametrize("line", [
    "y = x[-1:].expand(5){}.index_copy(0, rows, new)",
    "y = torch.index_fill(x.expand_as(z){}, 0, rows, 0)",
    "y = torch.broadcast_to(x, (5,)){}.view(5, 1).scatter_add(0, rows, new)",
    "y = x.expand(5){}\n    y[rows] = new",
    "y = x.expand(5){}[1:]\n    z = y.T\n    z.index_put_((rows,), new)",
])  # fmt: skip
def test_an_indexed_write_to_an_expansion_is_found(line):
    source = "def f(x, z, rows, new):\n    " + line
    assert writes_to_expansions(ast.parse(source.format("")))
    assert not writes_to_expansions(ast.parse(source.format(".clone()")))


def test_no_indexed_write_has_an_expanded_base():
    for path in FILES:
        assert not writes_to_expansions(parse(path)), path.name


def enum_indices(tree: ast.Module, module: ModuleType) -> list[int]:
    """Lines of functions that index a constant tuple or list by an enum; dynamo never ends."""

    def value(node: ast.AST) -> object:
        return getattr(module, node.id, None) if isinstance(node, ast.Name) else None

    def is_enum(node: ast.AST) -> bool:
        kind = value(node)
        return isinstance(kind, type) and issubclass(kind, IntEnum)

    found = []
    for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
        nodes = list(ast.walk(function))
        loops = [node for node in nodes if isinstance(node, ast.For | ast.comprehension)]
        over = [loop.target for loop in loops if is_enum(loop.iter)]
        members = {target.id for target in over if isinstance(target, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Subscript) and isinstance(value(node.value), tuple | list):
                index = node.slice
                named = isinstance(index, ast.Attribute) and is_enum(index.value)
                looped = isinstance(index, ast.Name) and index.id in members
                found += [node.lineno] if named or looped else []
    return found


def test_an_enum_as_an_index_is_found():
    module = ModuleType("planted")
    vars(module).update(Way=IntEnum("Way", "LEFT RIGHT"), PACES=(1, 2, 3), BY_WAY={1: 2})
    source = "def f(x):\n    a = {}\n    return [{} for way in Way], a"
    assert enum_indices(ast.parse(source.format("PACES[Way.LEFT]", 0)), module) == [2]
    assert enum_indices(ast.parse(source.format(0, "PACES[way]")), module) == [3]
    assert not enum_indices(ast.parse(source.format("PACES[int(Way.LEFT)]", "BY_WAY[way]")), module)


def test_no_constant_is_indexed_by_an_enum_in_code_that_is_compiled():
    for path in FILES:
        if room(path) in COMPILED:
            parts = path.relative_to(SRC.parent).with_suffix("").parts
            module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
            assert not enum_indices(parse(path), module), path.name


def test_vocabulary_uses_the_standard_library_only():
    allowed = {*sys.stdlib_module_names, "morphogen"}
    for path in [*(SRC / "vocab").glob("*.py"), SRC / "errors.py"]:
        names = {name.split(".")[0] for node in ast.walk(parse(path)) for name in imports(node)}
        assert names <= allowed, f"{path.name}: {names - allowed}"


def test_these_modules_load_without_torch():
    places = {name: SRC.parent.joinpath(*name.split(".")) for name in TORCH_FREE}
    names = [  # an extra may be absent
        name
        for name, place in places.items()
        if ".extras." not in name or place.with_suffix(".py").exists()
    ]
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = [other for other in {HEAVY!r} if other in sys.modules]\n"
        "    assert not heavy, f'{name} loads {heavy}'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "package", sorted({path.parent for path in FILES if path.parent.parent == SRC}), ids=str
)
def test_packages_say_what_they_hold(package):
    text = ast.get_docstring(parse(package / "__init__.py")) or ""
    assert 15 <= len(text.splitlines()) <= 30
    assert "torch" in text, "a package says whether it loads torch"


def test_names_are_used_once():
    core = [path for path in FILES if room(path) != "extras"]
    names = Counter(path.name for path in core if path.name != "__init__.py")
    assert {name for name, count in names.items() if count > 1} == set(SAME_FILE_NAMES)
    classes = Counter(
        node.name
        for path in FILES
        for node in parse(path).body
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    )
    assert {name for name, count in classes.items() if count > 1} == set(SAME_CLASS_NAMES)


def test_the_top_level_holds_nothing_else():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip(f"the tree is not a git checkout here: {tracked.stderr.strip()}")
    assert {line.split("/")[0] for line in tracked.stdout.splitlines()} <= TOP_LEVEL
