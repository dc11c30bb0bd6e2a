from __future__ import annotations

import json
import re
import subprocess

import pytest

from multidraft import cli
from multidraft.cli import doctor, output


def run(capsys, *arguments: str) -> tuple[int, str]:
    code = cli.main(arguments)
    return code, capsys.readouterr().out


def test_a_sound_installation_passes(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path / "nothing"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code, text = run(capsys, "doctor")
    assert code == 0
    assert "All is well." in text
    for words in ("numpy", "cores", "OMP_NUM_THREADS=1", "not there yet", "smollm2 not fetched"):
        assert words in text


def test_the_facts_as_json(capsys):
    code, text = run(capsys, "doctor", "--json")
    facts = json.loads(text)
    assert code == 0
    assert facts["passed"]
    assert len(facts["self test"]) == 4
    assert all(test["found"] <= 1e-9 for test in facts["self test"])


@pytest.mark.parametrize("wrong", [1e-3, float("nan")])
def test_a_failed_self_test_is_exit_code_1(capsys, monkeypatch, wrong):
    sound = doctor._within
    monkeypatch.setattr(doctor, "_within", lambda name, found: sound(name, found + wrong))
    code, text = run(capsys, "doctor")
    assert code == 1
    assert "NO" in text
    assert "Something is wrong" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_know_commands_and_options(capsys, shell):
    code, text = run(capsys, "completion", shell)
    assert code == 0
    for word in ("doctor", "report", "top-k"):
        assert word in text


def test_the_bash_script_completes_in_bash(capsys):
    _, script = run(capsys, "completion", "bash")
    ask = 'COMP_WORDS=(multidraft rep); COMP_CWORD=1; _multidraft; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
    assert "report" in done.stdout.split()
    assert "doctor" not in done.stdout.split()


def test_tables_fold_to_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["first", "a long sentence about the first thing that does not fit"]]
    output.print_table(("name", "what it is"), rows)
    output.print_fields({"name": "a long sentence about the first thing that does not fit"})
    text = capsys.readouterr().out
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert max(len(line) for line in plain.splitlines()) <= 40
    assert "that does not fit" in " ".join(plain.split())


def test_markup_in_a_cell_stays_text(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    output.print_table(("token",), [["[red]x[/red] :smile:"]])
    assert "[red]x[/red] :smile:" in capsys.readouterr().out


def test_no_colour_when_told_so(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(("token",), [["x"]])
    assert "\x1b[3" not in capsys.readouterr().out
