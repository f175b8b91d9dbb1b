import ast
from pathlib import Path

import pytest

import dare

ROOT = Path(dare.__file__).parent
ORDER = [
    "types",
    "diffusion",
    "models",
    "decoding",
    "traces",
    "learned",
    "grading",
    "data",
    "engines",
    "train",
    "serving",
    "cli",
]
MATHS = ["diffusion", "algorithms", "rewards"]
MACHINERY = [
    "dare.engines",
    "dare.train",
    "dare.evaluation",
    "dare.cli",
    "torch.distributed",
    "transformers",
    "ray",
    "verl",
]


def imports(path: Path) -> set[str]:
    """Modules imported at run time; a TYPE_CHECKING block does not count."""
    names = set()
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import):
                    names |= {alias.name for alias in inner.names}
                elif isinstance(inner, ast.ImportFrom) and inner.module:
                    names.add(inner.module)
    return names


def files(part: str) -> list[Path]:
    single = ROOT / f"{part}.py"
    return [single] if single.is_file() else sorted((ROOT / part).glob("*.py"))


@pytest.mark.parametrize("part", MATHS)
def test_maths_never_imports_machinery(part: str) -> None:
    for path in files(part):
        for name in imports(path):
            assert not any(name == bad or name.startswith(bad + ".") for bad in MACHINERY), f"{path.name}: {name}"


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_imports_point_one_way(place: int) -> None:
    for path in files(ORDER[place]):
        for name in imports(path):
            later = [part for part in ORDER[place + 1 :] if f"{name}.".startswith(f"dare.{part}.")]
            assert not later, f"{path.relative_to(ROOT)} imports {name}"


def test_no_work_in_package_files() -> None:
    for path in ROOT.rglob("__init__.py"):
        statements = ast.parse(path.read_text()).body
        assert all(isinstance(s, ast.Expr | ast.Assign) for s in statements), path


def test_no_special_token_id_is_written_in_the_package() -> None:
    published = {"126336", "126081", "151666", "151669", "151643", "156895", "156892"}
    for path in ROOT.rglob("*.py"):
        numbers = {str(n.value) for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
        assert not numbers & published, path
