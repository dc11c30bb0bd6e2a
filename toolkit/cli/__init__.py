"""The command line: one file per subcommand, imported when it is used.

Exit codes: 0 done, 1 a check failed, 2 bad input or a refusal (one sentence on stderr says what to
do), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from keyword import iskeyword

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError

from multidraft import __version__
from multidraft.errors import InputError, Refused

app = App(
    name="multidraft",
    help="Optimal acceptance, solvers and verifiers for multi-draft speculative sampling.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

# Subcommand -> what it does, and an example. Its module is imported when it runs.
_COMMANDS = {
    "solve": (
        "Solve one problem and certify the answer.",
        "multidraft solve --target 0.2,0.3,0.5 --draft 0.6,0.3,0.1 --law iid --n 2",
    ),
    "compare": (
        "Solve one problem with every method that takes it.",
        "multidraft compare --target q.npy --draft p.npy --law without-replacement --n 3",
    ),
    "methods": ("List solvers, rules, draft laws and bounds.", "multidraft methods --json"),
    "record": (
        "Record the laws of a target and its drafts on texts.",
        "multidraft record --target smollm2 --draft skip-4,skip-8 --contexts 512",
    ),
    "advise": (
        "Say which tree, draft law and rule give the most tokens per second.",
        "multidraft advise --draft skip-8 --budget 16",
    ),
    "reproduce": (
        "Compute the main tables and figures on a recorded trace, or those of papers by name.",
        "multidraft reproduce khisti_fig2 --quick",
    ),
    "decode": (
        "Continue prompts by multi-draft sampling, with accepted drafts in colour.",
        'multidraft decode --prompt "The capital of France is"',
    ),
    "bench": (
        "Measure speed against what a user would pick instead.",
        "multidraft bench full-vocabulary --quick",
    ),
    "import": (
        "Make a trace from your own logs or logits.",
        "multidraft import --target target.jsonl --draft draft.jsonl --output mine.safetensors",
    ),
    "report": (
        "Write one HTML page about a target and its drafts.",
        "multidraft report mine.safetensors",
    ),
    "new-rule": (
        "Write a verification rule that works, and its test, for you to change.",
        "multidraft new-rule my-rule",
    ),
    "doctor": ("Check this installation, with a self test.", "multidraft doctor"),
    "completion": (
        "Print the completion script of a shell.",
        "multidraft completion bash > ~/.local/share/bash-completion/completions/multidraft",
    ),
}
for _name, (_sentence, _example) in _COMMANDS.items():
    app.command(
        f"multidraft.cli.{_name.replace('-', '_')}{'_' if iskeyword(_name) else ''}:command",
        name=_name,
        help=_sentence,
        help_epilogue=f"Example: {_example}",
    )

app.command("multidraft.cli.models:command", name="models", help="List and fetch language models.")
app.command("multidraft.cli.sweep:command", name="sweep", help="Compute what a sweep file lists.")
app.command("multidraft.cli.trees:command", name="trees", help="Record and list draft trees.")

# Packages that only an extra installs.
_EXTRAS = {
    **dict.fromkeys(("accelerate", "gguf", "tokenizers", "transformers"), "models"),
    **dict.fromkeys(("dask", "distributed"), "cluster"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return its exit code."""
    try:
        return app(arguments, exit_on_error=False, print_error=False) or 0
    except (InputError, Refused) as error:
        return _fail(str(error))
    except UnknownCommandError as error:
        # Its own sentence would import every command to look for a similar name.
        return _fail(f"there is no command {(error.unused_tokens or ['?'])[0]!r}: see --help.")
    except CycloptsError as error:
        return _fail(f"{' '.join(str(error).split())} See multidraft --help.")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        return _fail(f"{error.name} is missing: pip install 'multidraft[{_EXTRAS[error.name]}]'.")
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}." if error.filename else str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; what was finished is kept.", code=130)


def _fail(sentence: str, code: int = 2) -> int:
    print(f"multidraft: {sentence}", file=sys.stderr)
    return code
