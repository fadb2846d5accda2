"""Converts the GGUF file of SmolLM2 to a model directory: `python -m models.smollm2_convert SOURCE DESTINATION`.

A program of its own, so that the memory goes back when it is done. Its output is the fraction that is done, a
number a line; any other line says what stopped it.
"""

import errno
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.children import EXIT_DISK_FULL
from models.errors import ModelConversionError
from models.gguf_llama import GgufLlama
from models.safetensors_bf16 import write_safetensors_bf16


def convert(source: Path, destination: Path, done: Callable[[float], None]) -> None:
    """Write the model of the GGUF file `source` into the directory `destination`, weights in bfloat16.

    Raises :class:`ModelConversionError`, and OSError as the disk gives it.
    """
    gguf = GgufLlama(source)
    _write_json(destination / "config.json", gguf.config())
    _write_json(destination / "generation_config.json", gguf.generation_config())
    _write_json(destination / "tokenizer_config.json", gguf.tokenizer_config())
    (destination / "tokenizer.json").write_text(gguf.tokenizer().to_str(), encoding="utf-8")
    (destination / "chat_template.jinja").write_text(gguf.chat_template(), encoding="utf-8")
    shapes = gguf.shapes()

    def counted() -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        for index, named_weight in enumerate(gguf.weights()):
            done(index / len(shapes))
            yield named_weight

    write_safetensors_bf16(destination / "model.safetensors", shapes, counted())
    done(1.0)


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, EXIT_DISK_FULL, or 1 for a file that cannot be converted."""
    source, destination = map(Path, arguments)
    try:
        convert(source, destination, lambda fraction: print(f"{fraction:.3f}", flush=True))
    except ModelConversionError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(error, file=sys.stderr)
        return EXIT_DISK_FULL
    return 0


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
