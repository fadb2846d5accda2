"""docs/images/demo.svg: what a person sees of `make demo`, from a terminal in which it ran."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import socket
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 100, 60
_PROMPT = "[dim]$[/dim] make demo\n"
# What Rich's live display does besides writing: it goes up over its own lines and clears them.
_CONTROL = re.compile(r"(\r\n|\n|\r|\x1b\[1A|\x1b\[2K|\x1b\[\?25[lh])")
# Whoever looks at the picture has these or better; Rich's own font would be fetched from the web.
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"


def picture() -> str:
    """Run it and draw it. Half a minute with SmolLM2 cached, on a machine that does nothing else."""
    host = socket.gethostname()
    return drawn([line.replace(f"-{host}-", "-host-1-") for line in screen(_run())])


def _run() -> str:
    """All that it writes, in its default settings: without this shell's, and from an empty data directory."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "KAFKA_"))}
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{kept['PATH']}"  # as in a shell with the environment activated
    written = b""
    with tempfile.TemporaryDirectory() as data:
        environment = {**kept, "PATH": path, "TERM": "xterm", "COLUMNS": str(COLUMNS), "HEADRACE_DATA_DIR": data}
        process = subprocess.Popen(["make", "demo"], cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=its)
        os.close(its)
        while chunk := _read(ours):
            written += chunk
        os.close(ours)
        if process.wait():
            raise RuntimeError(f"make demo ended with {process.returncode}: {written.decode()[-2000:]}")
    return written.decode()


def _read(terminal: int) -> bytes:
    """Empty when nobody has the other side open, which Linux calls an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def screen(written: str) -> list[str]:
    """The lines that are left on a terminal which has room for all, with their colours as they were written."""
    lines, row = [""], 0
    for piece in _CONTROL.split(written):
        if piece in ("\r\n", "\n"):
            row += 1
            lines += [""] * (row == len(lines))
        elif piece == "\x1b[1A":
            row -= 1
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece != "\r" and not piece.startswith("\x1b[?"):
            lines[row] += piece
    return lines


def drawn(lines: list[str]) -> str:
    """As SVG that fetches nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(_PROMPT)
    console.print(Text.from_ansi("\n".join(lines).rstrip()))
    code = console.export_svg(title="make demo", unique_id="demo")
    code = re.sub(r"<!--.*?-->|@font-face.*?(?=\.demo-matrix)", "", code, flags=re.DOTALL)
    code = code.replace("Fira Code, monospace", _FONTS)
    return "".join(f"{line.rstrip()}\n" for line in code.splitlines() if line.strip())
