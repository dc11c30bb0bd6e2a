"""``multidraft new-rule``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from keyword import iskeyword
from pathlib import Path

from multidraft.cli.output import Json, print_fields, print_json
from multidraft.errors import InputError
from multidraft.files import write_text

_REGISTRY = Path("toolkit", "verifiers", "__init__.py")
_LAST_RULE = re.compile(r"(RULES: dict\[.*?\n)(\}\n)", re.DOTALL)
_LONGEST = 30  # letters of a name, so that no line of the files grows too long


def command(name: str, /, *, folder: Path = Path(), json: Json = False) -> None:
    """Write a verification rule that works, and its test, for you to change.

    In a checkout of the project: toolkit/verifiers/NAME.py, tests/test_rule_NAME.py and a line in
    the registry, so that the test suite, `multidraft methods` and `multidraft bench verifiers` have
    it. Anywhere else: NAME.py and test_NAME.py, which need nothing but the installed package.
    Nothing is overwritten.

    Parameters
    ----------
    name
        Name of the rule: lower-case letters, digits and hyphens.
    folder
        Where to write; a checkout is found from any folder in it.
    """
    names = _Names.of(name)
    texts = {part: _template(part, names) for part in ("my_rule.py", "test_my_rule.py")}
    root = _checkout(folder)
    written = _into_checkout(root, names, texts) if root else _alone(folder, names, texts)
    (print_json if json else print_fields)(written)


@dataclass(frozen=True)
class _Names:
    """One name in its three spellings: my-rule, my_rule, MyRule."""

    rule: str
    module: str
    kind: str

    @classmethod
    def of(cls, name: str) -> _Names:
        rule = name.replace("_", "-")
        module = rule.replace("-", "_")
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule) or iskeyword(module):
            raise InputError(
                f"{name!r} is no name of a rule: use lower-case letters, digits and hyphens, "
                "such as my-rule."
            )
        if len(rule) > _LONGEST:
            raise InputError(f"{name!r} has {len(rule)} letters: use at most {_LONGEST}.")
        return cls(rule, module, "".join(part.capitalize() for part in rule.split("-")))


def _template(file: str, names: _Names) -> str:
    """Return a template's text with the names put in; its own imports stay as they are."""
    text = (resources.files("multidraft.templates") / file).read_text(encoding="utf-8")
    bare = re.sub(r"MyRule|my_rule|my-rule", "", text)
    if {names.kind, names.module} & set(re.findall(r"\w+", bare)):
        raise InputError(f"{names.rule!r} is a word that the file itself uses: choose another.")
    for old, new in (("my-rule", names.rule), ("my_rule", names.module), ("MyRule", names.kind)):
        text = text.replace(old, new)
    return text


def _checkout(folder: Path) -> Path | None:
    """Return the project's root above a folder, or None."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: make it first, or name another with --folder.")
    here = folder.resolve()
    for root in (here, *here.parents):
        if (root / _REGISTRY).is_file() and (root / "tests" / "test_verifiers.py").is_file():
            return root
    return None


def _into_checkout(root: Path, names: _Names, texts: dict[str, str]) -> dict[str, str]:
    rule = root / "toolkit" / "verifiers" / f"{names.module}.py"
    test = root / "tests" / f"test_rule_{names.module}.py"
    registry, line = root / _REGISTRY, f'    "{names.rule}": ("{names.module}", "{names.kind}"),\n'
    listed = registry.read_text(encoding="utf-8")
    longer, found = _LAST_RULE.subn(rf"\g<1>{line}\g<2>", listed, count=1)
    if found != 1:
        raise InputError(f"{registry} holds no table RULES: restore it.")
    if f'"{names.rule}": (' in listed:
        raise InputError(f"there is a rule {names.rule} already: choose another name.")
    _refuse_existing(rule, test)
    home = f"multidraft.verifiers.{names.module}"
    written = texts["test_my_rule.py"].replace(f"multidraft.templates.{names.module}", home)
    write_text(rule, texts["my_rule.py"])
    write_text(test, _with_sorted_imports(written))
    write_text(registry, longer)
    return {
        "rule": str(rule),
        "test": str(test),
        "registered in": str(registry),
        "next": f"python -m pytest {test.relative_to(root)}",
    }


def _alone(folder: Path, names: _Names, texts: dict[str, str]) -> dict[str, str]:
    rule, test = folder / f"{names.module}.py", folder / f"test_{names.module}.py"
    _refuse_existing(rule, test)
    text = texts["test_my_rule.py"]
    line = next(line for line in text.splitlines(True) if "multidraft.templates" in line)
    here = line.replace("multidraft.templates.", "")
    last = [other for other in text.splitlines(True) if other.startswith("from multidraft")][-1]
    write_text(rule, texts["my_rule.py"])
    write_text(test, text.replace(line, "").replace(last, f"{last}\n{here}"))
    return {"rule": str(rule), "test": str(test), "next": f"python -m pytest {test}"}


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already: choose another name, or move it away.")


def _with_sorted_imports(text: str) -> str:
    """Sort the block of imports from the package, into which a name was put."""
    block = [line for line in text.splitlines(True) if line.startswith("from multidraft")]
    return text.replace("".join(block), "".join(sorted(block, key=lambda line: line.split()[1])))
